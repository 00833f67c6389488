//! Paths and query strings: percent-encoding and parameters.

use super::fields::list_of;
use orbit_core::api::{ApiError, ErrorCode};
use orbit_core::definition::nearest;
use std::borrow::Cow;
use std::fmt;

/// The most segments that a path of the API has.
pub const MAX_SEGMENTS: usize = 5;

/// The segments of a path, as sent; `None` where it has more than any route, or does not begin with `/`.
pub fn segments<'a>(path: &'a str, room: &'a mut [&'a str; MAX_SEGMENTS]) -> Option<&'a [&'a str]> {
    let mut count = 0;
    for segment in path.strip_prefix('/')?.split('/') {
        *room.get_mut(count)? = segment;
        count += 1;
    }
    Some(&room[..count])
}

/// An INVALID_REQUEST about a part of the URL.
pub fn invalid(part: &str, name: &str, message: impl fmt::Display) -> ApiError {
    ApiError::new(ErrorCode::InvalidRequest, format!("`{name}` in the {part} {message}"))
        .with("in", part)
        .with("path", name)
}

/// Decodes a segment of a path.
pub fn segment<'a>(name: &str, text: &'a str) -> Result<Cow<'a, str>, ApiError> {
    decode(text, false).map_err(|bad| invalid("path", name, bad))
}

/// `%` without two hexadecimal digits behind it.
const BAD_ENCODING: &str = "is not percent-encoded: `%` is followed by two hexadecimal digits";
/// Bytes that are no text.
const NO_TEXT: &str = "is no text once it is decoded: the bytes that are percent-encoded have to be UTF-8";

fn decode(text: &str, plus_is_space: bool) -> Result<Cow<'_, str>, &'static str> {
    let special = |byte: &u8| *byte == b'%' || (plus_is_space && *byte == b'+');
    if !text.as_bytes().iter().any(special) {
        return Ok(Cow::Borrowed(text));
    }
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let mut digit = || bytes.next().and_then(hex).ok_or(BAD_ENCODING);
                digit()? << 4 | digit()?
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(decoded).map(Cow::Owned).map_err(|_| NO_TEXT)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

/// The parameters of a query string, taken one by one.
pub struct Query<'a> {
    parameters: Vec<(Cow<'a, str>, Cow<'a, str>)>,
}

impl<'a> Query<'a> {
    /// Reads a query string, as forms encode it (`+` is a space). Parameters that are not `known` are refused, and so
    /// are those that stand twice, except those of `several`.
    pub fn parse(query: Option<&'a str>, known: &[&str], several: &[&str]) -> Result<Query<'a>, ApiError> {
        let mut parameters: Vec<(Cow<'a, str>, Cow<'a, str>)> = Vec::new();
        for part in query.unwrap_or_default().split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let name = decode(name, true).map_err(|bad| invalid("query", name, bad))?;
            let value = decode(value, true).map_err(|bad| invalid("query", &name, bad))?;
            if !known.contains(&name.as_ref()) {
                let rest = match nearest(&name, known.iter().copied()) {
                    Some(near) => format!("; did you mean `{near}`?"),
                    None if known.is_empty() => ", and this route takes none".into(),
                    None => format!("; the parameters are {}", list_of(known)),
                };
                return Err(invalid("query", &name, format_args!("is no known parameter{rest}")));
            }
            if !several.contains(&name.as_ref()) && parameters.iter().any(|(taken, _)| *taken == name) {
                return Err(invalid("query", &name, "stands twice"));
            }
            parameters.push((name, value));
        }
        Ok(Query { parameters })
    }

    /// A parameter, taken out.
    pub fn take(&mut self, name: &str) -> Option<Cow<'a, str>> {
        let index = self.parameters.iter().position(|(taken, _)| taken == name)?;
        Some(self.parameters.remove(index).1)
    }

    /// A parameter that is a whole number from `min` to `max`.
    pub fn number(&mut self, name: &str, min: u64, max: u64) -> Result<Option<u64>, ApiError> {
        let Some(text) = self.take(name) else { return Ok(None) };
        // Digits alone: what `parse` also takes (a sign) is no number of ours.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse::<u64>() {
            Ok(number) if digits && (min..=max).contains(&number) => Ok(Some(number)),
            _ => {
                let shown: String = text.chars().take(40).collect();
                Err(invalid("query", name, format_args!("must be a whole number from {min} to {max}; it is {shown:?}")))
            }
        }
    }

    /// A parameter that is `true` or `false`.
    pub fn boolean(&mut self, name: &str) -> Result<Option<bool>, ApiError> {
        match self.take(name).as_deref() {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(other) => {
                let shown: String = other.chars().take(40).collect();
                Err(invalid("query", name, format_args!("must be `true` or `false`; it is {shown:?}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_split_as_sent() {
        let mut room = [""; MAX_SEGMENTS];
        assert_eq!(segments("/v1/executions/a%2Fb", &mut room).unwrap(), ["v1", "executions", "a%2Fb"]);
        let mut room = [""; MAX_SEGMENTS];
        assert_eq!(segments("/v1/", &mut room).unwrap(), ["v1", ""]);
        let mut room = [""; MAX_SEGMENTS];
        assert_eq!(segments("/1/2/3/4/5/6", &mut room), None);
        let mut room = [""; MAX_SEGMENTS];
        assert_eq!(segments("*", &mut room), None);
    }

    #[test]
    fn segments_are_decoded_and_a_plus_stays_a_plus() {
        assert_eq!(segment("id", "a%7Eb+c").unwrap(), "a~b+c");
        assert_eq!(segment("id", "%c3%A9").unwrap(), "é");
        for bad in ["%", "%4", "%zz", "a%+1"] {
            assert!(segment("id", bad).unwrap_err().message.contains("two hexadecimal digits"), "{bad}");
        }
        for bad in ["%ff", "%C3", "a%ed%a0%80"] {
            assert!(segment("id", bad).unwrap_err().message.contains("have to be UTF-8"), "{bad}");
        }
    }

    #[test]
    fn parameters_are_decoded_as_forms_encode_them() {
        let mut query =
            Query::parse(Some("label=a%3Db+c&limit=5&&label=x=y"), &["label", "limit"], &["label"]).unwrap();
        assert_eq!(query.take("label").unwrap(), "a=b c");
        assert_eq!(query.take("label").unwrap(), "x=y");
        assert_eq!(query.take("label"), None);
        assert_eq!(query.number("limit", 1, 10).unwrap(), Some(5));
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let refusal = |text| Query::parse(Some(text), &["limit", "cursor"], &[]).err().unwrap();
        assert!(refusal("limt=5").message.ends_with("did you mean `limit`?"));
        assert!(refusal("zebra=5").message.ends_with("the parameters are `limit`, `cursor`"));
        assert!(refusal("limit=5&limit=6").message.ends_with("stands twice"));
        assert_eq!(refusal("limit=%zz").details["path"], "limit");
    }

    #[test]
    fn a_parameter_that_says_yes_or_no_is_true_or_false() {
        let strict = |text| Query::parse(Some(text), &["strict"], &[]).unwrap().boolean("strict");
        assert_eq!(strict("strict=true"), Ok(Some(true)));
        assert_eq!(strict("strict=false"), Ok(Some(false)));
        assert_eq!(strict(""), Ok(None));
        for bad in ["strict", "strict=", "strict=1", "strict=True"] {
            assert!(strict(bad).unwrap_err().message.contains("must be `true` or `false`"), "{bad}");
        }
    }

    #[test]
    fn numbers_of_a_query_are_digits_within_bounds() {
        for bad in ["", "0", "11", "+5", "-1", "5.0", "99999999999999999999"] {
            let text = format!("limit={}", bad.replace('+', "%2B"));
            let mut query = Query::parse(Some(&text), &["limit"], &[]).unwrap();
            assert!(query.number("limit", 1, 10).unwrap_err().message.contains("from 1 to 10"), "{bad}");
        }
    }
}
