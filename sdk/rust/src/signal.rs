//! When the program is asked to end.

use std::future::pending;
use tracing::warn;

/// Ready once somebody wants the program to end: at Ctrl-C (SIGINT), and on Unix at SIGTERM as well, which is what
/// `kill`, systemd and containers send. For [`Worker::run`](crate::Worker::run).
///
/// From the first poll on, these signals do not end the program by themselves any more. Where they cannot be listened
/// for, a line is logged and the future is never ready.
pub async fn shutdown_signal() {
    tokio::select! {
        () = interrupt() => {}
        () = terminate() => {}
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
