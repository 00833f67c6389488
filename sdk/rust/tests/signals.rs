//! A worker's program ends by its shutdown, not in the middle of its tasks, at both signals that ask it to end; a second
//! one ends it at once. The programs are this test's own binary, started with a variable that says so.
#![cfg(unix)]

use orbit_sdk::shutdown_signal;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// Set in the programs that this test starts.
const VARIABLE: &str = "SIGNALS_PROGRAM";
/// No step takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    if std::env::var_os(VARIABLE).is_some() {
        program();
    }
    for (signal, status) in [("-INT", 130), ("-TERM", 143)] {
        a_first_signal_asks_for_the_end_and_a_second_one_is_the_end(signal, status);
    }
    println!("test result: ok. both signals ask for the end, and a second one is the end");
    ExitCode::SUCCESS
}

/// Says what it hears of signals, and never ends by itself.
fn program() -> ! {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut asked = Box::pin(shutdown_signal());
        // The first poll begins to listen.
        tokio::select! {
            biased;
            () = &mut asked => panic!("nobody has asked yet"),
            () = std::future::ready(()) => println!("listening"),
        }
        asked.await;
        println!("asked");
        std::future::pending().await
    })
}

fn a_first_signal_asks_for_the_end_and_a_second_one_is_the_end(signal: &str, status: i32) {
    let mut program = Command::new(std::env::current_exe().expect("this test has a path"));
    let program = program.env(VARIABLE, "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = program.spawn().expect("the program starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut line = || lines.next().expect("the program goes on").expect("it writes text");
    assert_eq!(line(), "listening");
    send(signal, &child);
    assert_eq!(line(), "asked");
    assert!(child.try_wait().expect("it can be waited for").is_none(), "what runs may end first");
    // It listens for the second one a moment after it has said so.
    let begun = Instant::now();
    let ended = loop {
        send(signal, &child);
        if let Some(ended) = child.try_wait().expect("it can be waited for") {
            break ended;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().expect("a child can be killed");
            panic!("a second {signal} does not end it");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(ended.code(), Some(status));
    let mut said = String::new();
    child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("it writes text");
    assert_eq!(said, "orbit: a second signal: ending at once; what was running is delivered again\n");
}

/// The program may have ended in this moment.
fn send(signal: &str, child: &Child) {
    Command::new("kill").args([signal, &child.id().to_string()]).stderr(Stdio::null()).status().expect("kill runs");
}
