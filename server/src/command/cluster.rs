//! `orbit cluster step-down`, over the API, and `orbit cluster mode set`, over the database alone.

mod mode;

use super::client;
use crate::cli::{ClusterCommand, ModeCommand, Remote, StepDownArgs};
use crate::failure::Failure;
use crate::output;
use orbit_sdk::{Health, json};

pub async fn run(command: ClusterCommand) -> Result<(), Failure> {
    match command {
        ClusterCommand::StepDown(arguments) => step_down(arguments).await,
        ClusterCommand::Mode(ModeCommand::Set(arguments)) => mode::set(&arguments),
    }
}

/// The lead of the term that is now: said again, it ends no other.
async fn step_down(arguments: StepDownArgs) -> Result<(), Failure> {
    let health = of_leader(&arguments.remote).await?;
    if health.role == "single" {
        return Err(Failure::new("the server is alone on its database: there is nobody to hand the lead to")
            .hint("stop it with SIGTERM; servers of a cluster are started with --cluster"));
    }
    let (Some(term), Some(led)) = (health.term, health.leader.map(|leader| leader.node_id)) else {
        return Err(Failure::new("no server leads just now").hint("`orbit nodes` shows which servers are there"));
    };
    let done = client(&arguments.remote)?.step_down(term).await?;
    let next = done.leader.as_ref().map(|leader| leader.node_id.as_str()).unwrap_or_default();
    let whole = json!({"node_id": led, "term": done.term, "leader": done.leader});
    output::one(arguments.output.form, &whole, next, || match &done.leader {
        Some(leader) => {
            let at = leader.addr.as_ref().map(|addr| format!(" at {addr}")).unwrap_or_default();
            format!("{led} has handed over the lead of term {term}; {next} leads now{at}\n")
        }
        None => format!("{led} has given up the lead of term {term}\n"),
    })?;
    match done.leader {
        Some(_) => Ok(()),
        None => Err(Failure::new(format!("nobody else was there to lead: {led} stands for election again"))
            .hint("`orbit nodes` shows which servers are there")),
    }
}

/// What the leader says of itself; where none is named, what the first server says that answers.
async fn of_leader(remote: &Remote) -> Result<Health, Failure> {
    let health = client(remote)?.health().await?;
    let leader = health.leader.as_ref().and_then(|leader| leader.addr.clone());
    match leader {
        Some(server) if health.role != "leader" => {
            let leader = Remote { server, token: remote.token.clone() };
            // It may have gone since; whoever was asked knows no better.
            Ok(client(&leader)?.health().await.unwrap_or(health))
        }
        _ => Ok(health),
    }
}
