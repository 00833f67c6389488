//! A node whose calls come back late, or never: the node gives the connection up and sends the same again, and what the
//! server does late changes nothing.

use orbit_core::api::request::Start;
use orbit_core::api::{ErrorCode, Reply, Request, Response};
use orbit_core::node::NodeConfig;
use orbit_core::store::append::Status;
use orbit_io::driver::{Driver, DriverTask, NodeHandle};
use orbit_io::postgres::{Address, Migrate, PostgresStore, Timeouts};
use orbit_support::wire::{Action, Held, Message, Proxy, Side};
use orbit_support::{Database, Postgres};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// How long the node waits for an append, and for an answer to a request.
const CALL: Duration = Duration::from_millis(300);

struct Server {
    node: NodeHandle,
    driver: DriverTask,
    database: Database,
    proxy: Arc<Proxy>,
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

impl Server {
    async fn start(request_deadline: Duration) -> Server {
        let (database, proxy) = aside(|| {
            let database = Postgres::shared().fresh();
            let proxy = Proxy::before(database.port);
            (database, Arc::new(proxy))
        })
        .await;
        let address = Address::parse(&proxy.database(&database).url()).unwrap();
        let store = PostgresStore::open(address, "node-a", Timeouts::default(), Migrate::Auto).unwrap();
        let mut config = NodeConfig::new("node-a".into());
        config.call_deadline = CALL;
        config.request_deadline = request_deadline;
        let (node, driver) = Driver::start(config, store.attach(), 64);
        let server = Server { node, driver, database, proxy };
        while server.ask(Request::Ready).await.status != 200 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let nap = json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]});
        let answer = server.ask(Request::deploy(nap)).await;
        assert!(matches!(answer.reply, Reply::Deployed(_)), "{answer:?}");
        server
    }

    async fn ask(&self, request: Request) -> Response {
        self.node.submit(request).unwrap().await.unwrap()
    }

    fn begin(&self, id: &str) -> impl Future<Output = Response> + use<> {
        let start = Start {
            workflow: "Nap".into(),
            version: None,
            execution_id: Some(id.into()),
            input: Arc::new(json!({})),
            labels: Default::default(),
        };
        let pending = self.node.submit(Request::Start(start)).unwrap();
        async move { pending.await.unwrap() }
    }

    /// Holds the next message that is meant, once.
    fn hold(&self, is_meant: fn(&Message) -> bool) {
        let mut done = false;
        self.proxy.rule(move |message| {
            let meant = !done && is_meant(message);
            done |= meant;
            if meant { Action::Hold } else { Action::Pass }
        });
    }

    async fn held(&self) -> Held {
        let proxy = Arc::clone(&self.proxy);
        aside(move || proxy.next_held(PATIENCE, |_| true)).await.expect("it is held")
    }

    /// Events in the table, of all executions.
    async fn events(&self) -> i64 {
        let database = self.database.clone();
        aside(move || {
            let mut client = database.connect();
            let gap = "SELECT execution_id FROM execution_events GROUP BY 1 HAVING max(seq) <> count(*)";
            assert!(client.query(gap, &[]).unwrap().is_empty(), "a history has a gap, or an event twice");
            client.query_one("SELECT count(*) FROM execution_events", &[]).unwrap().get(0)
        })
        .await
    }

    async fn backend_is_gone(&self, held: &Held) {
        let (database, backend) = (self.database.clone(), held.message.backend.expect("it has begun"));
        aside(move || {
            let mut client = database.connect();
            let begun = std::time::Instant::now();
            let there = "SELECT 1 FROM pg_stat_activity WHERE pid = $1";
            while !client.query(there, &[&backend]).unwrap().is_empty() {
                assert!(begun.elapsed() < PATIENCE, "the old session stays");
                std::thread::sleep(Duration::from_millis(2));
            }
        })
        .await;
    }

    async fn stop(self) {
        self.node.stop();
        assert_eq!(self.driver.exited().await, 0);
    }
}

fn is_append(message: &Message) -> bool {
    message.statement.contains("INSERT INTO execution_events")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_reply_comes_too_late_is_found_by_its_repetition() {
    let server = Server::start(Duration::from_secs(20)).await;
    // The server has committed; the node hears nothing of it.
    server.hold(|message| is_append(message) && message.from == Side::Server && message.tag == b'C');
    let started = server.begin("a");
    let held = server.held().await;
    let answer = started.await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let events = server.events().await;
    server.proxy.release(&held);
    server.backend_is_gone(&held).await;
    assert_eq!(server.events().await, events);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_the_server_does_late_is_done_once() {
    let server = Server::start(Duration::from_secs(20)).await;
    // Nothing has been done when the node gives the call up, and it is done after the repetition.
    server.hold(|message| is_append(message) && message.is_from_client(b'B'));
    let started = server.begin("a");
    let held = server.held().await;
    let answer = started.await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let events = server.events().await;
    assert!(events > 0);
    server.proxy.release(&held);
    server.backend_is_gone(&held).await;
    assert_eq!(server.events().await, events, "the late one found that it was done");
    let again = server.begin("a").await;
    assert_eq!(again.status, 200, "{again:?}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_was_told_unknown_finds_its_start_done_once_when_it_asks_again() {
    let server = Server::start(Duration::from_millis(500)).await;
    // The node's own repetitions are stopped as well, until the client has been told.
    server.proxy.rule(|message| {
        let commits = is_append(message) && message.is_from_client(b'S');
        if commits { Action::Hold } else { Action::Pass }
    });
    let told = server.begin("a").await;
    assert_eq!((told.status, code(&told)), (504, Some(ErrorCode::OutcomeUnknown)), "{told:?}");
    server.proxy.pass_all();
    server.proxy.release_all();
    let again = server.begin("a").await;
    assert!([200, 201].contains(&again.status), "{again:?}");
    match server.ask(Request::Wait { execution: "a".into(), timeout: Duration::ZERO }).await.reply {
        Reply::Execution(view) => assert_eq!(view.item.status, Status::Running),
        other => panic!("{other:?}"),
    }
    let events = server.events().await;
    let third = server.begin("a").await;
    assert_eq!((third.status, server.events().await), (200, events));
    server.stop().await;
}

fn code(response: &Response) -> Option<ErrorCode> {
    match &response.reply {
        Reply::Error(error) => Some(error.code),
        _ => None,
    }
}
