//! The rules of the model, on a real PostgreSQL.

use crate::real::RealServer;
use orbit_sim::postgres::script::{Expect, Step, play};
use orbit_support::Postgres;

/// The crate does not tell of a COMMIT whether it was a ROLLBACK; what a script says is in the tables then tells.
fn as_the_crate_tells(step: &Step) -> Step {
    match step {
        Step::Do(session, op, Expect::RolledBack) => Step::Do(*session, op.clone(), Expect::Done),
        other => other.clone(),
    }
}

fn on_postgresql(script: &[Step]) {
    let script: Vec<Step> = script.iter().map(as_the_crate_tells).collect();
    // A crash is for everybody on the server.
    if script.iter().any(|step| matches!(step, Step::Crash)) {
        let server = Postgres::start(&[]);
        play(&mut RealServer::new(&server), &script);
    } else {
        play(&mut RealServer::new(Postgres::shared()), &script);
    }
}

orbit_sim::postgres_rules!(on_postgresql);
