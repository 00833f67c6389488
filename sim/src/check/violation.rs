//! What a check says when something is wrong.

use crate::report::FailureKind;

/// Something that must never have happened, or that should have happened by now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub kind: FailureKind,
    /// The check that found it.
    pub check: &'static str,
    pub message: String,
}

impl Violation {
    /// Something that must never happen.
    pub fn safety(check: &'static str, message: impl Into<String>) -> Violation {
        Violation { kind: FailureKind::Safety, check, message: message.into() }
    }

    /// Something that did not happen within its bound.
    pub fn liveness(check: &'static str, message: impl Into<String>) -> Violation {
        Violation { kind: FailureKind::Liveness, check, message: message.into() }
    }
}

/// What a check answers.
pub type Checked = Result<(), Violation>;

/// Fails with a message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $check:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::check::Violation::safety($check, format!($($message)+)));
        }
    };
}
pub(crate) use ensure;
