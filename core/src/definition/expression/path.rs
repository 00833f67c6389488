//! Following a path (`input.order.lines[0]`) in the JSON itself, and saying where one leads nowhere.

use super::scan::{Access, Path, Root};
use super::{Scope, shortened};
use crate::definition::nearest::did_you_mean;
use serde_json::Value;
use std::borrow::Cow;
use std::fmt;

/// A path that leads nowhere.
pub(super) struct Missing<'p> {
    /// The path up to the value that has no such field.
    up_to: String,
    access: Option<&'p Access>,
    found: Option<Value>,
}

impl Path {
    /// The value at the end of the path. A field of null is null.
    pub(super) fn follow<'v>(&self, scope: &Scope<'v>) -> Result<Cow<'v, Value>, Missing<'_>> {
        let (mut value, mut up_to) = match &self.root {
            Root::Input => (Cow::Borrowed(scope.input.as_ref()), "input".to_owned()),
            Root::Output(step) => {
                let up_to = format!("steps.{step}.output");
                match scope.output(step) {
                    Some(output) => (Cow::Borrowed(output.as_ref()), up_to),
                    None if scope.local.absent_is_null => return Ok(Cow::Owned(Value::Null)),
                    None => return Err(Missing { up_to, access: None, found: None }),
                }
            }
            Root::Execution => {
                let fields = serde_json::json!({
                    "id": scope.execution, "workflow": scope.workflow, "version": scope.version, "run": scope.run,
                    "continue_suggested": scope.local.continue_suggested,
                });
                (Cow::Owned(fields), "execution".to_owned())
            }
            Root::Local(name) => {
                let up_to = name.as_str().to_owned();
                match scope.local.get(*name) {
                    Some(value) => (value, up_to),
                    None => return Err(Missing { up_to, access: None, found: None }),
                }
            }
        };
        for access in &self.accesses {
            if value.is_null() {
                return Ok(Cow::Owned(Value::Null));
            }
            let next = match value {
                Cow::Borrowed(value) => access.of(value),
                Cow::Owned(ref value) => access.of(value).map(|v| Cow::Owned(v.into_owned())),
            };
            let Some(next) = next else {
                return Err(Missing { up_to, access: Some(access), found: Some(value.into_owned()) });
            };
            value = next;
            match access {
                Access::Key(key) => up_to.push_str(&format!(".{key}")),
                Access::Index(index) => up_to.push_str(&format!("[{index}]")),
            }
        }
        Ok(value)
    }
}

impl Access {
    /// The field or item; of a text its character, as the engine has it.
    pub(in crate::definition) fn of<'v>(&self, value: &'v Value) -> Option<Cow<'v, Value>> {
        match (self, value) {
            (Access::Key(key), Value::Object(fields)) => fields.get(key).map(Cow::Borrowed),
            (Access::Index(index), Value::Array(items)) => {
                items.get(from_start(*index, items.len())?).map(Cow::Borrowed)
            }
            (Access::Index(index), Value::String(text)) => {
                let character = text.chars().nth(from_start(*index, text.chars().count())?)?;
                Some(Cow::Owned(Value::String(character.into())))
            }
            _ => None,
        }
    }
}

/// The position that an index names; negative ones count from the end.
pub(in crate::definition) fn from_start(index: i64, length: usize) -> Option<usize> {
    let distance = usize::try_from(index.unsigned_abs()).ok()?;
    if index < 0 { length.checked_sub(distance) } else { Some(distance) }
}

impl fmt::Display for Missing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let up_to = &self.up_to;
        match (self.access, &self.found) {
            (Some(Access::Key(key)), Some(Value::Object(fields))) => {
                let hint = did_you_mean(key, fields.keys().map(String::as_str), || {
                    let some: Vec<_> = fields.keys().take(8).map(|k| format!("`{}`", shortened(k))).collect();
                    match (some.is_empty(), fields.len() > some.len()) {
                        (true, _) => "it has none".to_owned(),
                        (false, false) => format!("it has {}", some.join(", ")),
                        (false, true) => format!("it has {} and others", some.join(", ")),
                    }
                });
                write!(f, "`{up_to}` has no field `{key}`; {hint}")
            }
            (Some(Access::Index(index)), Some(Value::Array(items))) => {
                write!(f, "`{up_to}` has {} items, and so none at [{index}]", items.len())
            }
            (Some(Access::Key(key)), Some(found)) => {
                write!(f, "`{up_to}` is {}, which has no field `{key}`", kind(found))
            }
            (Some(Access::Index(index)), Some(found)) => {
                write!(f, "`{up_to}` is {}, which has no item [{index}]", kind(found))
            }
            _ if up_to.starts_with("steps.") => write!(f, "`{up_to}` is not there: the step has not ended"),
            _ => write!(f, "`{up_to}` is not there"),
        }
    }
}

/// A value's kind, with its article.
pub(in crate::definition) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
