//! Runs of one seed, and of many.
//!
//! [`ensemble`]: many. [`seed`]: how people write seeds, parts and variables. [`size`]: how much a run was.

pub mod ensemble;
pub mod seed;
pub mod size;

pub use ensemble::{Ensemble, Explored, OFTEN, Ran, USUAL, found_within};
pub use seed::Shard;
pub use size::{Size, Sizes};

use crate::coverage::Coverage;
use crate::fault::{Faults, Strike, Struck};
use crate::mutant::Planted;
use crate::plan::Plan;
use crate::report::header::Header;
use crate::report::{Failure, FailureKind, Trace};
use crate::workload::census::Census;
use crate::world::clock::Time;
use crate::world::{Ended, World};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs one plan; a panic of the code under test is a failure of kind [`FailureKind::Crash`]. Where a trace is wanted, its
/// first line is a [`Header`].
pub fn run(plan: &Plan, planted: Planted, trace: Option<Box<dyn Write>>) -> Ended {
    run_with(plan, planted, trace, Faulty::Drawn, &Struck::default())
}

/// Where a run's faults come from.
#[derive(Clone, Copy, Debug)]
pub enum Faulty<'a> {
    /// From the seed.
    Drawn,
    /// These, and no others.
    Scripted(&'a [Strike]),
}

/// As [`run`], with faults from elsewhere than the seed; `struck` gets those that happened, also those before a panic.
pub fn run_with(
    plan: &Plan,
    planted: Planted,
    trace: Option<Box<dyn Write>>,
    faulty: Faulty<'_>,
    struck: &Struck,
) -> Ended {
    let trace = trace.map(|mut out| {
        let scripted = match faulty {
            Faulty::Drawn => None,
            Faulty::Scripted(strikes) => Some(strikes),
        };
        let header = Header::new(plan, planted, scripted).line();
        out.write_all(header.as_bytes()).expect("the trace can be written");
        out
    });
    run_recorded(plan, planted, Trace::new(trace), faulty, struck)
}

/// As [`run_with`], without a trace or its hash: for those who ask for the verdict alone, and many times.
pub fn verdict(plan: &Plan, planted: Planted, faulty: Faulty<'_>) -> Ended {
    run_recorded(plan, planted, Trace::counted(), faulty, &Struck::default())
}

fn run_recorded(plan: &Plan, planted: Planted, trace: Trace, faulty: Faulty<'_>, struck: &Struck) -> Ended {
    let faults = match faulty {
        Faulty::Drawn => Faults::drawn(Struck::clone(struck)),
        Faulty::Scripted(strikes) => Faults::scripted(strikes, Struck::clone(struck)),
    };
    let world = AssertUnwindSafe(|| World::new(plan.clone(), planted, trace, faults).run());
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
            census: Census::default(),
            hash: String::new(),
            lines: 0,
            executions: 0,
            simulated_ms: 0,
            size: Size::default(),
        }
    })
}

/// Runs the plan of `seed` twice: the same trace, or a failure of kind [`FailureKind::Nondeterminism`].
pub fn run_twice(plan: &Plan, planted: Planted) -> Ended {
    let first = run(plan, planted, None);
    let mut second = run(plan, planted, None);
    if first.hash != second.hash {
        second.failure = Some(Failure {
            kind: FailureKind::Nondeterminism,
            check: "trace".into(),
            message: format!("two runs of seed {} gave the traces {} and {}", plan.seed, first.hash, second.hash),
            at_us: Time(0),
        });
    }
    second
}
