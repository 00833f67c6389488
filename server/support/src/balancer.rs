//! HAProxy and nginx before servers, with the files of `docs/deploy/`, thrown away as well.

use crate::postgres::free_port;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Which program it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    HaProxy,
    Nginx,
}

/// A balancer. Stopped when dropped.
#[derive(Debug)]
pub struct Balancer {
    pub addr: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Balancer {
    /// Starts one with this configuration, in which the servers' addresses, the port that is listened on and the place of
    /// the process id alone are replaced.
    pub fn start(kind: Kind, configuration: &str, servers: [SocketAddr; 2]) -> Balancer {
        let folder = tempfile::Builder::new().prefix("orbit-balancer-").tempdir().expect("a temporary folder");
        let addr = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let mut text = configuration.to_owned();
        let mut replace = |old: &str, new: &str| {
            assert!(text.contains(old), "the file has no {old:?}");
            text = text.replace(old, new);
        };
        for (number, server) in servers.iter().enumerate() {
            replace(&format!("orbit-{number}.orbit.internal:7233"), &server.to_string());
        }
        let mut command = match kind {
            Kind::HaProxy => {
                replace("bind :7233", &format!("bind {addr}"));
                Command::new(program("/usr/sbin/haproxy"))
            }
            Kind::Nginx => {
                replace("listen 7233;", &format!("listen {addr};"));
                replace("/run/orbit-nginx.pid", &folder.path().join("pid").display().to_string());
                Command::new(program("/usr/sbin/nginx"))
            }
        };
        let file = folder.path().join("balancer.conf");
        fs::write(&file, text).expect("a file can be written");
        let log = fs::File::create(folder.path().join("log")).expect("a file can be made");
        match kind {
            Kind::HaProxy => command.arg("-db").arg("-f").arg(&file),
            Kind::Nginx => command.args(["-g", "daemon off; error_log stderr;"]).arg("-c").arg(&file),
        };
        let again = log.try_clone().expect("a file can be shared");
        command.stdin(Stdio::null()).stdout(log).stderr(again);
        let process = command.spawn().expect("the balancer can be started");
        let mut balancer = Balancer { addr, process, folder };
        let begun = Instant::now();
        while TcpStream::connect(addr).is_err() {
            let ended = balancer.process.try_wait().expect("a child can be waited for");
            assert!(ended.is_none(), "the balancer ended: {}", balancer.log());
            assert!(begun.elapsed() < Duration::from_secs(60), "the balancer does not listen: {}", balancer.log());
            std::thread::sleep(Duration::from_millis(10));
        }
        balancer
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// What it wrote.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        // Its workers end with the one that began them: asked, not killed.
        let id = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let begun = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program(path: &'static str) -> &'static Path {
    let packaged = Path::new(path);
    assert!(packaged.exists(), "{path} is not installed: `apt-get install haproxy nginx`");
    packaged
}
