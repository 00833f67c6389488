//! JSON that is given on the command line: as text, as `@FILE`, or as `-` for standard input.

use crate::failure::Failure;
use orbit_sdk::Value;
use std::io::Read;

/// Reads what is given with this option; null where nothing is.
pub fn read(option: &str, given: Option<&str>) -> Result<Value, Failure> {
    let (text, source) = match given {
        None => return Ok(Value::Null),
        Some("-") => {
            let mut text = String::new();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Failure::usage(format!("standard input cannot be read: {error}")))?;
            (text, "standard input".to_owned())
        }
        Some(given) => match given.strip_prefix('@') {
            Some(file) => {
                let text = std::fs::read_to_string(file);
                (text.map_err(|error| Failure::usage(format!("{file} cannot be read: {error}")))?, file.to_owned())
            }
            None => (given.to_owned(), option.to_owned()),
        },
    };
    // As strictly as the server: what it would refuse is not changed on the way there.
    orbit_io::http::parse_json(text.as_bytes()).map_err(|error| {
        let why = error.message.strip_prefix("the body is not valid JSON: ").unwrap_or(&error.message);
        Failure::usage(format!("{source} is not valid JSON: {why}"))
            .hint("write JSON such as '{\"order_id\": \"o-1\"}', @FILE to read a file, or - for standard input")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_sdk::json;

    #[test]
    fn text_and_files_are_read_and_nothing_is_null() {
        assert_eq!(read("--input", None), Ok(Value::Null));
        assert_eq!(read("--input", Some(r#"{"a": 1}"#)), Ok(json!({"a": 1})));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("input.json");
        std::fs::write(&file, "[1]").unwrap();
        assert_eq!(read("--input", Some(&format!("@{}", file.display()))), Ok(json!([1])));
    }

    #[test]
    fn what_is_no_json_is_refused_with_what_would_be_right() {
        let failure = read("--input", Some("order_id=1")).unwrap_err();
        assert_eq!(failure.exit, 2);
        assert!(failure.message.starts_with("--input is not valid JSON") && failure.hint.unwrap().contains("@FILE"));
        assert_eq!(failure.message.matches("not valid JSON").count(), 1, "{}", failure.message);
        for (given, said) in [
            (r#"{"a": 123456789012345678901234567890}"#, "does not fit 64 bits"),
            (r#"{"a": 1, "a": 2}"#, "stands twice"),
        ] {
            let failure = read("--input", Some(given)).unwrap_err();
            assert!(failure.message.contains(said), "{failure:?}");
        }
        assert!(read("--input", Some("@/no/such/file")).unwrap_err().message.contains("cannot be read"));
    }
}
