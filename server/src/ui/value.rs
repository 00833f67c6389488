//! Values as people read them.

use super::html::{Html, encoded, html};
use crate::output;
use orbit_core::execution::event::{Labels, TaskError};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use serde_json::Value;

/// Bytes of one JSON value that a page shows; the API shows the rest.
const MAX_SHOWN: usize = 64 << 10;

/// A moment, to the second, its milliseconds on hovering.
pub fn moment(at: ClusterMs) -> Html {
    let whole = output::time(at.0);
    html!("<time datetime=\"{}\" title=\"{}\">{}</time>", whole.replace(' ', "T"), whole, &whole[..whole.len() - 5])
}

/// A length of time: two units at most.
pub fn duration(ms: i64) -> String {
    let ms = ms.max(0);
    let (days, hours, minutes) = (ms / 86_400_000, ms / 3_600_000 % 24, ms / 60_000 % 60);
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..10_000 => format!("{}.{:02} s", ms / 1_000, ms % 1_000 / 10),
        10_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{minutes} min {} s", ms / 1_000 % 60),
        3_600_000..86_400_000 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// `1 worker`, `2 workers`.
pub fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

pub fn status(status: Status) -> Html {
    badge(status.as_str())
}

/// A word that says where something stands.
pub fn badge(word: &str) -> Html {
    html!("<span class=\"badge {}\">{}</span>", word, word)
}

/// Labels, each a way to the executions that have it.
pub fn labels(labels: &Labels) -> Html {
    let label = |(key, value): (&String, &String)| {
        let text = format!("{key}={value}");
        html!("<a class=\"label\" href=\"/ui/?label={}\">{}</a>", encoded(&text), text)
    };
    labels.iter().map(label).collect()
}

/// The way to an execution.
pub fn execution(id: &str) -> Html {
    html!("<a class=\"id\" href=\"/ui/executions/{}\">{}</a>", encoded(id), id)
}

/// The way to a definition.
pub fn workflow(name: &str, version: &str) -> Html {
    html!(
        "<a href=\"/ui/workflows/{}/{}\">{} <span class=\"quiet\">{}</span></a>",
        encoded(name),
        encoded(version),
        name,
        version
    )
}

/// A JSON value, laid out.
pub fn json(value: &Value) -> Html {
    let mut text = output::pretty(value);
    let bytes = text.len();
    if bytes > MAX_SHOWN {
        let end = (0..=MAX_SHOWN).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str(&format!("\n… ({bytes} bytes in all)"));
    }
    html!("<pre>{}</pre>", text.trim_end())
}

/// A JSON value in little room: a longer one can be opened.
pub fn short_json(value: &Value) -> Html {
    let text = value.to_string();
    if text.len() <= 120 {
        return html!("<code>{}</code>", text);
    }
    let beginning: String = text.chars().take(100).collect();
    html!("<details><summary><code>{}…</code></summary>{}</details>", beginning, json(value))
}

/// An error: its code and what it says.
pub fn error(error: &TaskError) -> Html {
    let step = error.step.as_ref().map(|step| html!(" in step <code>{}</code>", step.as_str()));
    let message = (!error.message.is_empty()).then(|| html!(": {}", error.message));
    html!("<b>{}</b>{}{}", error.code, step, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_has_two_units_at_most() {
        let shown = [(-5, "0 ms"), (999, "999 ms"), (1_234, "1.23 s"), (10_050, "10.0 s"), (61_000, "1 min 1 s")];
        for (ms, text) in shown {
            assert_eq!(duration(ms), text);
        }
        assert_eq!(duration(3_600_000 + 59 * 60_000), "1 h 59 min");
        assert_eq!(duration(50 * 3_600_000), "2 d 2 h");
    }

    #[test]
    fn a_large_value_is_cut_between_characters() {
        let shown = json(&Value::from("ä".repeat(MAX_SHOWN))).into_string();
        assert!(shown.len() < MAX_SHOWN + 100);
        assert!(shown.contains("… (131075 bytes in all)"), "{}", &shown[shown.len() - 60..]);
    }

    #[test]
    fn markup_in_a_value_is_text() {
        let value = serde_json::json!({"<script>": "<img src=x onerror=alert(1)>"});
        for html in [json(&value), short_json(&value)] {
            let html = html.into_string();
            assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        }
    }
}
