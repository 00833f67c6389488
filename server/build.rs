//! Finds the commit that is built, for `orbit --version`. Outside a checkout there is none, and that is no error.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=ORBIT_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let commit = std::env::var("ORBIT_COMMIT").ok().or_else(from_git).unwrap_or_default();
    println!("cargo:rustc-env=ORBIT_COMMIT={commit}");
}

fn from_git() -> Option<String> {
    // A copy inside somebody else's repository would show that one's commit.
    if git(&["rev-parse", "--show-prefix"])? != "server/" {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        println!("cargo:rerun-if-changed={}", git(&["rev-parse", "--git-path", file])?);
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
