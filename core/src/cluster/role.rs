//! How a server takes part: alone, or as one of several of which one leads (design, section 8).

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// How the servers on one database share the work. The database records it, and servers of another mode are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// One server, without `--cluster`.
    Single,
    /// One leads, the others wait.
    Standby,
    /// All work, and each running execution has one owner.
    Shared,
}

impl Mode {
    /// As `orbit_cluster` has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Single => "single",
            Mode::Standby => "standby",
            Mode::Shared => "shared",
        }
    }
}

/// What a server is configured to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Alone on its database. Another server's election lock ends its start, and a lost fence ends it.
    Single,
    /// One of several. It waits to be elected, and steps down where it leads no more.
    Standby(Standby),
}

impl Role {
    pub fn mode(&self) -> Mode {
        match self {
            Role::Single => Mode::Single,
            Role::Standby(_) => Mode::Standby,
        }
    }

    /// How its leader is elected; one that is alone takes the lock.
    pub fn elected(&self) -> Elected {
        match self {
            Role::Single => Elected::Lock,
            Role::Standby(standby) => standby.election.recorded(),
        }
    }
}

/// A server of a standby cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standby {
    pub election: Election,
    /// A leader that was elected by lock serves only while its last good check is younger than this, counted from the sending
    /// of the check by its own monotonic clock (3 s by default).
    pub validity: Duration,
    /// How long one statement waits in line for the election lock (10 s by default, and at most): a statement that waits
    /// holds the database's vacuum back (protocols, 12).
    pub slice: Duration,
    pub on_lost_lease: OnLostLease,
    /// A leader of whose appends none has gone through for so long gives the lead up, where the database takes other writes
    /// (10 s by default; protocols, 14).
    pub stuck_after: Duration,
}

/// How the leader of a standby cluster is elected. The database records it, and servers of another election are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Election {
    /// By an advisory lock that its session with PostgreSQL holds.
    Lock,
    /// By a row with a time to live (15 s by default), which is renewed every third of it.
    Lease { ttl: Duration },
}

impl Election {
    /// As a database records it.
    pub fn recorded(self) -> Elected {
        match self {
            Election::Lock => Elected::Lock,
            Election::Lease { .. } => Elected::Lease,
        }
    }

    /// How often the lease is renewed by its holder, and asked for by those who wait; none where there is none.
    pub fn third(self) -> Option<Duration> {
        match self {
            Election::Lock => None,
            Election::Lease { ttl } => Some(ttl / 3),
        }
    }
}

/// How a database records that its leader is elected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Elected {
    Lock,
    Lease,
}

impl Elected {
    /// As `orbit_cluster` has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Elected::Lock => "lock",
            Elected::Lease => "lease",
        }
    }
}

impl Default for Standby {
    fn default() -> Standby {
        Standby {
            election: Election::Lock,
            validity: Duration::from_secs(3),
            slice: Duration::from_secs(10),
            on_lost_lease: OnLostLease::StepDown,
            stuck_after: Duration::from_secs(10),
        }
    }
}

/// What a server that takes over does with executions of which an attempt is out: with its worker, or lost with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// It goes on with them.
    #[default]
    Auto,
    /// It holds them, until somebody recovers each.
    Hold,
}

/// What a leader does that leads no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostLease {
    /// It drops what is in memory and waits in line again.
    StepDown,
    /// It ends with status 1, for a supervisor to start it anew.
    Exit,
}
