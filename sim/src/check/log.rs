//! No line of level ERROR that no injected fault explains (design, 11.3).

use super::{Checked, ensure};
use orbit_core::node::LogEvent;
use orbit_core::node::log::Level;

const CHECK: &str = "log";

/// A line that a server writes. `usurped`: another server has taken its place, by a fault.
pub fn on_line(line: &LogEvent, usurped: bool) -> Checked {
    let explained = line.level() != Level::Error || (usurped && matches!(line, LogEvent::FenceLost { .. }));
    ensure!(explained, CHECK, "a server wrote the error {line:?}, which no fault explains");
    Ok(())
}
