//! Addresses of servers: `http://host:port`, several by comma.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The servers that a client or worker may talk to, in the order in which they are tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Servers(Vec<Address>);

/// One server.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// `host:port`, as it is dialled and named in the `host` header.
    authority: Arc<str>,
}

/// Why a text is no list of servers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidServers {
    /// Nothing in it.
    #[error("no server is named; give an address such as http://127.0.0.1:7233")]
    Empty,
    /// Encrypted connections are not built in yet.
    #[error(
        "{0}: https is not supported yet; use http:// within a trusted network, or a proxy on this host that adds TLS"
    )]
    Https(String),
    /// A host, but no `http://` before it.
    #[error("the server address {0:?} does not begin with http://; write http://{0}")]
    Scheme(String),
    /// Anything else.
    #[error("{0:?} is no server address; write http://HOST:PORT, several separated by commas")]
    Form(String),
}

impl Servers {
    /// How many there are; at least one.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// The `index`-th of them, counting round and round.
    pub(crate) fn at(&self, index: usize) -> &Address {
        &self.0[index % self.0.len()]
    }
}

impl FromStr for Servers {
    type Err = InvalidServers;

    fn from_str(text: &str) -> Result<Servers, InvalidServers> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        let addresses = parts.map(written_out).collect::<Result<Vec<_>, _>>()?;
        if addresses.is_empty() { Err(InvalidServers::Empty) } else { Ok(Servers(addresses)) }
    }
}

/// An address as people give it, which has to name its scheme. (A server that names the leader may leave it out.)
fn written_out(text: &str) -> Result<Address, InvalidServers> {
    let address = text.parse()?;
    if text.contains("://") { Ok(address) } else { Err(InvalidServers::Scheme(text.into())) }
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(Address::to_string).collect();
        f.write_str(&all.join(","))
    }
}

impl Address {
    /// `host:port`.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }
}

impl FromStr for Address {
    type Err = InvalidServers;

    fn from_str(text: &str) -> Result<Address, InvalidServers> {
        if text.starts_with("https://") {
            return Err(InvalidServers::Https(text.into()));
        }
        let form = || InvalidServers::Form(text.into());
        let rest = match text.split_once("://") {
            Some(("http", rest)) => rest,
            Some(_) => return Err(form()),
            None => text,
        };
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '@', '?', '#', ' ']) {
            return Err(form());
        }
        // The port follows the last colon, which in `[::1]` alone is part of the host.
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse::<u16>().map_err(|_| form())?),
            _ => (authority, 80),
        };
        let bracketed = host.starts_with('[') && host.ends_with(']');
        if host.is_empty() || port == 0 || (host.contains(':') && !bracketed) {
            return Err(form());
        }
        Ok(Address { authority: format!("{host}:{port}").into() })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}", self.authority)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_servers_are_separated_by_commas() {
        let servers: Servers = "http://a:1, http://b:2 ,http://[::1]:3/,http://c".parse().unwrap();
        assert_eq!(servers.to_string(), "http://a:1,http://b:2,http://[::1]:3,http://c:80");
        assert_eq!(servers.at(5).authority(), "b:2");
    }

    #[test]
    fn https_is_refused_with_what_to_do_instead() {
        let error = "https://a:1".parse::<Servers>().unwrap_err();
        assert!(error.to_string().contains("https is not supported yet; use http://"), "{error}");
    }

    #[test]
    fn an_address_without_a_scheme_is_refused_with_the_one_that_was_meant() {
        for bad in ["a:1", "localhost", "http://b:2,[::1]:3"] {
            let error = bad.parse::<Servers>().unwrap_err().to_string();
            let last = bad.rsplit(',').next().unwrap();
            assert!(error.ends_with(&format!("does not begin with http://; write http://{last}")), "{error}");
        }
        assert_eq!("a:1".parse::<Address>().unwrap().to_string(), "http://a:1");
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(" , ".parse::<Servers>(), Err(InvalidServers::Empty));
        for bad in ["ftp://a:1", "http://", "http://a:b", "http://a:0", "http://a:1/v1", "http://u@a:1", "::1", "a b"] {
            assert_eq!(bad.parse::<Servers>(), Err(InvalidServers::Form(bad.into())), "{bad}");
        }
    }
}
