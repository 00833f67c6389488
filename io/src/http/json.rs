//! JSON, strictly: what `serde_json` would fold away without a word is refused here.

use orbit_core::api::{ApiError, ErrorCode};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use std::cell::Cell;
use std::fmt;

/// How deep a body may nest: what `serde_json` reads.
pub const MAX_DEPTH: usize = 127;

/// How deep a payload may nest: as deep as what expressions give.
pub const MAX_PAYLOAD_DEPTH: usize = orbit_core::definition::MAX_DEPTH;

// Histories and assignments wrap payloads in levels of their own (`events[].error.details` has the most), and whatever
// is accepted must be readable there.
const _: () = assert!(MAX_PAYLOAD_DEPTH + 4 <= MAX_DEPTH);

/// Parses a body, or a value that is to become part of one. Keys that stand twice, bytes that are not UTF-8, and anything after the value are errors, and so are
/// whole numbers that would be rounded because no 64 bits hold them.
pub fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(ApiError::new(ErrorCode::InvalidRequest, "the body is empty; send a JSON object"));
    }
    if bytes.starts_with(b"\xEF\xBB\xBF") {
        return Err(ApiError::new(
            ErrorCode::InvalidRequest,
            "the body begins with a byte order mark; send UTF-8 without one",
        ));
    }
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let large = Cell::new(false);
    let value = Strict { large: &large }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value))
        .map_err(explain)?;
    // Only the text tells a whole number from `1e30`, and hardly any body has either.
    match large.get().then(|| rounded(bytes)).flatten() {
        Some(number) => {
            let shown: String = number.chars().take(80).collect();
            let message = format!("the number {shown} does not fit 64 bits; send it as a string");
            Err(ApiError::new(ErrorCode::InvalidRequest, message))
        }
        None => Ok(value),
    }
}

/// The first whole number of a valid JSON text that no 64 bits hold.
fn rounded(text: &[u8]) -> Option<&str> {
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let begin = at;
        at += 1;
        match byte {
            b'"' => {
                while text.get(at).is_some_and(|byte| *byte != b'"') {
                    at += if text[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            }
            b'-' | b'0'..=b'9' => {
                while text.get(at).is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')) {
                    at += 1;
                }
                let number = std::str::from_utf8(&text[begin..at]).expect("digits and signs");
                let whole = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
                if whole && number.parse::<i64>().is_err() && number.parse::<u64>().is_err() {
                    return Some(number);
                }
            }
            _ => {}
        }
    }
    None
}

fn explain(error: serde_json::Error) -> ApiError {
    let text = error.to_string();
    let message = if text.starts_with("recursion limit exceeded") {
        format!("the body nests deeper than {MAX_DEPTH} levels")
    } else if text.contains("surrogate") || text.contains("unexpected end of hex escape") {
        let place = format!("line {} column {}", error.line(), error.column());
        format!("the body is not valid JSON: half of a surrogate pair (\\ud800 to \\udfff come in twos) at {place}")
    } else {
        format!("the body is not valid JSON: {text}")
    };
    ApiError::new(ErrorCode::InvalidRequest, message).with("line", error.line()).with("column", error.column())
}

/// How deep a value nests: 0 for a scalar, 1 for a list of scalars.
pub fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The length of a value as JSON text, without making the text.
pub fn length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    serde_json::to_writer(&mut count, value).expect("a JSON value has string keys and counting cannot fail");
    count.0
}

#[derive(Clone, Copy)]
struct Strict<'a> {
    /// Set where a number is as large as only whole numbers beyond 64 bits are, or floating point.
    large: &'a Cell<bool>,
}

impl<'de> DeserializeSeed<'de> for Strict<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        // 2 to the power of 63: below it a whole number is not read as floating point.
        if value.abs() >= 9_223_372_036_854_775_808.0 {
            self.large.set(true);
        }
        Ok(value.into())
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(self)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            match fields.entry(key) {
                Entry::Occupied(taken) => {
                    return Err(de::Error::custom(format_args!("the key {:?} stands twice", taken.key())));
                }
                Entry::Vacant(free) => {
                    free.insert(map.next_value_seed(self)?);
                }
            }
        }
        Ok(Value::Object(fields))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(text: &[u8]) -> String {
        parse(text).expect_err("the text is invalid").message
    }

    #[test]
    fn a_value_is_read_as_serde_json_reads_it() {
        let text = r#" {"a":[1,-2,3.5,18446744073709551615,"é\n",true,null,{}],"b":{"c":1e3}} "#;
        assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_place() {
        let error = parse(br#"{"a":1,"b":{"x":1,"x":2}}"#).unwrap_err();
        assert_eq!(error.message, r#"the body is not valid JSON: the key "x" stands twice at line 1 column 21"#);
        assert_eq!(error.details["line"], 1);
    }

    #[test]
    fn what_is_no_json_is_refused_with_line_and_column() {
        assert!(refusal(b"{\"a\":\n1,}").contains("line 2 column 3"));
        assert!(refusal(b"{} {}").contains("trailing characters"));
        for half in [r#""\ud83e""#, r#""\ud83e x""#, r#""\ud83e\n""#, r#""\ud83e\u0041""#, r#""\udd80\ud83e""#] {
            assert!(refusal(half.as_bytes()).contains("half of a surrogate pair"), "{half}");
        }
        assert!(refusal(b"\"\xff\"").contains("invalid unicode"));
        assert!(refusal(b"1e999").contains("number out of range"));
        assert!(refusal(b" \n").contains("the body is empty"));
        assert!(refusal(b"\xEF\xBB\xBF{}").contains("byte order mark"));
    }

    #[test]
    fn whole_numbers_that_would_be_rounded_are_refused() {
        for bad in ["18446744073709551616", "-9223372036854775809", r#"{"a\"":["x",{"b":-99999999999999999999}]}"#] {
            assert!(refusal(bad.as_bytes()).contains("does not fit 64 bits; send it as a string"), "{bad}");
        }
        for good in [
            "18446744073709551615",
            "-9223372036854775808",
            "1e30",
            "123456789012345678901234.5",
            r#"["99999999999999999999", "\\", 1e300]"#,
        ] {
            assert_eq!(parse(good.as_bytes()).unwrap(), serde_json::from_str::<Value>(good).unwrap(), "{good}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |levels: usize| [vec![b'['; levels], vec![b']'; levels]].concat();
        assert_eq!(depth(&parse(&nested(MAX_DEPTH)).unwrap()), MAX_DEPTH);
        assert!(refusal(&nested(MAX_DEPTH + 1)).contains("deeper than 127 levels"));
        assert!(refusal(&vec![b'['; 1_000_000]).contains("deeper than 127 levels"));
    }

    #[test]
    fn the_length_is_that_of_the_text() {
        for value in [json!(null), json!({"a": [1, 2.5, "é\u{1}\""]}), json!("x".repeat(1000))] {
            assert_eq!(length(&value), value.to_string().len());
        }
    }
}
