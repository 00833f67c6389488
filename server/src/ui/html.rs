//! HTML in which whatever is filled in is text, unless it was made here.

/// A piece of HTML. There are two ways to one: a literal of this program, and [`Html::fill`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Html(String);

impl Html {
    /// Nothing.
    pub fn new() -> Html {
        Html::default()
    }

    /// A literal with something in the place of each `{}`: HTML as it is, everything else as text, its special
    /// characters escaped (so that it is safe between tags, and in the double quotes of an attribute).
    pub fn fill(template: &'static str, arguments: &[&dyn Render]) -> Html {
        let mut html = Html::new();
        let mut arguments = arguments.iter();
        for (index, part) in template.split("{}").enumerate() {
            if index > 0 {
                let argument = arguments.next().expect("a template has as many places as arguments");
                argument.render(&mut html.0);
            }
            html.0.push_str(part);
        }
        assert!(arguments.next().is_none(), "a template has as many places as arguments");
        html
    }

    /// With another piece behind it.
    pub fn push(&mut self, other: Html) {
        self.0.push_str(&other.0);
    }

    pub fn into_string(self) -> String {
        self.0
    }
}

impl FromIterator<Html> for Html {
    fn from_iter<I: IntoIterator<Item = Html>>(pieces: I) -> Html {
        let mut whole = Html::new();
        pieces.into_iter().for_each(|piece| whole.push(piece));
        whole
    }
}

/// `html!("<b>{}</b>", text)`: see [`Html::fill`].
macro_rules! html {
    ($template:literal $(, $argument:expr)* $(,)?) => {
        $crate::ui::html::Html::fill($template, &[$(&$argument),*])
    };
}
pub(super) use html;

/// What can stand in the place of a `{}`.
pub trait Render {
    fn render(&self, html: &mut String);
}

impl Render for Html {
    fn render(&self, html: &mut String) {
        html.push_str(&self.0);
    }
}

impl Render for str {
    fn render(&self, html: &mut String) {
        for character in self.chars() {
            match character {
                '&' => html.push_str("&amp;"),
                '<' => html.push_str("&lt;"),
                '>' => html.push_str("&gt;"),
                '"' => html.push_str("&quot;"),
                '\'' => html.push_str("&#39;"),
                // No browser takes it, whichever way it is written.
                '\0' => html.push('\u{fffd}'),
                other => html.push(other),
            }
        }
    }
}

impl Render for String {
    fn render(&self, html: &mut String) {
        self.as_str().render(html);
    }
}

impl<T: Render + ?Sized> Render for &T {
    fn render(&self, html: &mut String) {
        (**self).render(html);
    }
}

/// Nothing where there is nothing.
impl<T: Render> Render for Option<T> {
    fn render(&self, html: &mut String) {
        if let Some(inner) = self {
            inner.render(html);
        }
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Render for $number {
            fn render(&self, html: &mut String) {
                html.push_str(&self.to_string());
            }
        })+
    };
}
numbers!(i64, u16, u32, u64, usize);

/// A text as one segment of a path, or one value of a query.
pub fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_filled_in_is_text() {
        let hostile = "<script>alert('x')</script>\" & \0";
        let text = "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot; &amp; \u{fffd}";
        let html = html!("<b title=\"{}\">{}</b>{}{}", hostile, hostile.to_owned(), None::<&str>, 7_u32);
        assert_eq!(html.into_string(), format!("<b title=\"{text}\">{text}</b>7"));
    }

    #[test]
    fn html_is_filled_in_as_it_is() {
        let inner = html!("<i>{}</i>", "<");
        assert_eq!(html!("<b>{}</b>", inner).into_string(), "<b><i>&lt;</i></b>");
        assert_eq!(["a", "b"].iter().map(|text| html!("{}", text)).collect::<Html>().into_string(), "ab");
    }

    #[test]
    #[should_panic(expected = "as many places")]
    fn an_argument_without_a_place_is_a_mistake() {
        let _ = html!("<b></b>", "x");
    }

    #[test]
    fn a_segment_holds_nothing_that_ends_it() {
        assert_eq!(encoded("a b/c?d#e%ä~1[2]"), "a%20b%2Fc%3Fd%23e%25%C3%A4~1%5B2%5D");
    }
}
