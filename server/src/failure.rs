//! How a command fails: what it says on stderr, and its exit code (interfaces, "Command line").

use orbit_sdk::Error;
use std::io::Write;
use std::process::ExitCode;

/// Why a command ends with an exit code other than 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Anything that has no code of its own: a refused request, a second server on one database, a lost fence.
    Failure = 1,
    /// The command line, the configuration or a file given to it is wrong. `clap` ends with the same.
    Usage = 2,
    /// The credentials are missing or wrong.
    Credentials = 3,
    /// What was asked for does not exist.
    NotFound = 4,
    /// The execution failed, was cancelled or terminated, or took longer than its `timeout`.
    EndedBadly = 5,
    /// The execution had not ended when the wait was over.
    WaitTimedOut = 6,
    /// No server could be reached.
    Unreachable = 7,
}

/// A failed command.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub exit: u8,
    /// One sentence.
    pub message: String,
    /// Further lines: the problems of a definition.
    pub lines: Vec<String>,
    /// What would help.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure with exit code 1.
    pub fn new(message: impl Into<String>) -> Failure {
        Failure { exit: Exit::Failure as u8, message: message.into(), lines: Vec::new(), hint: None }
    }

    /// A failure of the command line or of what it names.
    pub fn usage(message: impl Into<String>) -> Failure {
        Failure::new(message).exit(Exit::Usage)
    }

    /// With this exit code.
    #[must_use]
    pub fn exit(mut self, exit: Exit) -> Failure {
        self.exit = exit as u8;
        self
    }

    /// With what would help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// Tells it on stderr: `error: …`, its lines, `hint: …`.
    pub fn tell(&self) {
        let mut text = format!("error: {}\n", self.message);
        for line in &self.lines {
            text.push_str(&format!("  {line}\n"));
        }
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {hint}\n"));
        }
        // Nobody reads stderr: there is nobody to tell that to either.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Tells it, and gives the exit code.
    pub fn report(&self) -> ExitCode {
        self.tell();
        ExitCode::from(self.exit)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let exit = match &error {
            Error::Unreachable { .. } => Exit::Unreachable,
            Error::Servers(_) | Error::Setup(_) => Exit::Usage,
            Error::Api(refusal) => match refusal.status {
                401 | 403 => Exit::Credentials,
                404 => Exit::NotFound,
                _ => Exit::Failure,
            },
            _ => Exit::Failure,
        };
        let mut failure = Failure::new(error.to_string()).exit(exit);
        failure.hint = match error.code() {
            Some("UNAUTHORIZED") => Some("give the server's token with --token or ORBIT_TOKEN".into()),
            _ => error.hint().map(str::to_owned),
        };
        if let Some(problems) = error.api().and_then(|error| error.details.get("problems")?.as_array()) {
            failure.lines = problems.iter().map(problem_line).collect();
        }
        failure
    }
}

/// One of `details.problems`: where, and what.
fn problem_line(problem: &orbit_sdk::Value) -> String {
    let text = |field: &str| problem[field].as_str().unwrap_or_default();
    let place = match (problem["line"].as_u64(), text("path")) {
        (Some(line), path) => format!("line {line} ({path}): "),
        (None, "") => String::new(),
        (None, path) => format!("{path}: "),
    };
    format!("{place}{}", text("message"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_wrong_decides_the_exit_code() {
        assert_eq!(Failure::from(Error::Unreachable { tried: vec![] }).exit, 7);
        assert_eq!(Failure::from(Error::Setup("x".into())).exit, 2);
        assert_eq!(Failure::from(Error::Unexpected { server: "x".into(), message: "y".into() }).exit, 1);
    }

    #[test]
    fn a_problem_is_shown_with_its_place() {
        let with_line = orbit_sdk::json!({"path": "/steps/0/after", "line": 7, "message": "no step `x`"});
        assert_eq!(problem_line(&with_line), "line 7 (/steps/0/after): no step `x`");
        assert_eq!(problem_line(&orbit_sdk::json!({"path": "/a", "message": "m"})), "/a: m");
    }
}
