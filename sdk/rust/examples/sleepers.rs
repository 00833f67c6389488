//! Starts many executions that sleep for an hour: `sleepers COUNT [CLIENTS]`. `scripts/measure-sleepers` runs it.

use orbit_sdk::{Client, Format, StartOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const NAP: &str = "name: Nap\nversion: 1.0.0\nsteps:\n  - {id: nap, sleep: 1h}\n";

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().ok_or("usage: sleepers COUNT [CLIENTS]")?.parse()?;
    let clients: u64 = arguments.next().map_or(Ok(256), |text| text.parse())?;
    let server = std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into());
    Client::new(&server, None)?.deploy(NAP, Format::Yaml).await?;
    let next = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks = Vec::new();
    for _ in 0..clients {
        let (client, next) = (Client::new(&server, None)?, next.clone());
        tasks.push(tokio::spawn(async move {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return Ok::<(), orbit_sdk::Error>(());
                }
                let options = StartOptions { execution_id: Some(format!("nap-{n}")), ..StartOptions::default() };
                client.start("Nap", options).await?;
            }
        }));
    }
    for task in tasks {
        task.await??;
    }
    println!("{count} executions started in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}
