//! For how long nobody can write: from the last acknowledgement by the old leader to the first one by the new one, to
//! clients that write every 10 ms, under the reference workload.
//!
//! As a test each kind of failure comes once, to few clients, and no time is asserted: what must hold in each of them is
//! that nothing acknowledged is lost, no step succeeds twice, and repeats are flagged. `scripts/long failovers` takes
//! many of each, of a release build with its default settings, and writes every gap down.
//!
//! `FAILOVERS=kill:50,session:20,stop:20,cut:20,lease-3:20,lease:5` says how many of which kind, `FAILOVERS_CSV` where the figures
//! go.

use crate::common::cluster::Cluster;
use crate::common::{Server, wait_for};
use crate::links::Net;
use crate::orders::{Orders, Seen};
use crate::writer::{self, Asked, PING, Writers};
use crate::{LEADS_WITHIN, cluster, deploy, depose, follows, until, until_deposed, until_leads};
use orbit_support::{Database, Host, Loss};
use rustix::process::Signal;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// What a server is told that says nothing about its checks.
#[rustfmt::skip]
const DEFAULTS: [&str; 8] = [
    "--check-interval", "1", "--leader-validity", "3", "--election-session-timeout", "5", "--session-timeout", "8",
];
/// The same where a lease elects, but for its time to live.
#[rustfmt::skip]
const BY_LEASE: [&str; 6] = ["--election", "lease", "--check-interval", "1", "--session-timeout", "8"];
/// How often each client writes.
const EVERY: Duration = Duration::from_millis(10);

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// SIGKILL.
    Kill,
    /// The session that holds its lock ends, while sixteen more clients have it append as much as it can.
    Session,
    /// SIGSTOP.
    Stop,
    /// Its way to the database loses everything.
    Cut,
    /// SIGKILL of a leader by a lease of the default time to live.
    Lease,
    /// The same with a time to live of three seconds.
    ShortLease,
}

impl Kind {
    fn parse(text: &str) -> Kind {
        match text {
            "kill" => Kind::Kill,
            "session" => Kind::Session,
            "stop" => Kind::Stop,
            "cut" => Kind::Cut,
            "lease" => Kind::Lease,
            "lease-3" => Kind::ShortLease,
            other => panic!("{other:?} is no kind of failure: kill, session, stop, cut, lease, lease-3"),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Kill => "kill",
            Kind::Session => "session",
            Kind::Stop => "stop",
            Kind::Cut => "cut",
            Kind::Lease => "lease",
            Kind::ShortLease => "lease-3",
        }
    }

    /// A server that this kind of failure is to meet.
    fn server(self, cluster: &Cluster, name: &str) -> Server {
        match self {
            Kind::Kill | Kind::Session | Kind::Stop | Kind::Cut => cluster.server(name, &DEFAULTS),
            Kind::Lease => cluster.plain_server(name, &[&BY_LEASE[..], &["--lease-ttl", "15"]].concat()),
            Kind::ShortLease => cluster.plain_server(name, &[&BY_LEASE[..], &["--lease-ttl", "3"]].concat()),
        }
    }
}

/// One failover.
struct Measured {
    gap: Duration,
    seen: Seen,
}

/// Two servers that are written to, and where they are reached from.
struct Pair<'a> {
    a: Server,
    b: Server,
    database: &'a Database,
    here: Option<&'a Host>,
}

impl Pair<'_> {
    /// Takes the leader from them, and says what came of it. This thread is where they are reached from.
    fn lose_leader(
        self,
        clients: usize,
        lose: impl FnOnce(&mut Server, &Server),
        mend: impl FnOnce(&Server),
    ) -> Measured {
        let Pair { mut a, b, database, here } = self;
        deploy(&a, PING);
        let orders = Orders::begin_at(here, &format!("{},{}", a.url(), b.url()), clients);
        let of_a = Writers::begin_at(here, "a", a.addr, 1, EVERY);
        let of_b = Writers::begin_at(here, "b", b.addr, 1, EVERY);
        wait_for("writes", LEADS_WITHIN, || (of_a.acknowledged() > 50 && orders.ended() > 20).then_some(()));
        lose(&mut a, &b);
        until("writes by the new leader", || of_b.acknowledged() > 20);
        mend(&a);
        let (of_a, of_b) = (of_a.end(), of_b.end());
        let last = writer::last_acknowledged(&of_a).expect("it led");
        let first = writer::first_acknowledged(&of_b).expect("it leads");
        let gap = first.saturating_duration_since(last);
        let all: Vec<Asked> = of_a.into_iter().chain(of_b).collect();
        let seen = orders.end().unwrap_or_else(|faults| panic!("{faults:#?}"));
        assert_eq!(writer::faults(database, &all), Vec::<String>::new());
        Measured { gap, seen }
    }
}

/// None where it cannot be brought about here, which is said.
fn measure(kind: Kind, clients: usize) -> Option<Measured> {
    if kind == Kind::Cut {
        let net = Net::new()?;
        let (a, b) = (net.far("a", &DEFAULTS), net.near("b", &DEFAULTS));
        // The far one is to lead.
        let hosts = &net.hosts;
        return Some(hosts.first.run(|| {
            let mut b = b;
            if !crate::common::cluster::health(&a)["role"].eq("leader") {
                b.process.kill_now();
                until_leads(&a);
                b = net.near("b", &DEFAULTS);
            }
            until_leads(&a);
            follows(&b);
            let pair = Pair { a, b, database: &net.database, here: Some(&hosts.first) };
            pair.lose_leader(
                clients,
                |_, _| hosts.lose(Loss::Everything),
                |a| {
                    hosts.mend();
                    until_deposed(a);
                },
            )
        }));
    }
    let cluster = cluster();
    let a = kind.server(&cluster, "a");
    until_leads(&a);
    let b = kind.server(&cluster, "b");
    follows(&b);
    let pair = Pair { a, b, database: &cluster.database, here: None };
    Some(match kind {
        Kind::Kill | Kind::Lease | Kind::ShortLease => pair.lose_leader(clients, |a, _| a.process.kill_now(), |_| {}),
        Kind::Session => {
            deploy(&pair.a, PING);
            let load = Writers::begin("load", pair.a.addr, 16, Duration::ZERO);
            wait_for("full load", LEADS_WITHIN, || (load.acknowledged() > 100).then_some(()));
            let measured = pair.lose_leader(clients, |_, b| depose(&cluster, "a", b), until_deposed);
            let asked = load.end();
            assert_eq!(writer::faults(&cluster.database, &asked), Vec::<String>::new());
            measured
        }
        Kind::Stop | Kind::Cut => pair.lose_leader(
            clients,
            |a, _| a.process.signal(Signal::STOP),
            |a| {
                a.process.signal(Signal::CONT);
                until_deposed(a);
            },
        ),
    })
}

/// The smallest value that so many hundredths of all are not above.
fn percentile(sorted: &[Duration], hundredths: usize) -> Duration {
    sorted[(sorted.len() * hundredths).div_ceil(100).max(1) - 1]
}

/// Where every figure goes as soon as there is one, if anywhere.
struct Csv(Option<PathBuf>);

impl Csv {
    fn add(&mut self, line: &str) {
        let Some(path) = &self.0 else { return };
        let file = OpenOptions::new().create(true).append(true).open(path);
        let added = file.and_then(|mut file| writeln!(file, "{line}"));
        added.unwrap_or_else(|error| panic!("{} cannot be written: {error}", path.display()));
    }
}

#[test]
fn however_the_leader_is_lost_another_one_writes_and_nothing_acknowledged_is_lost() {
    let wanted = std::env::var("FAILOVERS").ok();
    let clients = if wanted.is_some() { 64 } else { 8 };
    let wanted = wanted.unwrap_or_else(|| "kill:1,session:1,stop:1,cut:1,lease-3:1".into());
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    let mut csv = Csv(std::env::var("FAILOVERS_CSV").ok().map(PathBuf::from));
    csv.add("kind,round,gap_ms,orders,flagged,build");
    for one in wanted.split(',') {
        let (kind, rounds) = one.split_once(':').expect("KIND:ROUNDS,…");
        let (kind, rounds) = (Kind::parse(kind), rounds.parse::<usize>().expect("a number of rounds"));
        let mut gaps = Vec::new();
        for round in 1..=rounds {
            let Some(Measured { gap, seen }) = measure(kind, clients) else { break };
            let Seen { orders, flagged } = seen;
            let ms = gap.as_secs_f64() * 1e3;
            println!("{} {round}: {ms:.0} ms, {orders} orders, {flagged} deliveries flagged", kind.name());
            csv.add(&format!("{},{round},{ms:.0},{orders},{flagged},{build}", kind.name()));
            gaps.push(gap);
        }
        gaps.sort();
        if let Some(most) = gaps.last() {
            let (p50, p99) = (percentile(&gaps, 50), percentile(&gaps, 99));
            println!("{}: {} rounds, gap p50 {p50:.0?}, p99 {p99:.0?}, most {most:.0?}", kind.name(), gaps.len());
        }
    }
}
