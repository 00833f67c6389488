//! The model follows the rules of PostgreSQL. `io`'s tests play the same scripts on a real server.

use orbit_sim::postgres::script::model::ModelServer;
use orbit_sim::postgres::script::{Step, play};

fn on_the_model(script: &[Step]) {
    play(&mut ModelServer::new(), script);
}

orbit_sim::postgres_rules!(on_the_model);
