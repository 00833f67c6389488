//! The rules of the model, on a real PostgreSQL.

use crate::real::RealServer;
use orbit_sim::postgres::script::{Step, play};
use orbit_support::Postgres;

fn on_postgresql(script: &[Step]) {
    // A crash is for everybody on the server.
    if script.iter().any(|step| matches!(step, Step::Crash)) {
        let server = Postgres::start(&[]);
        play(&mut RealServer::new(&server), script);
    } else {
        play(&mut RealServer::new(Postgres::shared()), script);
    }
}

orbit_sim::postgres_rules!(on_postgresql);
