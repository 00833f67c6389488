//! Which database a server serves from: a file, or PostgreSQL.

use crate::failure::Failure;
use orbit_io::postgres::Address;
use std::fmt;
use std::path::PathBuf;

/// What `--db` names.
#[derive(Clone)]
pub enum Database {
    /// A SQLite file.
    Sqlite(PathBuf),
    /// A PostgreSQL database, with the text that named it.
    Postgres(String, Box<Address>),
}

impl Database {
    /// Reads what `--db` was given.
    pub fn parse(text: &str) -> Result<Database, Failure> {
        if Address::is_meant(text) {
            let address = Address::parse(text).map_err(|error| Failure::usage(format!("--db: {error}")))?;
            return Ok(Database::Postgres(text.into(), Box::new(address)));
        }
        // Nobody means a folder of that name.
        if text.contains("://") {
            return Err(Failure::usage(format!("--db {:?} is no database that Orbit knows", scheme_of(text)))
                .hint("give the path of a SQLite file, for example orbit.db, or postgres://user@host/database"));
        }
        Ok(Database::Sqlite(text.into()))
    }

    /// The text that names it, a password included.
    pub fn text(&self) -> String {
        match self {
            Database::Sqlite(path) => path.to_string_lossy().into_owned(),
            Database::Postgres(text, _) => text.clone(),
        }
    }
}

/// The part of an address that holds nothing secret.
fn scheme_of(text: &str) -> String {
    text.split_once("://").map_or_else(String::new, |(scheme, _)| format!("{scheme}://…"))
}

/// Without a password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Database::Sqlite(path) => write!(f, "{}", path.display()),
            Database::Postgres(_, address) => f.write_str(address.shown()),
        }
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl PartialEq for Database {
    fn eq(&self, other: &Database) -> bool {
        self.text() == other.text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_file_and_an_address_is_postgresql_and_no_password_is_shown() {
        assert_eq!(Database::parse("a/orbit.db").unwrap(), Database::Sqlite("a/orbit.db".into()));
        let database = Database::parse("postgres://me:secret@localhost/orbit").unwrap();
        assert_eq!(format!("{database} {database:?}"), "postgres://me@localhost:5432/orbit ".repeat(2).trim_end());
        for (text, says) in
            [("mysql://me:secret@h/d", "\"mysql://…\" is no database"), ("postgres://h", "names no database")]
        {
            let failure = Database::parse(text).unwrap_err();
            assert!(failure.message.contains(says) && !failure.message.contains("secret"), "{failure:?}");
            assert_eq!(failure.exit, 2);
        }
    }
}
