//! What many runs gave, for machines: JSON, and the XML of JUnit that every CI shows.

use super::artifacts::Kept;
use super::header::build;
use super::reproduce;
use crate::coverage::Mark;
use crate::mutant;
use crate::run::{Ensemble, Explored, Size};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// What the JSON says that it is.
pub const FORMAT: &str = "orbit-exploration/1";

/// The runs of an ensemble as JSON; `code` is how the command ends.
pub fn json(ensemble: &Ensemble, explored: &Explored, kept: &[Kept], code: u8) -> Value {
    let named = |values: &[Value]| -> Map<String, Value> {
        Size::NAMES.iter().map(|name| name.replace(' ', "_")).zip(values.iter().cloned()).collect()
    };
    let failures: Vec<Value> = explored
        .failures
        .iter()
        .map(|(seed, failure)| {
            let mut value = json!(failure);
            let members = value.as_object_mut().expect("a failure is an object");
            members.insert("seed".into(), json!(seed));
            members.insert("reproduce".into(), json!(reproduce(ensemble, *seed)));
            if let Some(kept) = kept.iter().find(|kept| kept.seed == *seed) {
                members.insert("trace".into(), json!(kept.trace));
                members.insert("scenario".into(), json!(kept.scenario));
            }
            value
        })
        .collect();
    let marks: Map<String, Value> =
        Mark::ALL.iter().map(|mark| (mark.as_str().to_owned(), json!(explored.marks.count(*mark)))).collect();
    json!({
        "format": FORMAT,
        "build": build(),
        "seeds": [ensemble.seeds.start, ensemble.seeds.end],
        "shard": ensemble.shard.to_string(),
        "mutant": ensemble.planted.map(mutant::name),
        "settings": ensemble.settings.iter().cloned().collect::<std::collections::BTreeMap<_, _>>(),
        "exit_code": code,
        "whole": explored.whole,
        "runs": explored.runs,
        "executions": explored.executions,
        "lines": explored.lines,
        "average": named(&explored.sizes.averages().map(|average| json!(average))),
        "least": named(&explored.sizes.least.values().map(|least| json!(least))),
        "simulated_seconds": explored.simulated_ms / 1_000,
        "wall_seconds": explored.wall.as_secs_f64(),
        "processor_seconds": explored.processor.as_secs_f64(),
        "simulated_seconds_per_processor_second": explored.speed(),
        "events_per_processor_second": explored.events_per_second(),
        "failures": failures,
        "marks": marks,
    })
}

/// The runs as one suite of JUnit: a case for each seed, and, where it has to hold, one for the rare events.
pub fn junit(ensemble: &Ensemble, explored: &Explored, kept: &[Kept]) -> String {
    let judged = ensemble.shows_rare_events() && explored.whole;
    let holes = if judged { explored.marks.holes() } else { Vec::new() };
    let failures = explored.failures.len() + usize::from(!holes.is_empty());
    let tests = explored.ran.len() + usize::from(judged);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let mut line = |text: String| writeln!(xml, "{text}").expect("a string takes everything");
    let time = explored.processor.as_secs_f64();
    line(format!("<testsuites tests=\"{tests}\" failures=\"{failures}\" time=\"{time:.3}\">"));
    line(format!("  <testsuite name=\"sim\" tests=\"{tests}\" failures=\"{failures}\" time=\"{time:.3}\">"));
    let mut failed = explored.failures.iter().peekable();
    for ran in &explored.ran {
        let head = format!(
            "    <testcase classname=\"sim\" name=\"seed {}\" time=\"{:.3}\"",
            ran.seed,
            ran.took.as_secs_f64()
        );
        match failed.next_if(|(seed, _)| *seed == ran.seed) {
            None => line(format!("{head}/>")),
            Some((seed, failure)) => {
                let message = escaped(&failure.to_string());
                let mut text = format!("{failure}\n{}\n", reproduce(ensemble, *seed));
                if let Some(kept) = kept.iter().find(|kept| kept.seed == *seed) {
                    let _ = writeln!(text, "{kept}");
                }
                let kind = escaped(&failure.check);
                line(format!("{head}>"));
                line(format!("      <failure type=\"{kind}\" message=\"{message}\">{}</failure>", escaped(&text)));
                line("    </testcase>".into());
            }
        }
    }
    if judged {
        let head = "    <testcase classname=\"sim\" name=\"every rare event happened\" time=\"0.000\"";
        if holes.is_empty() {
            line(format!("{head}/>"));
        } else {
            let never: Vec<&str> = holes.iter().map(|mark| mark.as_str()).collect();
            let message = escaped(&format!("never happened: {}", never.join("; ")));
            line(format!("{head}>\n      <failure type=\"coverage\" message=\"{message}\"/>\n    </testcase>"));
        }
    }
    line("  </testsuite>\n</testsuites>".into());
    xml
}

/// As XML has it, in text and in attributes; what XML cannot say at all is left out.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            c if c.is_control() => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Failure, FailureKind};
    use crate::run::Ran;
    use crate::world::clock::Time;
    use std::time::Duration;

    fn explored() -> (Ensemble, Explored) {
        let failure = Failure {
            kind: FailureKind::Safety,
            check: "history".into(),
            message: "x#3 follows \"#1\" & <nothing>\u{1}".into(),
            at_us: Time(5_000),
        };
        let ran = |seed| Ran { seed, took: Duration::from_millis(20) };
        let explored = Explored {
            runs: 2,
            failures: vec![(4, failure)],
            ran: vec![ran(3), ran(4)],
            processor: Duration::from_millis(40),
            simulated_ms: 120_000,
            whole: true,
            ..Explored::default()
        };
        (Ensemble::of(3..5), explored)
    }

    #[test]
    fn the_xml_has_a_case_for_each_seed_and_a_failure_with_the_line_that_reproduces_it() {
        let (ensemble, explored) = explored();
        let xml = junit(&ensemble, &explored, &[]);
        assert_eq!(xml.matches("<testcase").count(), 2);
        assert!(xml.contains("tests=\"2\" failures=\"1\""), "{xml}");
        assert!(xml.contains("follows &quot;#1&quot; &amp; &lt;nothing&gt;\""), "{xml}");
        assert!(xml.contains("SIM_SEED=4 "), "{xml}");
        assert!(!xml.contains('\u{1}'));
    }

    #[test]
    fn the_json_says_how_fast_it_was_and_what_failed() {
        let (ensemble, explored) = explored();
        let value = json(&ensemble, &explored, &[], 1);
        assert_eq!(value["format"], FORMAT);
        assert_eq!(value["simulated_seconds_per_processor_second"], 3_000.0);
        assert_eq!(value["failures"][0]["seed"], 4);
        assert_eq!(value["failures"][0]["check"], "history");
        assert_eq!(value["exit_code"], 1);
    }
}
