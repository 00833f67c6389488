//! Runs of one seed, and of many.

use crate::coverage::Coverage;
use crate::mutant::Planted;
use crate::plan::Plan;
use crate::report::{Failure, FailureKind, Trace};
use crate::world::clock::Time;
use crate::world::{Ended, World};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs one plan; a panic of the code under test is a failure of kind [`FailureKind::Crash`].
pub fn run(plan: &Plan, planted: Planted, trace: Option<Box<dyn Write>>) -> Ended {
    let world = AssertUnwindSafe(|| World::new(plan.clone(), planted, Trace::new(trace)).run());
    catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
        Ended {
            failure: Some(Failure {
                kind: FailureKind::Crash,
                check: "panic".into(),
                message: text.to_owned(),
                at_us: Time(0),
            }),
            marks: Coverage::default(),
            hash: String::new(),
            lines: 0,
            executions: 0,
            simulated_ms: 0,
        }
    })
}

/// Runs the plan of `seed` with nothing planted.
pub fn run_seed(seed: u64) -> Ended {
    run(&Plan::draw(seed), Planted(None), None)
}
