//! `orbit demo`: everything that there is, in one process and over real HTTP.

use super::dev::temporary_folder;
use super::history::{Lines, Reader};
use super::order_tasks as tasks;
use super::server::ended;
use crate::cli::DemoArgs;
use crate::config::{LogSettings, Options, Settings};
use crate::failure::{Exit, Failure};
use crate::output::{self, print};
use crate::serve::{Server, Signals, reachable};
use crate::telemetry;
use orbit_sdk::{Client, Format, StartOptions, Status, Worker, json};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The definition that the demo deploys.
const DEFINITION: &str = include_str!("../../../docs/examples/order-processing.yaml");
/// How long the server has to become ready, and the order to end.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the history is asked for more while the order runs.
const FOLLOW_EVERY: Duration = Duration::from_millis(20);

/// Runs the demo.
pub async fn run(arguments: DemoArgs) -> Result<(), Failure> {
    telemetry::begin(&LogSettings { log_level: Some(arguments.log_level), log_format: None })?;
    let folder = temporary_folder("orbit-demo-")?;
    let db = folder.path().join("orbit.db");
    let options = Options::from_settings(Settings {
        db: Some(db.display().to_string()),
        addr: Some(arguments.addr.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 0)))),
        ..Settings::default()
    })?;
    let signals = Signals::listen()?;
    let server = Server::start(&options)?;
    let url = format!("http://{}", reachable(server.addr()));
    print(&format!("server    {url}, SQLite at {}\n", db.display()))?;

    let client = Client::new(&url, None)?.with_patience(PATIENCE);
    let (stop_worker, stopped) = oneshot::channel::<()>();
    let shown = async {
        let deployed = client.deploy(DEFINITION, Format::Yaml).await?;
        print(&format!("workflow  {} {} deployed\n", deployed.name, deployed.version))?;
        let builder = Worker::builder().servers(&url).worker_id("demo-worker").grace(Duration::from_secs(5));
        let worker = tasks::add_to(builder).build()?;
        let worker = tokio::spawn(worker.run(async move { drop(stopped.await) }));
        print("worker    demo-worker, built with orbit-sdk, polls over HTTP\n")?;
        let order = tokio::time::timeout(PATIENCE, run_order(&client, &deployed.name)).await;
        order.unwrap_or_else(|_| Err(Failure::new(format!("the order has not ended within {PATIENCE:?}"))))?;
        Ok(worker)
    };
    let shown: Result<_, Failure> = shown.await;
    let go_on = shown.is_ok() && !arguments.exit;
    if go_on {
        print(&next_commands(&url))?;
    }
    let stop = async {
        if go_on {
            signals.stop().await;
        }
        drop(stop_worker);
        match shown {
            Ok(worker) => match worker.await {
                Ok(result) => result.map_err(Failure::from),
                Err(error) => Err(Failure::new(format!("the worker ended badly: {error}"))),
            },
            Err(failure) => Err(failure),
        }
    };
    let mut result = Ok(());
    let end = server.finish(async { result = stop.await }).await;
    result.and_then(|()| ended(end))
}

/// Starts one order, and shows its history while it happens.
async fn run_order(client: &Client, workflow: &str) -> Result<(), Failure> {
    let input = json!({
        "order_id": "demo-1", "customer": "ada@example.com", "amount": 42.5,
        "items": [{"sku": "book", "quantity": 1}, {"sku": "pen", "quantity": 3}],
    });
    let begun = Instant::now();
    let started = client.start(workflow, StartOptions { input, ..StartOptions::default() }).await?;
    let id = started.execution_id;
    print(&format!("order     execution {id} started\n\n{}", Lines::title()))?;

    let mut lines = Lines::new();
    let mut reader = Reader::new(client.clone(), id.clone(), 0);
    let (mut events, mut tasks, mut took_ms, mut first_ms) = (0, 0, 0, None);
    while !reader.has_ended() {
        for event in reader.next().await? {
            print(&lines.line(&event))?;
            events += 1;
            tasks += usize::from(event.kind == "StepSucceeded" && event.fields.contains_key("token"));
            took_ms = event.at_ms - *first_ms.get_or_insert(event.at_ms);
        }
        if !reader.has_ended() && !reader.more {
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
    let seen = begun.elapsed();

    let execution = client.execution(&id).await?;
    if execution.status() != &Status::Completed {
        let message = format!("the order ended as {}", execution.status());
        return Err(Failure::new(message).exit(Exit::EndedBadly));
    }
    let output = execution.output.as_ref().map(output::value).unwrap_or_default();
    let appends = metric(&client.metrics().await?, "orbit_appends_total");
    let appends = appends.map_or_else(|| "an unknown number of".to_owned(), |appends| appends.to_string());
    print(&format!(
        "\noutput    {output}\n\
         figures   {events} events, {tasks} tasks, {took_ms} ms from the first event to the last ({} ms with the \
         start and this display), {appends} appends to the database\n",
        seen.as_millis()
    ))
}

/// The value of a counter in the text of `/v1/metrics`.
fn metric(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

fn next_commands(url: &str) -> String {
    format!(
        "\nThe server goes on until it is interrupted (Ctrl-C). Look at {url}/ui/ with a browser. Try, in another \
         terminal:\n\n  \
         export ORBIT_SERVER={url}\n  \
         orbit executions list\n  \
         orbit start OrderProcessing --wait --input '{{\"order_id\": \"o-2\", \"customer\": \"bob\", \"amount\": 7, \
         \"items\": [{{\"sku\": \"cup\", \"quantity\": 2}}]}}'\n  \
         curl {url}/v1/health\n  \
         curl {url}/v1/metrics\n\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_found_by_its_whole_name() {
        let text = "# HELP orbit_appends_total x\norbit_appends_total_more 5\norbit_appends_total 17\n";
        assert_eq!(metric(text, "orbit_appends_total"), Some(17));
        assert_eq!(metric(text, "orbit_appends"), None);
    }
}
