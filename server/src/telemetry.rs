//! Log lines on stderr, in the form of the reference or as JSON.

use crate::config::{LogFormat, LogSettings};
use crate::failure::Failure;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is logged unless something else is asked for.
pub const DEFAULT_LEVEL: &str = "info";

/// Whether the settings can be used, without using them.
pub fn check(settings: &LogSettings) -> Result<(), Failure> {
    filter(settings.log_level.as_deref().unwrap_or(DEFAULT_LEVEL)).map(drop)
}

/// Begins to write log lines, for the rest of the process.
pub fn begin(settings: &LogSettings) -> Result<(), Failure> {
    let level = settings.log_level.as_deref().unwrap_or(DEFAULT_LEVEL);
    let filter = filter(level)?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.log_format.unwrap_or_default() {
        LogFormat::Json => builder.json().flatten_event(true).init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            builder.with_ansi(colours).init();
        }
    }
    Ok(())
}

/// What is logged. A single word must be a level: as a directive it would name a target that nothing writes to.
fn filter(level: &str) -> Result<EnvFilter, Failure> {
    let refuse = |problem: &str| {
        Failure::usage(format!("--log-level {level:?} is not understood{problem}"))
            .hint("give error, warn, info, debug, trace, off, or directives such as info,orbit_runtime::engine=warn")
    };
    let is_word = level.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if level.is_empty() || (is_word && level.parse::<LevelFilter>().is_err()) {
        return Err(refuse(""));
    }
    EnvFilter::builder().parse(level).map_err(|error| refuse(&format!(": {error}")))
}

#[cfg(test)]
mod tests {
    use super::filter;

    #[test]
    fn a_level_or_directives_are_taken_and_anything_else_is_refused() {
        for good in ["info", "OFF", "warn,orbit_runtime::engine=debug"] {
            assert!(filter(good).is_ok(), "{good}");
        }
        for bad in ["", "inof", "info,a=loud"] {
            assert!(filter(bad).unwrap_err().hint.unwrap().contains("directives such as"), "{bad}");
        }
    }
}
