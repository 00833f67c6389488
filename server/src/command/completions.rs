//! `orbit completions`

use crate::cli::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output;
use clap::{Command, CommandFactory};

/// Prints what a shell needs to complete command lines.
pub fn run(arguments: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut without_hidden(Cli::command()), "orbit", &mut script);
    output::print(&String::from_utf8_lossy(&script))
}

/// The command without the options that its help does not show: they are known only so that they can be refused.
fn without_hidden(command: Command) -> Command {
    let hidden = |command: &Command| command.get_arguments().any(clap::Arg::is_hide_set);
    let command = command.mut_subcommands(without_hidden);
    if !hidden(&command) {
        return command;
    }
    let mut bare = Command::new(command.get_name().to_owned());
    if let Some(about) = command.get_about() {
        bare = bare.about(about.clone());
    }
    let arguments: Vec<_> = command.get_arguments().filter(|argument| !argument.is_hide_set()).cloned().collect();
    bare.args(arguments).subcommands(command.get_subcommands().cloned())
}
