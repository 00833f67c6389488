//! `docs/src/reference/cli.md` says what the command line is, word for word. `REWRITE=1 cargo test -p server --test
//! reference` writes it anew: read the difference before it is committed.

use clap::{Arg, Command, CommandFactory};
use orbit_server::cli::Cli;
use std::path::Path;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/reference/cli.md");

const HEAD: &str = "\
# Command line

<!-- Written by `REWRITE=1 cargo test -p server --test reference`; the test fails where it differs from the program. -->

Nouns come first, then verbs: `orbit executions list`. What goes over the API takes `--server` and `--token`; what
prints results takes `-o`.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | done |
| 1 | failure: a refused request, a second server on one database, a definition that is not valid, a history that does not replay |
| 2 | the command line, the configuration or a file that it names is wrong |
| 3 | the credentials are missing or wrong |
| 4 | what was asked for does not exist |
| 5 | the execution failed, was cancelled or terminated, or took longer than its `timeout` |
| 6 | the execution had not ended when the wait was over |
| 7 | no server could be reached |

Errors go to standard error as `error: …`, followed by `hint: …` where something would help.

## The server's options

Each option of `orbit server` is also a variable (`ORBIT_…`) and a key of the TOML file that `--config` names, with `_`
for `-`: `session_timeout = 10`. The command line wins over the environment, the environment over the file, the file
over the default. An unknown key is refused with the nearest name.
";

#[test]
fn the_reference_of_the_command_line_is_what_the_program_says() {
    let mut text = HEAD.to_owned();
    let mut orbit = Cli::command();
    orbit.build();
    for command in orbit.get_subcommands().filter(|command| command.get_name() != "help") {
        section(&mut text, command, "orbit");
    }
    if std::env::var_os("REWRITE").is_some() {
        std::fs::create_dir_all(Path::new(FILE).parent().expect("it is in a folder")).expect("a writable checkout");
        std::fs::write(FILE, &text).expect("a writable checkout");
    }
    let written = std::fs::read_to_string(FILE).unwrap_or_default();
    let differs = written.lines().zip(text.lines()).find(|(written, right)| written != right);
    assert!(
        written == text,
        "{FILE} differs from the program, first at {differs:?}; rewrite it with REWRITE=1 cargo test -p server --test reference"
    );
}

fn section(text: &mut String, command: &Command, parents: &str) {
    let name = format!("{parents} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    let verbs: Vec<&Command> = command.get_subcommands().filter(|verb| verb.get_name() != "help").collect();
    if verbs.is_empty() {
        let shown: Vec<&Arg> = command.get_arguments().filter(|argument| is_shown(argument)).collect();
        let (named, placed): (Vec<&Arg>, Vec<&Arg>) = shown.into_iter().partition(|argument| !argument.is_positional());
        let places: String = placed.iter().map(|argument| format!(" {}", place(argument))).collect();
        text.push_str(&format!("\n## `{name}{places}`\n\n{about}.\n"));
        if !placed.is_empty() {
            text.push('\n');
        }
        for argument in placed {
            text.push_str(&format!("* `{}`: {}\n", place(argument), help(argument)));
        }
        if !named.is_empty() {
            text.push_str("\n| Option | Variable | Meaning |\n|---|---|---|\n");
        }
        for argument in named {
            let variable = argument.get_env().map(|name| format!("`{}`", name.to_string_lossy())).unwrap_or_default();
            text.push_str(&format!("| `{}` | {variable} | {} |\n", option(argument), help(argument)));
        }
    }
    for verb in verbs {
        section(text, verb, &name);
    }
}

fn is_shown(argument: &Arg) -> bool {
    !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version_flag")
}

fn value(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    names.iter().map(|name| format!("<{name}>")).collect::<Vec<_>>().join(" ")
}

fn place(argument: &Arg) -> String {
    let several = argument.get_num_args().is_some_and(|number| number.max_values() > 1);
    let value = value(argument);
    let value = if argument.is_required_set() { value } else { format!("[{}]", value.trim_matches(['<', '>'])) };
    if several { format!("{value}...") } else { value }
}

fn option(argument: &Arg) -> String {
    let short = argument.get_short().map(|short| format!("-{short}, ")).unwrap_or_default();
    let long = argument.get_long().map(|long| format!("--{long}")).unwrap_or_default();
    let value = if argument.get_action().takes_values() { format!(" {}", value(argument)) } else { String::new() };
    format!("{short}{long}{value}").replace('|', "\\|")
}

/// The whole help, with what the program adds to it.
fn help(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = help.replace('\n', " ").replace('|', "\\|");
    let words: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| argument.get_action().takes_values() && !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !words.is_empty() {
        help.push_str(&format!(" ({})", words.join(", ")));
    }
    let defaults: Vec<String> =
        argument.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        help.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    help
}
