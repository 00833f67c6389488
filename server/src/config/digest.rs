//! A digest of the settings that the servers of one cluster have in common: whichever is elected applies its own.

use super::Options;
use orbit_sdk::json;
use sha2::{Digest, Sha256};
use std::fmt::Write;

impl Options {
    /// The digest: eight hexadecimal digits. What is each server's own (names, addresses, the log) does not count, and of
    /// the token only that there is one, so that nobody can guess it from here.
    pub fn digest(&self) -> String {
        let cluster = self.cluster.as_ref().map(|cluster| {
            json!({
                "election": format!("{:?}", cluster.election),
                "lease_ttl": cluster.lease_ttl.as_millis() as u64,
                "validity": cluster.leader_validity.as_millis() as u64,
                "session": cluster.election_session_timeout.as_millis() as u64,
                "on_lost_lease": format!("{:?}", cluster.on_lost_lease),
            })
        });
        let settings = json!({
            "token": self.token.is_some(),
            "session_timeout": self.session_timeout.as_millis() as u64,
            "heartbeat_interval": self.heartbeat_interval.as_millis() as u64,
            "check_interval": self.check_interval.as_millis() as u64,
            "recovery": format!("{:?}", self.recovery),
            "cluster": cluster,
            "limits": [
                self.max_active_executions, self.max_history_events, self.max_fan_out, self.max_pending_signals,
                self.max_children, self.max_child_depth, self.max_payload_bytes, self.body_limit,
                self.max_connections, self.max_worker_sessions,
            ],
        });
        let mut digest = String::new();
        for byte in &Sha256::digest(settings.to_string().as_bytes())[..4] {
            write!(digest, "{byte:02x}").expect("writing to a text does not fail");
        }
        digest
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Options, Settings};

    fn digest(text: &str) -> String {
        let settings = Settings::parse(text).expect("each key is known");
        Options::from_settings(settings).expect("it is right").digest()
    }

    #[test]
    fn what_servers_have_in_common_makes_the_digest_and_what_is_their_own_does_not() {
        let usual = digest("");
        assert_eq!(usual.len(), 8);
        assert_eq!(digest("node_id = 'b'\naddr = '127.0.0.1:1'\nlog_level = 'debug'"), usual);
        assert_ne!(digest("session_timeout = 31"), usual);
        assert_ne!(digest("max_fan_out = 9"), usual);
        assert_ne!(digest("recovery = 'hold'"), usual);
        assert_ne!(digest("token = 'a'"), usual);
        assert_eq!(digest("token = 'a'"), digest("token = 'b'"));
        let cluster = |more: &str| digest(&format!("cluster = true\ndb = 'postgres://orbit@db/orbit'\n{more}"));
        assert_ne!(cluster(""), cluster("election = 'lease'"));
        assert_ne!(cluster("election = 'lease'"), cluster("election = 'lease'\nlease_ttl = 14"));
        assert_eq!(cluster("advertise_addr = 'http://a:7233'"), cluster(""));
    }
}
