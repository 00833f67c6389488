//! Encrypted connections, and what of a server's certificate is checked.

use orbit_io::postgres::{Address, Migrate, OpenError, PostgresStore, Timeouts};
use orbit_support::{Database, Postgres};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    let status = command.args(arguments.split(' ')).current_dir(folder).stdout(Stdio::null()).stderr(Stdio::null());
    assert!(status.status().expect("openssl is installed with PostgreSQL").success(), "openssl {arguments}");
}

/// An authority and a certificate of it for `localhost`, in PEM; `ca.pem` and `other.pem` are authorities.
fn certificates(folder: &Path) {
    for name in ["ca", "other"] {
        openssl(folder, &format!("ecparam -name prime256v1 -genkey -noout -out {name}.key"));
        openssl(folder, &format!("req -x509 -new -key {name}.key -days 2 -subj /CN={name} -out {name}.pem"));
    }
    openssl(folder, "ecparam -name prime256v1 -genkey -noout -out server.key");
    openssl(folder, "req -new -key server.key -subj /CN=localhost -out server.csr");
    fs::write(folder.join("names"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        folder,
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
}

fn open(database: &Database, host: &str, parameters: &str) -> Result<bool, OpenError> {
    let url = format!("postgres://postgres@{host}:{}/{}?{parameters}", database.port, database.name);
    let store = PostgresStore::open(Address::parse(&url).unwrap(), "node-a", Timeouts::default(), Migrate::Auto)?;
    Ok(store.settings().tls)
}

#[test]
fn a_connection_is_as_encrypted_and_as_checked_as_its_address_says() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path());
    let text = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let server = Postgres::start_with(
        &[("ssl", "on"), ("ssl_cert_file", "server.pem"), ("ssl_key_file", "server.key")],
        &[("server.pem", &text("server.pem")), ("server.key", &text("server.key"))],
    );
    let database = server.fresh();
    let roots = |name: &str| format!("&sslrootcert={}", folder.path().join(name).display());
    let (ca, other) = (roots("ca.pem"), roots("other.pem"));

    assert!(!open(&database, "127.0.0.1", "").unwrap());
    assert!(!open(&database, "127.0.0.1", "sslmode=disable").unwrap());
    assert!(open(&database, "127.0.0.1", "sslmode=prefer").unwrap());
    assert!(open(&database, "127.0.0.1", "sslmode=require").unwrap());
    // The certificate is for another name than this one.
    assert!(open(&database, "127.0.0.1", &format!("sslmode=verify-ca{ca}")).unwrap());
    assert!(open(&database, "localhost", &format!("sslmode=verify-full{ca}")).unwrap());
    for (host, parameters) in [
        ("127.0.0.1", format!("sslmode=verify-full{ca}")),
        ("localhost", format!("sslmode=verify-full{other}")),
        ("localhost", format!("sslmode=verify-ca{other}")),
        ("localhost", format!("sslmode=require{other}")),
        // The system knows nothing of this authority.
        ("localhost", "sslmode=verify-full".into()),
    ] {
        let error = open(&database, host, &parameters).unwrap_err().to_string();
        assert!(error.contains("certificate is not accepted"), "{host} {parameters}: {error}");
    }
}

#[test]
fn what_has_to_be_encrypted_is_not_sent_to_a_server_that_cannot() {
    let database = Postgres::shared().fresh();
    let error = open(&database, "127.0.0.1", "sslmode=require").unwrap_err();
    assert!(matches!(error, OpenError::NoTls { .. }), "{error}");
    assert!(error.to_string().contains("sslmode=disable"), "{error}");
    assert!(!open(&database, "127.0.0.1", "sslmode=prefer").unwrap());
}
