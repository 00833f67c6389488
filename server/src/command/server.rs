//! `orbit server`

use crate::cli::ServerArgs;
use crate::config::{Options, Settings, warn_of_misspelt_variables};
use crate::failure::Failure;
use crate::serve::{End, Server, Signals};
use crate::telemetry;

/// Serves until a signal comes.
pub async fn run(arguments: ServerArgs) -> Result<(), Failure> {
    let settings = match &arguments.config {
        Some(file) => arguments.settings.or(Settings::read_file(file)?),
        None => arguments.settings,
    };
    telemetry::begin(&settings.log)?;
    warn_of_misspelt_variables();
    let options = Options::from_settings(settings)?;
    let signals = Signals::listen()?;
    let server = Server::start(&options)?;
    ended(server.finish(signals.stop()).await)
}

/// The end of a server as the end of a command.
pub fn ended(end: End) -> Result<(), Failure> {
    let End { status, reason } = end;
    let failure = match reason {
        _ if status == 0 => return Ok(()),
        Some(reason) => Failure::new(reason),
        None => Failure::new("the server ended by itself").hint("its log says why"),
    };
    Err(Failure { exit: status, ..failure })
}
