//! Two hosts with a link between them, as network namespaces of Linux: what runs on one of them reaches the other by that
//! link alone, and the link loses what the test wants lost, as networks do: without telling anybody.
//!
//! Nothing of it is seen outside: the addresses are inside the namespaces. A shell watches over them, as over a
//! [`crate::Postgres`]: they go when the test does, however it ends.

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::File;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// Removes the namespaces once nobody holds the other end of standard input any more.
const WATCH: &str = r#"cat > /dev/null; ip netns del "$1"; ip netns del "$2""#;
/// The name of the link's end, on each host.
const LINK: &str = "orbit0";
/// An address that no network card has.
const NOBODY: &str = "02:00:00:00:00:99";

/// Two hosts and their link. They go when this is dropped and what runs there has ended.
#[derive(Debug)]
pub struct Hosts {
    pub first: Host,
    pub second: Host,
    watch: Child,
}

/// One of them.
#[derive(Clone, Debug)]
pub struct Host {
    name: String,
    space: Arc<File>,
    /// At which the other one reaches it. What is lost is what goes to and from here.
    pub address: Ipv4Addr,
    /// Another one, on the same cable: what goes to and from there is lost with the cable alone.
    pub aside: Ipv4Addr,
}

/// What becomes of what is sent over the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The cable is pulled.
    Cut,
    /// Everything is lost, and the link looks as if it were up.
    Everything,
    /// What the first host sends is lost.
    OfFirst,
    /// What the second host sends is lost.
    OfSecond,
}

impl Hosts {
    /// Makes them; why not, where this process may not.
    pub fn new() -> Result<Hosts, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("orbit-{}-{number}-{end}", std::process::id());
        let names = [name("a"), name("b")];
        let mut watch = Command::new("/bin/sh");
        watch.args(["-c", WATCH, "sh"]).args(&names).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        for name in &names {
            ip(&["netns", "add", name])?;
        }
        let watch = watch.spawn().map_err(|error| format!("no shell can be started: {error}"))?;
        let host = |name: &str, last| -> Result<Host, String> {
            let space = File::open(format!("/run/netns/{name}")).map_err(|error| format!("{name}: {error}"))?;
            let (address, aside) = (Ipv4Addr::new(10, 213, 7, last), Ipv4Addr::new(10, 213, 8, last));
            Ok(Host { name: name.into(), space: Arc::new(space), address, aside })
        };
        let hosts = Hosts { first: host(&names[0], 1)?, second: host(&names[1], 2)?, watch };
        let (first, second) = (&hosts.first, &hosts.second);
        first.ip(&["link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", &second.name])?;
        for host in [first, second] {
            host.ip(&["link", "set", "lo", "up"])?;
            for address in [host.address, host.aside] {
                host.ip(&["address", "add", &format!("{address}/24"), "dev", LINK])?;
            }
            host.ip(&["link", "set", LINK, "up"])?;
        }
        Ok(hosts)
    }

    /// From now on this is lost, and nothing else.
    pub fn lose(&self, loss: Loss) {
        self.mend();
        let (first, second) = (&self.first, &self.second);
        let lost = match loss {
            Loss::Cut => return first.must(&["link", "set", LINK, "down"]),
            Loss::Everything => [Some(second), Some(first)],
            Loss::OfFirst => [Some(second), None],
            Loss::OfSecond => [None, Some(first)],
        };
        for (from, to) in [first, second].into_iter().zip(lost) {
            if let Some(to) = to {
                let to = to.address.to_string();
                from.must(&["neighbour", "replace", &to, "lladdr", NOBODY, "dev", LINK, "nud", "permanent"]);
            }
        }
    }

    /// From now on everything arrives again.
    pub fn mend(&self) {
        self.first.must(&["link", "set", LINK, "up"]);
        for (from, to) in [(&self.first, &self.second), (&self.second, &self.first)] {
            // Nothing is there to be forgotten, where nothing was lost.
            let _ = from.ip(&["neighbour", "del", &to.address.to_string(), "dev", LINK]);
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        drop(self.watch.stdin.take());
        let _ = self.watch.wait();
    }
}

impl Host {
    /// Moves this thread there, for good: what it connects to, listens on and starts is there.
    pub fn enter(&self) {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.space.as_fd(), network).expect("who made a namespace may enter it");
    }

    /// Does something there, on a thread of its own.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let there = || {
            self.enter();
            work()
        };
        match thread::scope(|scope| scope.spawn(there).join()) {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn ip(&self, arguments: &[&str]) -> Result<(), String> {
        ip(&[&["-n", &self.name], arguments].concat())
    }

    fn must(&self, arguments: &[&str]) {
        self.ip(arguments).expect("the link does as it is told");
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let ran = Command::new("ip").args(arguments).output().map_err(|error| format!("`ip` cannot be run: {error}"))?;
    let said = String::from_utf8_lossy(&ran.stderr);
    if ran.status.success() { Ok(()) } else { Err(format!("`ip {}`: {}", arguments.join(" "), said.trim())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    /// Whether a byte that is sent from one host arrives at the other.
    fn arrives(from: &mut TcpStream, to: &mut TcpStream) -> bool {
        to.set_read_timeout(Some(Duration::from_millis(300))).expect("it can be set");
        from.write_all(b"x").expect("the system takes it");
        to.read(&mut [0]).is_ok()
    }

    #[test]
    fn a_link_loses_what_it_is_told_to_lose_in_each_direction_and_nothing_once_it_is_mended() {
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(reason) => return println!("not run: namespaces are made by root alone, and here: {reason}"),
        };
        let there = (hosts.first.address, 7_777);
        let listener = hosts.first.run(|| TcpListener::bind(there).expect("a free port"));
        for (loss, first_arrives, second_arrives) in [
            (Loss::OfFirst, false, true),
            (Loss::OfSecond, true, false),
            (Loss::Everything, false, false),
            (Loss::Cut, false, false),
        ] {
            let mut second = hosts.second.run(|| TcpStream::connect(there).expect("the link is up"));
            let (mut first, _) = listener.accept().expect("somebody connects");
            assert!(arrives(&mut first, &mut second) && arrives(&mut second, &mut first), "before {loss:?}");
            hosts.lose(loss);
            assert_eq!(arrives(&mut first, &mut second), first_arrives, "{loss:?}");
            assert_eq!(arrives(&mut second, &mut first), second_arrives, "{loss:?}");
            hosts.mend();
            // What was lost is sent again.
            let begun = Instant::now();
            while !(arrives(&mut first, &mut second) && arrives(&mut second, &mut first)) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it stays lost after {loss:?}");
            }
        }
    }
}
