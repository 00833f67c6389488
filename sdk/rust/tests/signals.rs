//! A worker's program ends by its shutdown, not in the middle of its tasks, at both signals that ask it to end.
#![cfg(unix)]

use orbit_sdk::shutdown_signal;
use std::process::Command;
use std::time::Duration;

#[tokio::test]
async fn ctrl_c_and_sigterm_both_ask_for_the_end() {
    for signal in ["-INT", "-TERM"] {
        let mut asked = Box::pin(shutdown_signal());
        // The first poll begins to listen.
        tokio::select! {
            biased;
            () = &mut asked => panic!("nobody has asked yet"),
            () = std::future::ready(()) => {}
        }
        let sent = Command::new("kill").args([signal, &std::process::id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        tokio::time::timeout(Duration::from_secs(10), asked)
            .await
            .unwrap_or_else(|_| panic!("{signal} is not noticed"));
    }
}
