use orbit_sdk::{Client, Error, Format, StartOptions, json};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let servers = std::env::var("ORBIT_SERVER").unwrap_or_else(|_| "http://127.0.0.1:7233".into());
    let token = std::env::var("ORBIT_TOKEN").ok();
    // Calls that find no server, or one that cannot serve just now, are repeated for a minute.
    let client = Client::new(&servers, token.as_deref())?.with_patience(Duration::from_secs(60));

    let definition = std::fs::read_to_string("docs/examples/greeting.yaml")
        .map_err(|error| Error::Setup(format!("cannot read the definition: {error}")))?;
    let deployed = client.deploy(&definition, Format::Yaml).await?;
    println!("{} {} is {}", deployed.name, deployed.version, deployed.result);

    let options = StartOptions {
        execution_id: Some("hello-rust".into()),
        input: json!({"guest": "Ada"}),
        labels: [("team".into(), "hosts".into())].into(),
        ..StartOptions::default()
    };
    let started = client.start("Greeting", options).await?;

    let execution = client.wait(&started.execution_id, Duration::from_secs(300)).await?;
    match (&execution.output, &execution.error) {
        (Some(output), _) => println!("{output}"),
        (_, Some(error)) => println!("{}: {}", error.code, error.message),
        _ => println!("it is {}", execution.status().as_str()),
    }

    let mut after = 0;
    loop {
        let page = client.history(&started.execution_id, after, None).await?;
        for event in &page.events {
            println!("{} {} {}", event.seq, event.kind, event.step().unwrap_or_default());
            after = event.seq;
        }
        if !page.more {
            break;
        }
    }

    match client.cancel(&started.execution_id, Some("the guest has left")).await {
        Ok(execution) => println!("it is {}", execution.status().as_str()),
        Err(error) if error.code() == Some("EXECUTION_FINISHED") => println!("it has ended already"),
        Err(error) => return Err(error),
    }
    Ok(())
}
