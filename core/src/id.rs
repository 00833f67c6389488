//! Identifiers, numbers and names: one type each, so that none can stand for another.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use uuid::Uuid;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Arc<str>);
        impl $name {
            /// Wraps text that was checked where it came in.
            pub fn new(text: impl Into<Arc<str>>) -> Self { Self(text.into()) }
            /// The text.
            pub fn as_str(&self) -> &str { &self.0 }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Debug::fmt(&self.0, f) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { f.write_str(&self.0) }
        }
        impl From<&str> for $name {
            fn from(text: &str) -> Self { Self(text.into()) }
        }
        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str { &self.0 }
        }
    };
}

macro_rules! uuid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
    };
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($repr:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
        #[serde(transparent)]
        pub struct $name(pub $repr);
        impl $name {
            /// The next one.
            #[must_use]
            pub fn next(self) -> Self { Self(self.0 + 1) }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Display::fmt(&self.0, f) }
        }
    };
}

name! {
    /// The id of an execution: 1 to 255 bytes of `[A-Za-z0-9._:@+-]` where a client chose it; ids of children also
    /// contain `~`, which clients cannot use (interfaces, "HTTP").
    ExecutionId
}
name! {
    /// The name of a workflow, as its definition gives it.
    WorkflowName
}
name! {
    /// The version of a workflow definition. Immutable once deployed.
    Version
}
name! {
    /// `sha256:<hex>` over the semantic content of a definition.
    DefinitionHash
}
name! {
    /// `sha256:<hex>` of the input that an execution was started with.
    InputHash
}
name! {
    /// The id of a step within its definition.
    StepId
}
name! {
    /// What a history calls a piece of work: `step`, `step[i]`, `compensate:<unit>`, `<handler>/<step>`.
    UnitKey
}
name! {
    /// The name of a signal or an update, as a definition declares it.
    SignalName
}
name! {
    /// The name of a query, as a definition declares it.
    QueryName
}
name! {
    /// What a history calls a run of a handler: `on_failure`, `on_cancel`, `on_timeout`, `on_event:<signal>@<seq>`.
    HandlerKey
}
name! {
    /// The name of a worker task, such as `payments.charge`.
    TaskName
}
name! {
    /// The version of a task's contract. A worker must announce the same.
    ContractVersion
}
name! {
    /// The name that a worker gives itself.
    WorkerId
}
name! {
    /// The name of a server; at most 48 bytes.
    NodeId
}
name! {
    /// The key of a row in `orbit_tasks`: derived from execution, run and the sequence of its `StepScheduled`.
    TaskId
}

uuid! {
    /// A worker session, drawn when the worker registers.
    SessionId
}
uuid! {
    /// The id of a group of an append, drawn before it is sent: what tells "already mine" from "somebody else's"
    /// when an outcome was unknown (protocols, 4).
    GroupId
}
uuid! {
    /// One start of a server process. A term or epoch is held by an incarnation (design, section 5, "Identity").
    Incarnation
}
uuid! {
    /// The random id of a database, drawn when its tables were made. Idempotency keys begin with it.
    ClusterId
}
uuid! {
    /// The id of a claim, a deployment or another call that may have to be repeated (protocols, 4).
    CallKey
}

number! {
    /// The position of an event in the history of one run; the first is 1.
    Seq(u64)
}
number! {
    /// The number of leaderships of a database so far: raised whenever a server becomes the one that writes.
    Term(u64)
}
number! {
    /// The number of owners that an execution tree has had.
    Epoch(u64)
}
number! {
    /// The run of an execution: 1, and one more at each continue-as-new.
    Run(u32)
}

/// Why a text is no execution id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Too short or too long.
    #[error("an execution id has 1 to 255 bytes; this one has {0}")]
    Length(usize),
    /// A character that is not allowed.
    #[error("an execution id holds only the characters A-Z a-z 0-9 . _ : @ + - ; this one holds {0:?}")]
    Character(char),
}

impl ExecutionId {
    /// Checks an id that a client chose.
    pub fn from_client(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() || text.len() > 255 {
            return Err(InvalidId::Length(text.len()));
        }
        match text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._:@+-".contains(*c))) {
            Some(c) => Err(InvalidId::Character(c)),
            None => Ok(Self::new(text)),
        }
    }
}

/// The name of one delivery of one attempt: `<execution id>/<uuid>`, so that any server can tell whose result it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The execution that waits for the result.
    pub execution: ExecutionId,
    /// Drawn for this delivery.
    pub id: Uuid,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.execution, self.id)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Why a text is no task token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a task token has the form <execution id>/<uuid>")]
pub struct InvalidToken;

impl FromStr for Token {
    type Err = InvalidToken;
    fn from_str(text: &str) -> Result<Self, InvalidToken> {
        let (execution, id) = text.rsplit_once('/').ok_or(InvalidToken)?;
        if execution.is_empty() {
            return Err(InvalidToken);
        }
        // Only the hyphenated form: the same token has one spelling.
        if id.len() != 36 {
            return Err(InvalidToken);
        }
        Ok(Token { execution: ExecutionId::new(execution), id: Uuid::try_parse(id).map_err(|_| InvalidToken)? })
    }
}

impl Serialize for Token {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(d)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_id_holds_only_the_characters_that_clients_may_use() {
        assert!(ExecutionId::from_client("order-1.A_b:c@d+e").is_ok());
        assert_eq!(ExecutionId::from_client(""), Err(InvalidId::Length(0)));
        assert!(ExecutionId::from_client(&"x".repeat(255)).is_ok());
        assert_eq!(ExecutionId::from_client(&"x".repeat(256)), Err(InvalidId::Length(256)));
        for bad in ["a~b", "a/b", "a b", "é", "a\0"] {
            assert!(matches!(ExecutionId::from_client(bad), Err(InvalidId::Character(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_token_is_read_back_from_its_own_text() {
        let token = Token { execution: "a~b:c".into(), id: Uuid::from_u128(7) };
        assert_eq!(token.to_string().parse(), Ok(token));
        for bad in ["", "x", "/00000000-0000-0000-0000-000000000007", "x/7", "x/00000000000000000000000000000007"] {
            assert_eq!(bad.parse::<Token>(), Err(InvalidToken), "{bad:?}");
        }
    }
}
