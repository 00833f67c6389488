//! No line of level ERROR that no injected fault explains (design, 11.3).

use super::{Checked, ensure};
use orbit_core::node::LogEvent;
use orbit_core::node::log::Level;

const CHECK: &str = "log";

/// What was done to a server, and so what it may complain about.
#[derive(Clone, Copy, Debug, Default)]
pub struct Excuses {
    /// Another server took its place.
    pub usurped: bool,
    /// Another process was started under its name.
    pub twin: bool,
    /// It is of a release that does not know the tables as they are by now.
    pub older: bool,
    /// The operator has changed how leaders are elected.
    pub otherwise: bool,
    /// One of its calls on the database failed.
    pub database: bool,
    /// Something is broken, or was a short while ago.
    pub troubled: bool,
}

impl Excuses {
    /// Whether a fault explains this line.
    pub fn explain(self, line: &LogEvent) -> bool {
        match line {
            // A server that was replaced does not know what its successor deployed.
            LogEvent::FenceLost { .. } | LogEvent::Quarantined { .. } => self.usurped,
            LogEvent::Unservable { .. } => self.database || self.twin || self.older || self.otherwise,
            LogEvent::LeadershipLost { .. } | LogEvent::LeaseLost { .. } => self.troubled,
            _ => false,
        }
    }
}

/// A line that a server writes.
pub fn on_line(line: &LogEvent, excuses: Excuses) -> Checked {
    let explained = line.level() != Level::Error || excuses.explain(line);
    ensure!(explained, CHECK, "a server wrote the error {line:?}, which no fault explains");
    Ok(())
}
