//! The pages at `/ui/`: what runs here, for people with a browser. They show and change nothing.
//!
//! Each page is made on the server from what the node answers, as HTML that needs no script, no build step and nothing
//! from elsewhere. `html` sees to it that whatever comes from outside is text.
//!
//! * `page`: what all pages have in common. `sign_in`: the token as a cookie.
//! * `executions`, `execution` with its `timeline` and its `run`s, `workers`, `workflows`: one page each.

mod execution;
mod executions;
mod html;
mod page;
mod run;
mod sign_in;
mod style;
mod timeline;
mod value;
mod workers;
mod workflows;

use bytes::Bytes;
use html::{Html, html};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use orbit_core::api::{self, ApiError, ErrorCode, Reply};
use orbit_io::driver::NodeHandle;
use orbit_io::http::Extra;
use orbit_io::http::route::Resource;
use page::Page;
use sign_in::Door;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The service that the front asks for `/`, `/ui` and what is below.
pub struct Ui {
    pages: Arc<Pages>,
}

/// What a page is made from.
struct Pages {
    node: NodeHandle,
    door: Door,
}

impl Ui {
    /// Pages about a node, for those who know the token, if there is one.
    pub fn new(node: NodeHandle, token: Option<&str>) -> Ui {
        Ui { pages: Arc::new(Pages { node, door: Door::new(token) }) }
    }
}

impl Extra for Ui {
    fn serves(&self, path: &str) -> bool {
        matches!(path, "/" | "/ui") || path.starts_with("/ui/")
    }

    fn serve(&self, request: Request<Bytes>) -> Pin<Box<dyn Future<Output = Response<Bytes>> + Send>> {
        let pages = self.pages.clone();
        Box::pin(async move {
            let mut response = pages.answer(&request).await;
            guard(&mut response);
            response
        })
    }
}

/// What every answer says to the browser: load nothing from elsewhere, run nothing, keep nothing.
fn guard(response: &mut Response<Bytes>) {
    let policy = HeaderValue::from_static(style::CONTENT_SECURITY_POLICY.as_str());
    let headers = [
        (header::CONTENT_SECURITY_POLICY, policy),
        (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
        (header::REFERRER_POLICY, HeaderValue::from_static("same-origin")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    response.headers_mut().extend(headers.map(|(name, value)| (Some::<HeaderName>(name), value)));
}

/// Why there is no page: what the API says where there is no answer.
type Trouble = ApiError;

impl Pages {
    async fn answer(&self, request: &Request<Bytes>) -> Response<Bytes> {
        let path = request.uri().path();
        if !path.starts_with("/ui/") {
            return redirect("/ui/");
        }
        if let Some(response) = self.door.sign(request) {
            return response;
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let error = ApiError::new(ErrorCode::MethodNotAllowed, "pages are only read: with GET or HEAD");
            let mut response = self.trouble(&error).await;
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if !self.door.is_open(request) {
            let target = request.uri().path_and_query().map_or(path, |target| target.as_str());
            return respond(StatusCode::UNAUTHORIZED, sign_in::page(target, false));
        }
        let query = request.uri().query().unwrap_or_default();
        let (status, page) = match self.page(path, query).await {
            Ok(page) => (StatusCode::OK, page),
            // A slip in the form of the list: the form stays.
            Err(trouble) if is_list(path) && trouble.code == ErrorCode::InvalidRequest => {
                match executions::refused(self, query, &trouble).await {
                    Ok(page) => (StatusCode::BAD_REQUEST, page),
                    Err(trouble) => return self.trouble(&trouble).await,
                }
            }
            Err(trouble) => return self.trouble(&trouble).await,
        };
        respond(status, page.render(&self.server().await, self.door.has_lock()))
    }

    /// The page of a path, which begins with `/ui/`.
    async fn page(&self, path: &str, query: &str) -> Result<Page, Trouble> {
        // Names in a path are what they are in the API, so its router reads them.
        let segments: Vec<&str> = path.split('/').skip(2).collect();
        match segments.as_slice() {
            [""] | ["executions"] => executions::page(self, query).await,
            ["executions", id] => match Resource::find(&format!("/v1/executions/{id}"))? {
                Resource::Execution(id) => execution::page(self, id, query).await,
                _ => Err(no_page(path)),
            },
            ["workers"] => workers::page(self).await,
            ["workflows"] => workflows::list(self).await,
            ["workflows", name] => match Resource::find(&format!("/v1/workflows/{name}"))? {
                Resource::Workflow { name, .. } => workflows::all_of(self, name).await,
                _ => Err(no_page(path)),
            },
            ["workflows", name, version] => {
                match Resource::find(&format!("/v1/workflows/{name}/versions/{version}"))? {
                    Resource::Workflow { name, version } => workflows::one(self, name, version).await,
                    _ => Err(no_page(path)),
                }
            }
            _ => Err(no_page(path)),
        }
    }

    /// What the node answers. An answer that is an error is trouble.
    async fn ask(&self, request: api::Request) -> Result<Reply, Trouble> {
        let unavailable = |why: orbit_io::driver::Unavailable| ApiError::new(ErrorCode::NotReady, why.to_string());
        match self.node.submit(request).map_err(unavailable)?.await.map_err(unavailable)?.reply {
            Reply::Error(error) => Err(error),
            reply => Ok(reply),
        }
    }

    /// How the server is, for the top of a page.
    async fn server(&self) -> Html {
        let (health, ready) = match (self.ask(api::Request::Health).await, self.ask(api::Request::Ready).await) {
            (Ok(Reply::Health(health)), Ok(Reply::Ready(ready))) => (health, ready),
            _ => return html!("<span class=\"badge no\">not reachable</span>"),
        };
        let state = match ready.ready {
            true => html!("<span class=\"badge yes\">ready</span>"),
            false => html!("<span class=\"badge no\" title=\"{}\">not ready</span>", ready.reason),
        };
        html!(
            "<span>{} running</span><span>{}</span>{}",
            health.active_executions,
            value::counted(health.worker_sessions, "worker"),
            state
        )
    }

    /// A page that says what is wrong.
    async fn trouble(&self, error: &ApiError) -> Response<Bytes> {
        let status = StatusCode::from_u16(error.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // What the API says of requests in general helps nobody who followed a link.
        let general =
            matches!(error.code, ErrorCode::InvalidRequest | ErrorCode::NotFound | ErrorCode::MethodNotAllowed);
        let hint = (!general).then(|| html!("<p class=\"small\">{}</p>", error.code.hint()));
        let body = html!(
            "<div class=\"card empty\"><h1>{}</h1><p>{}</p>{}<p><a href=\"/ui/\">All executions</a></p></div>",
            error.code.as_str(),
            error.message,
            hint
        );
        let page = Page { title: error.code.as_str().into(), tab: None, refresh: None, body };
        respond(status, page.render(&self.server().await, self.door.has_lock()))
    }
}

/// Whether a path is that of the list of executions.
fn is_list(path: &str) -> bool {
    matches!(path, "/ui/" | "/ui/executions")
}

fn no_page(path: &str) -> Trouble {
    let shown: String = path.chars().take(200).collect();
    ApiError::new(ErrorCode::NotFound, format!("there is no page {shown}"))
}

/// A reply of a kind that the request does not have.
fn other() -> Trouble {
    ApiError::new(ErrorCode::Internal, "the node answered something else")
}

fn respond(status: StatusCode, page: Html) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(page.into_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    response
}

/// Sends a browser elsewhere, to be read with GET.
fn redirect(target: &str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let target = HeaderValue::from_str(target).unwrap_or(HeaderValue::from_static("/ui/"));
    response.headers_mut().insert(header::LOCATION, target);
    response
}
