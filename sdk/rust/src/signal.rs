//! When the program is asked to end.

use std::future::pending;
use tracing::{Level, enabled, warn};

/// Ready once somebody wants the program to end: at Ctrl-C (SIGINT), and on Unix at SIGTERM as well, which is what
/// `kill`, systemd and containers send. For [`Worker::run`](crate::Worker::run).
///
/// From the first poll on, these signals do not end the program by themselves any more. Once one has come, a second one
/// ends the process at once, with the exit status that shells give to one that the signal ended (130 or 143): what its
/// handlers were about is delivered again after the session timeout. Where signals cannot be listened for, a line is
/// logged and the future is never ready.
pub async fn shutdown_signal() {
    any().await;
    tokio::spawn(async {
        let status = any().await;
        let text = "a second signal: ending at once; what was running is delivered again";
        if enabled!(target: "orbit", Level::WARN) {
            warn!(target: "orbit", "{text}");
        } else {
            eprintln!("orbit: {text}");
        }
        std::process::exit(status);
    });
}

/// The next signal; the exit status that stands for it.
async fn any() -> i32 {
    tokio::select! {
        () = interrupt() => 128 + 2,
        () = terminate() => 128 + 15,
    }
}

async fn interrupt() {
    if let Err(error) = tokio::signal::ctrl_c().await {
        warn!(target: "orbit", "Ctrl-C cannot be listened for: {error}");
        pending::<()>().await;
    }
}

#[cfg(unix)]
async fn terminate() {
    use tokio::signal::unix::{SignalKind, signal};
    match signal(SignalKind::terminate()) {
        Ok(mut signals) => {
            signals.recv().await;
        }
        Err(error) => {
            warn!(target: "orbit", "SIGTERM cannot be listened for: {error}");
            pending::<()>().await;
        }
    }
}

#[cfg(not(unix))]
async fn terminate() {
    pending::<()>().await;
}
