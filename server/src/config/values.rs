//! Values of options that are more than a text or a number.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::time::Duration;

/// Reads a bearer token. An empty one is most often a variable that was not set where the command was written.
pub fn parse_token(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("an empty text is no token; leave --token and ORBIT_TOKEN out, or give one".into());
    }
    Ok(text.into())
}

/// Reads an address to serve: an IP address or the name of a host, and a port.
pub fn parse_addr(text: &str) -> Result<SocketAddr, String> {
    const RIGHT: &str = "write IP:PORT or HOST:PORT, such as 127.0.0.1:7233 or localhost:7233";
    if let Ok(addr) = text.parse() {
        return Ok(addr);
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Err(format!("the port is missing; write {}", SocketAddr::from((ip, 7233))));
    }
    let Some((host, port)) = text.rsplit_once(':').filter(|(host, _)| !host.is_empty()) else {
        return Err(match text.contains(':') || text.is_empty() {
            true => format!("the host is missing; {RIGHT}"),
            false => format!("the port is missing; write {text}:7233"),
        });
    };
    let Ok(port) = port.parse::<u16>() else {
        return Err(format!("{port:?} is no port, a number up to 65535; {RIGHT}"));
    };
    let unknown = |why: String| format!("{host:?} is no host that is known here{why}; {RIGHT}");
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|error| unknown(format!(" ({error})")))?.collect();
    // What clients try first where they are given `localhost`, too.
    let addr = found.iter().find(|addr| addr.is_ipv4()).or(found.first());
    addr.copied().ok_or_else(|| unknown(String::new()))
}

/// The same, as a file gives it.
pub(super) fn addr_of_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_addr(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A duration, written as a number of seconds: `30`, `0.5`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seconds(pub Duration);

impl Seconds {
    /// Reads a number of seconds.
    pub fn parse(text: &str) -> Result<Seconds, String> {
        let number = text.parse::<f64>().map_err(|_| "write a number of seconds, such as 30 or 0.5".to_owned())?;
        Seconds::of(number)
    }

    fn of(number: f64) -> Result<Seconds, String> {
        // A year is longer than anything that is waited for, and far from where durations overflow.
        if !(0.0..=31_536_000.0).contains(&number) {
            return Err(format!("{number:?} is no number of seconds between 0 and a year"));
        }
        Ok(Seconds(Duration::from_secs_f64(number)))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.as_secs_f64())
    }
}

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Seconds, D::Error> {
        Seconds::of(f64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_an_ip_or_a_host_with_a_port_and_what_is_missing_is_told() {
        assert_eq!(parse_addr("[::1]:80").unwrap().to_string(), "[::1]:80");
        let local = parse_addr("localhost:7233").unwrap();
        assert!(local.ip().is_loopback() && local.port() == 7233, "{local}");
        for (text, says) in [
            ("localhost", "write localhost:7233"),
            ("127.0.0.1", "write 127.0.0.1:7233"),
            ("::1", "write [::1]:7233"),
            (":7233", "the host is missing"),
            ("", "the host is missing"),
            ("localhost:http", "\"http\" is no port"),
            ("localhost:70000", "\"70000\" is no port"),
            ("no.such.host.invalid:1", "\"no.such.host.invalid\" is no host that is known here"),
        ] {
            let refused = parse_addr(text).unwrap_err();
            assert!(refused.contains(says) && refused.contains(":7233"), "{text:?}: {refused}");
        }
    }
}
