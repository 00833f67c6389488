//! The histories of all runs, as the API shows them.

use orbit_core::node::Limits;
use orbit_sdk::{Client, Event, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Events of one page.
const PAGE: u32 = 1_000;

/// What they hold together.
#[derive(Default)]
pub struct Runs {
    pub count: u32,
    /// Events of the longest history, and bytes of the largest.
    pub longest: u64,
    pub largest: u64,
    pub events: u64,
    /// How often each number was received anew, and so not carried over from an earlier run.
    received: BTreeMap<u64, u64>,
    /// How often a signal came once more in a later run.
    pub carried: u64,
    pub handled: u64,
    /// Senders' keys that the last run knew of those before it, and their size as JSON text.
    pub keys: u64,
    pub keys_bytes: u64,
    /// How long the first page of a history took: of the first run, and of the last.
    pub first_page: [Duration; 2],
}

impl Runs {
    pub async fn read(client: &Client, id: &str, count: u32) -> Runs {
        let mut runs = Runs { count, ..Runs::default() };
        for run in 1..=count {
            let (mut length, mut bytes, mut more) = (0, 0, true);
            while more {
                let begun = Instant::now();
                let page = client.history_of_run(id, run, length, Some(PAGE)).await.expect("a history");
                if length == 0 {
                    runs.first_page[usize::from(run > 1)] = begun.elapsed();
                }
                assert_eq!(page.run, run);
                for event in &page.events {
                    length += 1;
                    assert_eq!(event.seq, length, "histories have no gaps");
                    bytes += serde_json::to_string(event).expect("plain data").len() as u64;
                    runs.take(event);
                }
                more = page.more;
            }
            runs.longest = runs.longest.max(length);
            runs.largest = runs.largest.max(bytes);
            runs.events += length;
        }
        runs
    }

    fn take(&mut self, event: &Event) {
        match event.kind.as_str() {
            "WorkflowCreated" => {
                let sent = &event.fields.get("continued").map_or(&Value::Null, |continued| &continued["sent"]);
                self.keys = sent.as_object().map_or(0, |keys| keys.len() as u64);
                self.keys_bytes = sent.to_string().len() as u64;
            }
            "SignalReceived" if event.fields.contains_key("carried") => self.carried += 1,
            "SignalReceived" if event.text("signal") == Some("tick") => {
                let n = event.fields["payload"]["n"].as_u64().expect("a number");
                *self.received.entry(n).or_default() += 1;
            }
            "HandlerCompleted" => self.handled += 1,
            _ => {}
        }
    }

    /// Each number from 1 to `total` was received once, in all runs together, and no history came near its bound.
    pub fn check(&self, total: u64) {
        let wrong: Vec<_> = (1..=total).filter(|n| self.received.get(n) != Some(&1)).take(10).collect();
        assert!(wrong.is_empty(), "received not once: {wrong:?}");
        assert_eq!(self.received.len() as u64, total, "nothing else was received");
        let suggested = Limits::default().max_history_events / 2;
        assert!(self.longest < suggested, "a history has {} events, and {suggested} are suggested", self.longest);
    }
}
