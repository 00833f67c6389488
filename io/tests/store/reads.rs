//! Lists, pages, definitions, workers, and what a server that starts reads.

use crate::support::*;
use orbit_core::execution::event::Labels;
use orbit_core::id::{CallKey, Seq};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::statement::*;
use orbit_core::store::transaction::{KeepWorkers, Transaction, Verdict};
use orbit_core::time::ClusterMs;
use serde_json::json;
use uuid::Uuid;

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn row(workflow: &str, status: Status, created: i64, pairs: &[(&str, &str)]) -> Summary {
    Summary { workflow: workflow.into(), created_at_ms: ClusterMs(created), labels: labels(pairs), ..summary(status) }
}

fn five() -> Running {
    let (mut store, fence) = Running::led();
    let rows = [
        ("a", row("W", Status::Running, 10, &[("team", "x"), ("env", "prod")])),
        ("b", row("W", Status::Completed, 20, &[("team", "x")])),
        ("c", row("V", Status::Running, 20, &[("team", "y")])),
        ("d", row("W", Status::Running, 30, &[("team", "x"), ("env", "test")])),
        ("e", row("V", Status::Failed, 40, &[])),
    ];
    let groups =
        rows.into_iter().zip(1..).map(|((id, summary), n)| group(n, vec![start_with(id, 1, summary, Wake::Hot)]));
    store.written(fence, groups.collect());
    store
}

fn list(filter: SummaryFilter) -> ListSummaries {
    ListSummaries { filter, before: None, limit: 100 }
}

#[test]
fn a_list_is_newest_first_and_holds_what_its_filters_let_through() {
    let mut store = five();
    let all = SummaryFilter::default();
    assert_eq!(store.list(list(all.clone())), ["e", "d", "c", "b", "a"]);
    let running = SummaryFilter { status: Some(Status::Running), ..all.clone() };
    assert_eq!(store.list(list(running.clone())), ["d", "c", "a"]);
    let workflow = SummaryFilter { workflow: Some("W".into()), ..all.clone() };
    assert_eq!(store.list(list(workflow.clone())), ["d", "b", "a"]);
    let since = SummaryFilter { since: Some(ClusterMs(20)), ..all.clone() };
    assert_eq!(store.list(list(since)), ["e", "d", "c", "b"]);
    let team = SummaryFilter { labels: labels(&[("team", "x")]), ..all.clone() };
    assert_eq!(store.list(list(team.clone())), ["d", "b", "a"]);
    let both = SummaryFilter { labels: labels(&[("team", "x"), ("env", "prod")]), ..all.clone() };
    assert_eq!(store.list(list(both)), ["a"]);
    let none = SummaryFilter { labels: labels(&[("team", "x"), ("env", "none")]), ..all };
    assert_eq!(store.list(list(none)), Vec::<String>::new());
    let every =
        SummaryFilter { workflow: workflow.workflow, since: Some(ClusterMs(11)), labels: team.labels, ..running };
    assert_eq!(store.list(list(every)), ["d"]);
}

#[test]
fn every_status_is_kept_and_found() {
    let (mut store, fence) = Running::led();
    let id = |status: Status| format!("it-is-{}", status.as_str());
    let groups = Status::ALL
        .into_iter()
        .zip(1..)
        .map(|(status, n)| group(n, vec![start_with(&id(status), 1, row("W", status, 10, &[]), Wake::Hot)]));
    store.written(fence, groups.collect());
    for status in Status::ALL {
        let filter = SummaryFilter { status: Some(status), ..SummaryFilter::default() };
        assert_eq!(store.list(list(filter)), [id(status)]);
        let read = Transaction::Summary(ReadSummary { execution: execution_id(&id(status)) });
        let Verdict::Summary(Some(found)) = store.done(Connection::Requests, read) else { panic!("not found") };
        assert_eq!(found.summary.status, status);
    }
}

#[test]
fn pages_of_a_list_join_without_gap_or_repetition_where_times_are_equal() {
    let mut store = five();
    for filter in [SummaryFilter::default(), SummaryFilter { labels: labels(&[("team", "x")]), ..Default::default() }] {
        let whole = store.list(list(filter.clone()));
        let created = |id: &str| {
            ClusterMs(match id {
                "a" => 10,
                "b" | "c" => 20,
                "d" => 30,
                _ => 40,
            })
        };
        let (mut pages, mut before) = (Vec::new(), None);
        loop {
            let page = store.list(ListSummaries { filter: filter.clone(), before: before.clone(), limit: 1 });
            let Some(last) = page.first() else { break };
            before = Some((created(last), execution_id(last)));
            pages.extend(page);
        }
        assert_eq!(pages, whole);
    }
}

#[test]
fn a_changed_summary_is_found_by_what_it_says_now() {
    let (mut store, fence) = Running::led();
    let first = row("W", Status::Running, 10, &[("team", "x"), ("nul", "a\0b")]);
    store.written(fence, vec![group(1, vec![start_with("a", 1, first, Wake::Hot)])]);
    let second = row("W", Status::Failed, 10, &[("team", "y")]);
    let change = Member { summary: Some(second.clone()), ..go_on("a", 1, 1) };
    store.written(fence, vec![group(2, vec![change])]);
    let by = |pairs: &[(&str, &str)]| list(SummaryFilter { labels: labels(pairs), ..Default::default() });
    assert_eq!(store.list(by(&[("team", "x")])), Vec::<String>::new());
    assert_eq!(store.list(by(&[("nul", "a\0b")])), Vec::<String>::new());
    assert_eq!(store.list(by(&[("team", "y")])), ["a"]);
    let read = Transaction::Summary(ReadSummary { execution: "a".into() });
    let Verdict::Summary(Some(found)) = store.done(Connection::Requests, read) else { panic!("not found") };
    assert_eq!(found.summary, second);
    assert_eq!(found.ends, Some((event(1).bytes, event(2).bytes)));
    let read = Transaction::Summary(ReadSummary { execution: "b".into() });
    assert_eq!(store.done(Connection::Requests, read), Verdict::Summary(None));
}

#[test]
fn a_page_of_a_history_ends_at_its_limit_and_past_its_bytes_and_says_whether_more_follows() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 5)])]);
    let size = u32::try_from(event(1).bytes.len()).unwrap();
    let mut page = |execution: &str, after, limit, max_bytes| {
        let read = ReadHistory { execution: execution.into(), run: None, after: Seq(after), limit, max_bytes };
        match store.done(Connection::Requests, Transaction::History(read)) {
            Verdict::History(page) => (page.known, page.events.len(), page.more),
            other => panic!("{other:?}"),
        }
    };
    let much = 1 << 20;
    assert_eq!(page("a", 0, 100, much), (true, 5, false));
    assert_eq!(page("a", 0, 5, much), (true, 5, false));
    assert_eq!(page("a", 0, 2, much), (true, 2, true));
    assert_eq!(page("a", 3, 2, much), (true, 2, false));
    assert_eq!(page("a", 5, 2, much), (true, 0, false));
    // The event that takes the page past its bytes is still in it, so that every page gets on.
    assert_eq!(page("a", 0, 100, 1), (true, 1, true));
    assert_eq!(page("a", 0, 100, size), (true, 2, true));
    assert_eq!(page("a", 0, 100, size - 1), (true, 1, true));
    assert_eq!(page("a", 4, 100, 1), (true, 1, false));
    assert_eq!(page("a", u64::MAX, u32::MAX, u32::MAX), (true, 0, false));
    assert_eq!(page("b", 0, 100, much), (false, 0, false));
}

#[test]
fn executions_that_want_to_be_loaded_come_by_wake_and_id_and_the_next_one_is_named() {
    let (mut store, fence) = Running::led();
    let at = |ms| Wake::At(ClusterMs(ms));
    let wakes =
        [("a", at(300)), ("b", Wake::Hot), ("c", at(100)), ("d", Wake::Never), ("e", at(100)), ("f", Wake::Hot)];
    let groups =
        wakes.iter().zip(1..).map(|((id, wake), n)| group(n, vec![start_with(id, 1, summary(Status::Running), *wake)]));
    store.written(fence, groups.collect());
    let mut due = |until, after: Option<(Wake, &str)>, limit| {
        let read = ReadDue { until, after: after.map(|(wake, id)| (wake, execution_id(id))), owner: None, limit };
        match store.done(Connection::Store, Transaction::Due(read)) {
            Verdict::Due(rows) => {
                let ids: Vec<_> = rows.due.iter().map(|(_, id)| id.to_string()).collect();
                (ids.concat(), rows.next.map(|next| next.0))
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(due(Wake::Hot, None, 10), ("bf".into(), Some(100)));
    assert_eq!(due(at(99), None, 10), ("bf".into(), Some(100)));
    assert_eq!(due(at(100), None, 10), ("bfce".into(), Some(300)));
    assert_eq!(due(at(100), None, 3), ("bfc".into(), Some(300)));
    assert_eq!(due(at(100), Some((at(100), "c")), 3), ("e".into(), Some(300)));
    assert_eq!(due(at(100), Some((Wake::Hot, "b")), 3), ("fce".into(), Some(300)));
    assert_eq!(due(at(300), None, 10), ("bfcea".into(), None));
}

fn definition(version: &str, hash: &str) -> DefinitionRow {
    DefinitionRow {
        name: "W".into(),
        version: version.into(),
        hash: hash.into(),
        document: json!({"name": "W", "version": version, "steps": [], "π": 1.5}),
        created_at_ms: ClusterMs(7),
    }
}

#[test]
fn a_definition_is_created_once_and_never_changes() {
    let (mut store, fence) = Running::led();
    let put = |store: &mut Running, fence, key, definition| {
        let put = PutDefinition { key: CallKey(Uuid::from_u128(key)), fence, definition };
        match store.done(Connection::Requests, Transaction::Deploy(Box::new(put))) {
            Verdict::Deploy(result) => result,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(put(&mut store, fence, 1, definition("2", "h1")), PutResult::Created);
    assert_eq!(put(&mut store, fence, 1, definition("2", "h1")), PutResult::Created, "a repetition");
    assert_eq!(put(&mut store, fence, 2, definition("2", "h1")), PutResult::Unchanged);
    assert_eq!(put(&mut store, fence, 3, definition("2", "h2")), PutResult::Conflict("h1".into()));
    assert_eq!(put(&mut store, fence, 4, definition("1", "h2")), PutResult::Created);
    let second = store.campaign(2);
    assert_eq!(put(&mut store, fence, 5, definition("3", "h3")), PutResult::Fenced(second.term));
    assert_eq!(put(&mut store, fence, 1, definition("2", "h1")), PutResult::Created, "what is there is there");
    let Verdict::Recover(recovery) = store.done(Connection::Store, Transaction::Recover) else { panic!() };
    assert_eq!(recovery.definitions, [definition("2", "h1"), definition("1", "h2")], "in the order deployed");
}

#[test]
fn a_server_that_starts_reads_how_much_runs_and_what_is_queued() {
    let (mut store, fence) = Running::led();
    let mut first = group(1, vec![start("a", 1)]);
    let other_version = TaskRow { contract_version: "2".into(), ..task("t4", "a", "pay", 4) };
    first.tasks = vec![
        TaskChange::Insert(task("t1", "a", "ship", 1)),
        TaskChange::Insert(task("t2", "a", "pay", 2)),
        TaskChange::Insert(task("t3", "a", "pay", 3)),
        TaskChange::Insert(other_version),
        TaskChange::Insert(task("t5", "a", "claimed", 5)),
    ];
    store.written(fence, vec![first, group(2, vec![start("b", 1)]), group(3, vec![start("c", 1)])]);
    store.written(fence, vec![group(4, vec![end("c", 1)])]);
    store.claim(fence, 1, vec![want(&["claimed"], &[1])]);
    let Verdict::Recover(recovery) = store.done(Connection::Store, Transaction::Recover) else { panic!() };
    let contracts = [("pay", "1"), ("pay", "2"), ("ship", "1")].map(|(name, version)| (name.into(), version.into()));
    assert_eq!(recovery.totals, Totals { active: 2, held: 0, queued: contracts.to_vec() });
}

#[test]
fn workers_are_kept_by_id_with_what_they_said_last() {
    let mut store = Running::fresh();
    let worker = |id: &str, seen| WorkerRow {
        worker_id: id.into(),
        runtime: "rust".into(),
        sdk: (seen > 1).then(|| "orbit-sdk/0.1".into()),
        contracts: vec![("pay".into(), "1".into())],
        last_seen_ms: ClusterMs(seen),
    };
    for put in [worker("b", 1), worker("a", 1), worker("b", 2)] {
        let saved = store.done(Connection::Requests, Transaction::SaveWorker(PutWorker { worker: put }));
        assert_eq!(saved, Verdict::SaveWorker);
    }
    let found = store.done(Connection::Requests, Transaction::Workers);
    assert_eq!(found, Verdict::Workers(vec![worker("a", 1), worker("b", 2)]));
}

#[test]
fn workers_are_seen_later_and_never_earlier_and_those_long_gone_are_forgotten() {
    let mut store = Running::fresh();
    let row = |id: &str, seen| WorkerRow {
        worker_id: id.into(),
        runtime: "rust".into(),
        sdk: None,
        contracts: vec![("pay".into(), "1".into())],
        last_seen_ms: ClusterMs(seen),
    };
    for put in ["a", "b", "c", "d", "e"].map(|id| row(id, 10)) {
        store.done(Connection::Requests, Transaction::SaveWorker(PutWorker { worker: put }));
    }
    let mut keep = |seen: &[(&str, i64)], forget: Option<(&[&str], i64, u32)>| {
        let seen = seen.iter().map(|(id, at)| ((*id).into(), ClusterMs(*at))).collect();
        let forget = forget.map(|(there, before, keep)| ForgetWorkers {
            there: there.iter().map(|id| (*id).into()).collect(),
            before: ClusterMs(before),
            keep,
        });
        let keep = KeepWorkers { see: SeeWorkers { seen }, forget };
        let Verdict::KeepWorkers(gone) = store.done(Connection::Requests, Transaction::KeepWorkers(keep)) else {
            panic!("how many are forgotten")
        };
        let Verdict::Workers(rows) = store.done(Connection::Requests, Transaction::Workers) else { panic!("rows") };
        (gone, rows)
    };
    // Nobody is made who never registered, and nobody's time goes back.
    let expected = vec![row("a", 10), row("b", 20), row("c", 10), row("d", 30), row("e", 15)];
    assert_eq!(keep(&[("a", 5), ("b", 20), ("d", 30), ("e", 15), ("nobody", 40)], None), (0, expected));
    // By age, after what the same transaction says.
    let expected = vec![row("b", 20), row("c", 16), row("d", 30), row("e", 15)];
    assert_eq!(keep(&[("c", 16)], Some((&[], 15, 10))), (1, expected));
    // By number, those seen last stay.
    let expected = vec![row("b", 20), row("d", 30), row("e", 15)];
    assert_eq!(keep(&[], Some((&["e"], 18, 2))), (1, expected), "one that is there stays and does not count");
    assert_eq!(keep(&[], Some((&[], 0, 2))), (1, vec![row("b", 20), row("d", 30)]));
    assert_eq!(keep(&[("b", 30)], Some((&[], 0, 1))), (1, vec![row("b", 30)]), "at the same time, the first by id");
}

#[test]
fn an_execution_that_nobody_knows_is_loaded_as_nothing() {
    let mut store = Running::fresh();
    let loaded = store.load("nobody");
    assert_eq!((loaded.execution.as_str(), loaded.owner, loaded.events.len()), ("nobody", None, 0));
}
