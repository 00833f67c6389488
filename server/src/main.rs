use std::process::ExitCode;

fn main() -> ExitCode {
    orbit_server::run()
}
