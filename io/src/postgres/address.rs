//! What `postgres://…` means here.
//!
//! The address is the usual one. `sslmode` is read here, since it decides who can read along:
//!
//! | `sslmode` | Encrypted | The server's certificate |
//! |---|---|---|
//! | none given | to this host: no; to others: as `require` | |
//! | `disable` | no | |
//! | `prefer` | if the server offers it; if not, the log says so | not checked |
//! | `require` | yes, or no connection | not checked, unless `sslrootcert` is given: then as `verify-ca` |
//! | `verify-ca` | yes, or no connection | of a known authority |
//! | `verify-full` | yes, or no connection | of a known authority, and for this host's name |
//!
//! `sslrootcert` is a file of authorities in PEM; without it, those of the system are known.

use crate::postgres::tls::{self, Check};
use ::postgres::Config;
use ::postgres::config::{Host, SslMode};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Where a database is and how it is reached.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: MakeRustlsConnect,
    mode: TlsMode,
    shown: String,
}

/// How an address is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

/// Why a text is no address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("{0}; the address of a database looks like postgres://user:password@host:5432/database")]
    Form(String),
    #[error("sslmode={0} is not known; give disable, prefer, require, verify-ca or verify-full")]
    Mode(String),
    #[error("the certificates in {path} cannot be used: {reason}")]
    Certificates { path: String, reason: String },
}

/// How long a host may take to answer a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The same where there are others to be tried: the next one has to have its turn before a look at the fence is given up.
const TRY_TIMEOUT: Duration = Duration::from_secs(1);

impl Address {
    /// Whether a text is meant as the address of a PostgreSQL database, and not as a file.
    pub fn is_meant(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Reads an address.
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if !Address::is_meant(text) {
            return Err(AddressError::Form("it does not begin with postgres://".into()));
        }
        let (plain, own) = take_own(text)?;
        let mut config: Config = plain.parse().map_err(|error| AddressError::Form(described(&error)))?;
        if config.get_hosts().is_empty() {
            return Err(AddressError::Form("it names no host".into()));
        }
        if config.get_dbname().is_none() {
            return Err(AddressError::Form("it names no database".into()));
        }
        let here = config.get_hosts().iter().all(is_this_host);
        let (mode, check) = match (own.mode.as_deref(), here, own.roots.is_some()) {
            (Some("disable"), ..) | (None, true, false) => (TlsMode::Disable, Check::Nothing),
            (Some("prefer"), ..) => (TlsMode::Prefer, Check::Nothing),
            (Some("require") | None, _, false) => (TlsMode::Require, Check::Nothing),
            (Some("require") | None, _, true) | (Some("verify-ca"), ..) => (TlsMode::VerifyCa, Check::Authority),
            (Some("verify-full"), ..) => (TlsMode::VerifyFull, Check::AuthorityAndName),
            (Some(other), ..) => return Err(AddressError::Mode(other.into())),
        };
        config.ssl_mode(match mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
        let usual = if config.get_hosts().len() > 1 { TRY_TIMEOUT } else { CONNECT_TIMEOUT };
        config.connect_timeout(*config.get_connect_timeout().unwrap_or(&usual));
        // A peer that is gone without a word is noticed within about half a minute.
        config.keepalives(true).keepalives_idle(Duration::from_secs(10));
        config.keepalives_interval(Duration::from_secs(5)).keepalives_retries(3);
        config.tcp_user_timeout(Duration::from_secs(30));
        let shown = shown(&config);
        Ok(Address { config, tls: tls::connector(check, own.roots.as_deref())?, mode, shown })
    }

    /// The address without its password, as it may stand in logs.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// How it is encrypted.
    pub fn tls_mode(&self) -> TlsMode {
        self.mode
    }

    pub(super) fn config(&self) -> Config {
        self.config.clone()
    }

    pub(super) fn connector(&self) -> MakeRustlsConnect {
        self.tls.clone()
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Address").field("address", &self.shown).field("tls", &self.mode).finish_non_exhaustive()
    }
}

/// The parameters that are read here.
#[derive(Default)]
struct Own {
    mode: Option<String>,
    roots: Option<PathBuf>,
}

/// The text without the parameters that are read here, and these.
fn take_own(text: &str) -> Result<(String, Own), AddressError> {
    let Some((base, query)) = text.split_once('?') else { return Ok((text.into(), Own::default())) };
    let mut own = Own::default();
    let mut others = Vec::new();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        match parameter.split_once('=') {
            Some(("sslmode", mode)) => own.mode = Some(mode.into()),
            Some(("sslrootcert", path)) => own.roots = Some(PathBuf::from(decoded(path)?)),
            _ => others.push(parameter),
        }
    }
    let plain = if others.is_empty() { base.into() } else { format!("{base}?{}", others.join("&")) };
    Ok((plain, own))
}

/// Percent-encoded text as it was meant.
fn decoded(text: &str) -> Result<String, AddressError> {
    let wrong = || AddressError::Form(format!("{text:?} is not percent-encoded text"));
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16)).ok_or_else(wrong);
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).expect("two hexadecimal digits"));
    }
    String::from_utf8(bytes).map_err(|_| wrong())
}

fn is_this_host(host: &Host) -> bool {
    match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    }
}

fn shown(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    let ports = config.get_ports();
    let port = |index: usize| ports.get(index).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(index, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(index)),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    format!("postgres://{user}{}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

/// An error with what caused it.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(text: &str) -> TlsMode {
        Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).tls_mode()
    }

    #[test]
    fn nothing_travels_in_plain_text_to_another_host_unless_that_was_said() {
        for here in ["localhost", "127.0.0.1", "[::1]", "%2Fvar%2Frun"] {
            assert_eq!(mode(&format!("postgres://u@{here}/db")), TlsMode::Disable, "{here}");
            assert_eq!(mode(&format!("postgres://u@{here}/db?sslmode=require")), TlsMode::Require, "{here}");
        }
        assert_eq!(mode("postgres://u@db.example/db"), TlsMode::Require);
        assert_eq!(mode("postgres://u@localhost,db.example/db"), TlsMode::Require, "one of several is elsewhere");
        assert_eq!(mode("postgres://u@db.example/db?sslmode=disable"), TlsMode::Disable);
        assert_eq!(mode("postgres://u@db.example/db?sslmode=prefer"), TlsMode::Prefer);
        assert_eq!(mode("postgresql://u@db.example/db?connect_timeout=3&sslmode=verify-full"), TlsMode::VerifyFull);
    }

    #[test]
    fn a_password_is_never_shown() {
        let address = Address::parse("postgres://orbit:secret@db.example:6543/orbit?sslmode=verify-full").unwrap();
        assert_eq!(address.shown(), "postgres://orbit@db.example:6543/orbit");
        assert!(!format!("{address:?}").contains("secret"));
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_would_be() {
        for (text, says) in [
            ("postgres://", "names no host"),
            ("postgres://u@h", "names no database"),
            ("postgres://u@h/db?sslmode=maybe", "sslmode=maybe is not known"),
            ("postgres://u@h/db?nonsense=1", "nonsense"),
            ("postgres://u@h/db?sslmode=verify-ca&sslrootcert=%2Fno%2Fsuch%20file", "/no/such file cannot be used"),
        ] {
            let message = Address::parse(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
