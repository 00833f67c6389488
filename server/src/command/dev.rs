//! `orbit dev`: a server on a database that is thrown away.

use super::document::Document;
use super::server::ended;
use crate::cli::DevArgs;
use crate::config::{Options, Settings, warn_of_misspelt_variables};
use crate::failure::Failure;
use crate::serve::{Server, Signals, reachable};
use crate::{output, telemetry};
use orbit_sdk::Client;
use std::time::Duration;

/// How long the server has to become ready.
const READY_WITHIN: Duration = Duration::from_secs(30);

/// Serves until a signal comes, and removes the database.
pub async fn run(arguments: DevArgs) -> Result<(), Failure> {
    telemetry::begin(&arguments.log)?;
    warn_of_misspelt_variables();
    let documents = arguments.files.iter().map(|file| Document::read(file)).collect::<Result<Vec<_>, _>>()?;
    let folder = temporary_folder("orbit-dev-")?;
    let options = Options::from_settings(Settings {
        db: Some(folder.path().join("orbit.db").display().to_string()),
        addr: Some(arguments.addr),
        token: arguments.token.clone(),
        ..Settings::default()
    })?;
    let signals = Signals::listen()?;
    let server = Server::start(&options)?;
    let client = Client::new(&format!("http://{}", reachable(server.addr())), options.token.as_deref())?
        .with_patience(READY_WITHIN);
    let prepared = async {
        for document in documents {
            let deployed = client.deploy(&document.text, document.format).await;
            let deployed = deployed.map_err(|error| document.refused(error))?;
            document.deployed(&deployed);
            output::print(&format!("deployed {} {}\n", deployed.name, deployed.version))?;
        }
        Ok(())
    };
    let prepared: Result<(), Failure> = prepared.await;
    let end = match &prepared {
        Ok(()) => server.finish(signals.stop()).await,
        Err(_) => server.finish(async {}).await,
    };
    prepared.and_then(|()| ended(end))
}

/// A folder that is removed when this is dropped.
pub fn temporary_folder(prefix: &str) -> Result<tempfile::TempDir, Failure> {
    let made = tempfile::Builder::new().prefix(prefix).tempdir();
    made.map_err(|error| Failure::new(format!("no temporary folder can be made: {error}")))
}
