//! `orbit db migrate`: the versions of the tables of a PostgreSQL database.

use crate::cli::{DbArgs, DbCommand, MigrateCommand, UpArgs};
use crate::database::Database;
use crate::failure::Failure;
use crate::output::{self, print};
use orbit_core::store::transaction::SCHEMA_VERSION;
use orbit_io::postgres::migrate::{self, Migration};
use orbit_io::postgres::{Address, peek};
use orbit_sdk::{Value, json};

pub fn run(command: DbCommand) -> Result<(), Failure> {
    let DbCommand::Migrate(command) = command;
    match command {
        MigrateCommand::Status(arguments) => status(&arguments),
        MigrateCommand::Plan(arguments) => plan(&arguments),
        MigrateCommand::Up(arguments) => up(&arguments),
    }
}

fn address(arguments: &DbArgs) -> Result<Address, Failure> {
    match Database::parse(&arguments.db)? {
        Database::Postgres(_, address) => Ok(*address),
        Database::Sqlite(path) => Err(Failure::usage(format!(
            "{} is a file: a server on SQLite brings its own tables up to date",
            path.display()
        ))
        .hint("give --db postgres://user@host/database")),
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new(error.to_string())
}

fn status(arguments: &DbArgs) -> Result<(), Failure> {
    let address = address(arguments)?;
    let shown = address.shown().to_owned();
    let versions = peek::versions(address).map_err(failed)?;
    let missing = titles(&versions.missing);
    let whole = json!({"database": shown, "version": versions.found, "newest": SCHEMA_VERSION, "missing": missing});
    output::one(arguments.output.form, &whole, &versions.found.to_string(), || {
        output::fields(&[
            ("database", shown.clone()),
            ("version", if versions.found == 0 { "none: no tables yet".into() } else { versions.found.to_string() }),
            ("newest", SCHEMA_VERSION.to_string()),
            ("missing", if versions.missing.is_empty() { "nothing".into() } else { lines(&versions.missing) }),
        ])
    })
}

fn plan(arguments: &DbArgs) -> Result<(), Failure> {
    let versions = peek::versions(address(arguments)?).map_err(failed)?;
    print(&migrate::as_sql(versions.found))
}

fn up(arguments: &UpArgs) -> Result<(), Failure> {
    if arguments.print_sql {
        return plan(&arguments.database);
    }
    let applied = peek::migrate_up(address(&arguments.database)?, arguments.timeout.0).map_err(failed)?;
    let whole = json!({"applied": titles(&applied), "version": SCHEMA_VERSION});
    output::one(arguments.database.output.form, &whole, &SCHEMA_VERSION.to_string(), || match &applied[..] {
        [] => format!("up to date: version {SCHEMA_VERSION}\n"),
        applied => format!("applied {}\n", lines(applied)),
    })
}

fn titles(migrations: &[Migration]) -> Vec<Value> {
    migrations.iter().map(|one| json!({"version": one.version, "title": one.title})).collect()
}

fn lines(migrations: &[Migration]) -> String {
    let each: Vec<String> = migrations.iter().map(|one| format!("{} ({})", one.version, one.title)).collect();
    each.join(", ")
}
