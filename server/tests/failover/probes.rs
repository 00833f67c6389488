//! What servers say of themselves while the lead changes: two of them call themselves leader at once only after the
//! session of the lock was ended, and not for longer than the first one's last check counts.

use crate::common::{Server, raw};
use crate::{LEADS_WITHIN, cluster, depose, elections, pair, until, until_deposed, until_leads};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An answer to `/leaderz`.
#[derive(Clone, Copy, Debug)]
struct Told {
    sent: Instant,
    heard: Instant,
    leads: bool,
}

/// Asks a server all the time.
struct Watch {
    stop: Arc<AtomicBool>,
    /// It has been told that the server leads.
    led: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Told>>,
}

impl Watch {
    fn begin(addr: SocketAddr) -> Watch {
        let (stop, led) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (until, heard) = (Arc::clone(&stop), Arc::clone(&led));
        let thread = thread::spawn(move || {
            let mut all = Vec::new();
            while !until.load(Ordering::SeqCst) {
                let sent = Instant::now();
                let told = raw::try_send(addr, "GET /leaderz HTTP/1.1\r\n", b"", LEADS_WITHIN);
                if let Ok(answer) = told {
                    assert!(matches!(answer.status, 200 | 503), "{answer:?}");
                    heard.fetch_or(answer.status == 200, Ordering::SeqCst);
                    all.push(Told { sent, heard: Instant::now(), leads: answer.status == 200 });
                }
                thread::sleep(Duration::from_millis(2));
            }
            all
        });
        Watch { stop, led, thread }
    }

    /// Waits until it was told that its server leads.
    fn until_led(&self) {
        until("word of the lead", || self.led.load(Ordering::SeqCst));
    }

    fn end(self) -> Vec<Told> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().expect("no panic")
    }
}

/// For how long the first one has called itself leader after the second one had begun to.
fn overlap(first: &[Told], second: &[Told]) -> Duration {
    let leads = |told: &&Told| told.leads;
    let begun = second.iter().filter(leads).map(|told| told.heard).min().expect("it led");
    let last = first.iter().filter(leads).map(|told| told.sent).max().expect("it led");
    last.saturating_duration_since(begun)
}

fn each_role(leader: &Server, standby: &Server) {
    let of = |server: &Server| ["/livez", "/readyz", "/leaderz", "/v1/ready"].map(|path| raw::get(server, path).status);
    until("readiness for reads", || raw::get(standby, "/readyz").status == 200);
    assert_eq!(of(leader), [200, 200, 200, 200]);
    assert_eq!(of(standby), [200, 200, 503, 503]);
}

#[test]
fn a_leader_that_is_told_to_stop_says_that_it_leads_no_more_before_another_one_does() {
    let cluster = cluster();
    let (mut a, b) = pair(&cluster);
    each_role(&a, &b);
    let (of_a, of_b) = (Watch::begin(a.addr), Watch::begin(b.addr));
    of_a.until_led();
    a.process.signal(Signal::TERM);
    until_leads(&b);
    assert!(a.process.ended(LEADS_WITHIN).success());
    of_b.until_led();
    assert_eq!(overlap(&of_a.end(), &of_b.end()), Duration::ZERO);
}

#[test]
fn a_leader_that_stood_still_calls_itself_leader_no_more_when_it_goes_on() {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    let (of_a, of_b) = (Watch::begin(a.addr), Watch::begin(b.addr));
    of_a.until_led();
    a.process.signal(Signal::STOP);
    until_leads(&b);
    a.process.signal(Signal::CONT);
    until_deposed(&a);
    each_role(&b, &a);
    of_b.until_led();
    // One that was asked before it stood still may be answered after: what counts is when it was asked.
    let overlap = overlap(&of_a.end(), &of_b.end());
    assert!(overlap == Duration::ZERO || elections(&a) > 1, "{overlap:?}");
}

#[test]
fn a_leader_whose_lock_was_taken_away_calls_itself_leader_for_no_longer_than_its_last_check_counts() {
    /// Of `STEADY`, and what a busy machine takes to notice.
    const AT_MOST: Duration = Duration::from_secs(3 + 10);
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    let (of_a, of_b) = (Watch::begin(a.addr), Watch::begin(b.addr));
    of_a.until_led();
    depose(&cluster, "a", &b);
    until_deposed(&a);
    each_role(&b, &a);
    of_b.until_led();
    let overlap = overlap(&of_a.end(), &of_b.end());
    println!("both called themselves leader for {overlap:?}");
    assert!(overlap < AT_MOST || elections(&a) > 1, "{overlap:?}");
}
