//! What all pages have in common.

use super::html::{Html, html};
use super::style::ICON;

/// A page, before the frame is around it.
pub struct Page {
    pub title: String,
    /// The tab that it belongs to.
    pub tab: Option<Tab>,
    /// Read again after so many seconds.
    pub refresh: Option<u32>,
    pub body: Html,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    Executions,
    Workflows,
    Workers,
}

impl Page {
    /// The whole document. `server` says how the server is; with a `lock` there is a way to sign out.
    pub fn render(self, server: &Html, lock: bool) -> Html {
        let tabs = [
            (Tab::Executions, "/ui/", "Executions"),
            (Tab::Workflows, "/ui/workflows", "Workflows"),
            (Tab::Workers, "/ui/workers", "Workers"),
        ];
        let tabs = tabs.into_iter().map(|(tab, target, name)| {
            if self.tab == Some(tab) {
                html!("<a href=\"{}\" aria-current=\"page\">{}</a>", target, name)
            } else {
                html!("<a href=\"{}\">{}</a>", target, name)
            }
        });
        let sign_out = lock.then(|| {
            html!("<form method=\"post\" action=\"/ui/sign-out\"><button class=\"plain\">Sign out</button></form>")
        });
        let header = html!(
            "<header><div>{}<nav aria-label=\"Pages\">{}</nav><div class=\"server\">{}{}</div></div></header>",
            logo(),
            tabs.collect::<Html>(),
            server,
            sign_out
        );
        let refresh = self.refresh.map(|seconds| html!("<meta http-equiv=\"refresh\" content=\"{}\">", seconds));
        frame(&self.title, refresh, html!("{}<main>{}</main>", header, self.body))
    }
}

/// The way back to the first page.
pub fn logo() -> Html {
    html!(
        "<a class=\"logo\" href=\"/ui/\"><svg width=\"24\" height=\"24\" viewBox=\"0 0 32 32\" aria-hidden=\"true\">\
         <ellipse cx=\"16\" cy=\"16\" rx=\"14\" ry=\"6.5\" fill=\"none\" stroke=\"currentColor\" stroke-width=\"2.5\" \
         transform=\"rotate(-28 16 16)\"/><circle cx=\"16\" cy=\"16\" r=\"5\" fill=\"currentColor\"/></svg>Orbit</a>"
    )
}

/// A document around something.
pub fn frame(title: &str, head: Option<Html>, body: Html) -> Html {
    html!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">{}<title>{} · Orbit</title>\
         <link rel=\"icon\" href=\"{}\">{}</head><body>{}</body></html>\n",
        head,
        title,
        ICON,
        style(),
        body
    )
}

/// The style sheet as it stands: the policy names it by its hash, so nothing of it may be escaped.
fn style() -> Html {
    Html::fill(concat!("<style>", include_str!("style.css"), "</style>"), &[])
}
