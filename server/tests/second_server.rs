//! One database has one server: a second start is refused, and a restart after a kill is not held up.

mod common;

use common::{Server, folder, orbit, run};
use std::time::{Duration, Instant};

#[tokio::test]
async fn a_second_server_is_refused_with_the_holders_name() {
    let folder = folder();
    let db = folder.path().join("orbit.db");
    let first = Server::start(&db, &["--node-id", "first-node"]).await;
    let mut second = orbit(&["server", "--addr", "127.0.0.1:0", "--node-id", "second-node", "--db"]);
    second.arg(&db);
    let second = run(second);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(!second.stderr.contains("listening"), "it served nothing: {second:?}");
    let error = second.stderr.lines().find(|line| line.starts_with("error: ")).expect("it says why");
    assert!(error.contains("first-node") && error.contains(&first.process.id().to_string()), "{error}");
    assert!(error.contains(&first.addr.to_string()), "{error}");
    first.ready().await;
}

#[tokio::test]
async fn a_restart_right_after_a_kill_is_not_held_up() {
    let folder = folder();
    let db = folder.path().join("orbit.db");
    let mut server = Server::start(&db, &[]).await;
    let addr = server.addr;
    // The best of a few, with room for a machine that is busy with other things: what a start could wait for is there
    // for longer, or for ever.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        server.process.kill();
        server = Server::start_on(&db, addr, &[]).await;
        best = best.min(begun.elapsed());
    }
    assert!(best < Duration::from_secs(5), "it took {best:?}");
}

#[tokio::test]
async fn a_taken_address_is_refused_with_what_to_do() {
    let folder = folder();
    let first = Server::start(&folder.path().join("first.db"), &[]).await;
    let mut second = orbit(&["server", "--addr", &first.addr.to_string(), "--db"]);
    second.arg(folder.path().join("second.db"));
    let second = run(second);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.stderr.contains("--addr"), "{second:?}");
    let left = std::fs::read_dir(folder.path()).expect("a folder").map(|file| file.expect("a file").file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("second")).collect();
    assert!(left.is_empty(), "no database was made: {left:?}");
    // The same server started twice: who has the database says more than that the port is taken.
    let mut again = orbit(&["server", "--addr", &first.addr.to_string(), "--db"]);
    again.arg(folder.path().join("first.db"));
    let again = run(again);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.stderr.contains(&format!("process {}", first.process.id())), "{again:?}");
}
