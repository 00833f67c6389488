//! The options of a server that is one of several.

use super::values::Seconds;
use crate::database::Database;
use crate::failure::Failure;
use clap::{Args, ValueEnum};
use serde::Deserialize;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

/// How short and how long a lease may last.
const LEASE_TTL: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);

/// As far as they were given.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
pub struct ClusterSettings {
    /// Take part in a cluster: several servers share one PostgreSQL, one of them leads, and the others take over
    /// [default: alone].
    #[arg(long, env = "ORBIT_CLUSTER", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub cluster: Option<bool>,
    /// How the servers share the work; in this version, one leads and the others stand by [default: standby].
    #[arg(long, env = "ORBIT_CLUSTER_MODE", value_enum)]
    pub cluster_mode: Option<ClusterMode>,
    /// The address that the others hand out for this server while it leads [default: that of --addr, unless it is a
    /// wildcard].
    #[arg(long, env = "ORBIT_ADVERTISE_ADDR", value_name = "URL")]
    pub advertise_addr: Option<String>,
    /// How the leader is elected; all servers of a database alike [default: lock].
    #[arg(long, env = "ORBIT_ELECTION", value_enum)]
    pub election: Option<Election>,
    /// With --election lease: how long the lease lasts when it is not renewed; from 1 to 600 [default: 15].
    #[arg(long, env = "ORBIT_LEASE_TTL", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub lease_ttl: Option<Seconds>,
    /// What a leader does that leads no more [default: step-down].
    #[arg(long, env = "ORBIT_ON_LOST_LEASE", value_enum)]
    pub on_lost_lease: Option<OnLostLease>,
    /// With --election lock: a leader serves only while its last good check is younger than this [default: 3].
    #[arg(long, env = "ORBIT_LEADER_VALIDITY", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub leader_validity: Option<Seconds>,
    /// With --election lock: PostgreSQL ends the session that holds the lock when it is silent for so long [default: 5].
    #[arg(long, env = "ORBIT_ELECTION_SESSION_TIMEOUT", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub election_session_timeout: Option<Seconds>,
}

/// How servers share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterMode {
    /// One leads, the others take over.
    Standby,
    /// All are active.
    #[value(hide = true)]
    Shared,
}

/// How a leader is elected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Election {
    /// By a lock that its session with PostgreSQL holds: another leads as soon as that session ends.
    #[default]
    Lock,
    /// By a row with a time to live, which works behind a pooler in transaction mode.
    Lease,
}

/// What a leader does that leads no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnLostLease {
    /// It drops what is in memory and stands by.
    #[default]
    StepDown,
    /// It ends with status 1.
    Exit,
}

/// What a server of a cluster is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterOptions {
    /// None where only a wildcard is served, and no other was given.
    pub advertise_addr: Option<String>,
    pub election: Election,
    pub lease_ttl: Duration,
    pub on_lost_lease: OnLostLease,
    pub leader_validity: Duration,
    pub election_session_timeout: Duration,
}

impl ClusterSettings {
    pub(super) fn or(self, other: ClusterSettings) -> ClusterSettings {
        ClusterSettings {
            cluster: self.cluster.or(other.cluster),
            cluster_mode: self.cluster_mode.or(other.cluster_mode),
            advertise_addr: self.advertise_addr.or(other.advertise_addr),
            election: self.election.or(other.election),
            lease_ttl: self.lease_ttl.or(other.lease_ttl),
            on_lost_lease: self.on_lost_lease.or(other.on_lost_lease),
            leader_validity: self.leader_validity.or(other.leader_validity),
            election_session_timeout: self.election_session_timeout.or(other.election_session_timeout),
        }
    }

    /// The first of them that was given beside `--cluster`, by the name that is typed.
    fn given(&self) -> Option<&'static str> {
        [
            (self.cluster_mode.is_some(), "--cluster-mode"),
            (self.advertise_addr.is_some(), "--advertise-addr"),
            (self.election.is_some(), "--election"),
            (self.lease_ttl.is_some(), "--lease-ttl"),
            (self.on_lost_lease.is_some(), "--on-lost-lease"),
            (self.leader_validity.is_some(), "--leader-validity"),
            (self.election_session_timeout.is_some(), "--election-session-timeout"),
        ]
        .into_iter()
        .find_map(|(given, option)| given.then_some(option))
    }

    /// An option that was given and means nothing in this election, and the one that it goes with.
    fn misfit(&self, election: Election) -> Option<(&'static str, &'static str)> {
        match election {
            Election::Lock => self.lease_ttl.map(|_| ("--lease-ttl", "lease")),
            Election::Lease => None
                .or(self.leader_validity.map(|_| ("--leader-validity", "lock")))
                .or(self.election_session_timeout.map(|_| ("--election-session-timeout", "lock"))),
        }
    }

    /// Checks them; none where the server is alone.
    pub(super) fn options(
        self,
        db: &Database,
        addr: SocketAddr,
        check_interval: Duration,
    ) -> Result<Option<ClusterOptions>, Failure> {
        if self.cluster != Some(true) {
            return match self.given() {
                None => Ok(None),
                Some(option) => Err(Failure::usage(format!("{option} requires --cluster"))),
            };
        }
        if !matches!(db, Database::Postgres(..)) {
            return Err(Failure::usage(
                "--cluster requires a PostgreSQL database (--db postgres://...): the servers share it for leader \
                 election and history",
            ));
        }
        if self.cluster_mode == Some(ClusterMode::Shared) {
            return Err(Failure::usage("--cluster-mode shared is not in this version of Orbit")
                .hint("leave it out, or say standby"));
        }
        let election = self.election.unwrap_or_default();
        if let Some((option, goes_with)) = self.misfit(election) {
            return Err(Failure::usage(format!(
                "{option} goes with --election {goes_with}, and this server's leader is elected otherwise"
            ))
            .hint(match election {
                Election::Lock => "say --election lease as well, or leave it out",
                Election::Lease => "leave it out: by a lease, a leader serves for what is left of --lease-ttl",
            }));
        }
        let lease_ttl = self.lease_ttl.map_or(Duration::from_secs(15), |given| given.0);
        if !LEASE_TTL.contains(&lease_ttl) {
            return Err(Failure::usage(format!(
                "--lease-ttl is {} s; give from {} to {} s: it is how long nobody leads after the leader was killed, and \
                 how long a leader goes on that cannot renew it",
                lease_ttl.as_secs_f64(),
                LEASE_TTL.start().as_secs(),
                LEASE_TTL.end().as_secs()
            )));
        }
        let validity = self.leader_validity.map_or(Duration::from_secs(3), |given| given.0);
        if election == Election::Lock && validity < check_interval * 2 {
            return Err(Failure::usage(format!(
                "--leader-validity is {} s, and a check is made every {} s (--check-interval); give at least twice that, \
                 or each late answer costs the lead",
                validity.as_secs_f64(),
                check_interval.as_secs_f64()
            )));
        }
        let session = self.election_session_timeout.map_or(Duration::from_secs(5), |given| given.0);
        if election == Election::Lock && session <= validity {
            return Err(Failure::usage(format!(
                "--election-session-timeout is {} s, and a leader may serve for {} s after its last good check \
                 (--leader-validity); give more than that, or a successor is elected while it still serves",
                session.as_secs_f64(),
                validity.as_secs_f64()
            )));
        }
        let own = (!addr.ip().is_unspecified()).then(|| format!("http://{addr}"));
        let advertise_addr = self.advertise_addr.map(check_url).transpose()?.or(own);
        Ok(Some(ClusterOptions {
            advertise_addr,
            election,
            lease_ttl,
            on_lost_lease: self.on_lost_lease.unwrap_or_default(),
            leader_validity: validity,
            election_session_timeout: session,
        }))
    }
}

/// An address that clients are sent to, and that goes into a header.
fn check_url(text: String) -> Result<String, Failure> {
    let wrong = |why: &str, right: &str| {
        Failure::usage(format!(
            "--advertise-addr is {text:?}: {why}; give the URL that clients reach this server at, such as {right}"
        ))
    };
    const SUCH_AS: &str = "http://orbit-0.internal:7233";
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("it holds what no URL does", SUCH_AS));
    }
    let Some(rest) = text.strip_prefix("http://").or(text.strip_prefix("https://")) else {
        let right = if text.contains("://") { SUCH_AS.into() } else { format!("http://{text}") };
        return Err(wrong("it begins with neither http:// nor https://", &right));
    };
    let authority = rest.trim_end_matches('/');
    if let Some(at) = authority.find(['/', '?', '#']) {
        let right = format!("{}{}", &text[..text.len() - rest.len()], &authority[..at]);
        return Err(wrong("it has a path, and clients add their own", &right));
    }
    if authority.contains('@') {
        return Err(wrong("it holds a user, which everybody would be told", SUCH_AS));
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err() || port.parse() == Ok(0_u16)) {
        return Err(wrong("its port is none", SUCH_AS));
    }
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if bare.is_empty() || (bare.contains(':') && !(host.starts_with('[') && host.ends_with(']'))) {
        return Err(wrong("it names no host", SUCH_AS));
    }
    if bare.parse().is_ok_and(|ip: IpAddr| ip.is_unspecified()) || bare.contains('*') {
        return Err(wrong("a wildcard is no address that can be reached", SUCH_AS));
    }
    Ok(text.trim_end_matches('/').to_owned())
}
