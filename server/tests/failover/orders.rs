//! The reference workload: clients that start an order of six tasks each and wait for it, and workers, all of which know
//! every server; and what must hold of it in the end.

use crate::common::history;
use crate::common::{ORDER_PROCESSING, order};
use orbit_core::definition::Definition;
use orbit_core::execution::event::Event;
use orbit_sdk::{Client, Context, Format, StartOptions, TaskFailure, Value, Worker, json};
use orbit_support::Host;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How long a client asks for one thing.
const STUBBORN: Duration = Duration::from_secs(90);
const TASKS: [&str; 6] =
    ["orders.validate", "fraud.check", "inventory.reserve", "payments.charge", "shipping.ship", "customers.notify"];

/// A task, as a worker received it. Shown whole where something is wrong with it.
#[derive(Clone, Debug)]
#[allow(dead_code)]
struct Delivery {
    execution: String,
    step: String,
    attempt: u32,
    token: String,
    redelivery: bool,
}

#[derive(Default)]
struct Book {
    deliveries: Mutex<Vec<Delivery>>,
    /// Orders whose start was acknowledged.
    started: Mutex<Vec<String>>,
    faults: Mutex<Vec<String>>,
    ended: AtomicUsize,
    stop: AtomicBool,
}

/// Clients and workers at work.
pub struct Orders {
    runtime: Runtime,
    book: Arc<Book>,
    clients: JoinSet<()>,
    workers: JoinSet<()>,
    leave: watch::Sender<bool>,
    client: Client,
}

/// What was seen of it.
#[derive(Debug, Default)]
pub struct Seen {
    pub orders: usize,
    /// Deliveries that were flagged as repeated.
    pub flagged: usize,
}

impl Orders {
    /// Begins with so many clients, on the servers at these addresses.
    pub fn begin(servers: &str, clients: usize) -> Orders {
        Orders::begin_at(None, servers, clients)
    }

    /// The same, on another host, where this thread is as well.
    pub fn begin_at(host: Option<&Host>, servers: &str, clients: usize) -> Orders {
        let host = host.cloned();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let there = move || host.iter().for_each(Host::enter);
        let runtime = runtime.worker_threads(2).on_thread_start(there).enable_all().build().expect("a runtime");
        let client = Client::new(servers, None).expect("addresses").with_patience(STUBBORN);
        runtime.block_on(client.deploy(ORDER_PROCESSING, Format::Yaml)).expect("it deploys");
        let (leave, left) = watch::channel(false);
        let mut orders = Orders {
            book: Arc::default(),
            clients: JoinSet::new(),
            workers: JoinSet::new(),
            leave,
            client: client.clone(),
            runtime,
        };
        let _inside = orders.runtime.enter();
        for number in 0..2 {
            let worker = worker(servers, number, &orders.book);
            let mut left = left.clone();
            orders.workers.spawn(async move {
                let stopped = async move { drop(left.wait_for(|left| *left).await) };
                worker.run(stopped).await.expect("it works until it is told to leave");
            });
        }
        for number in 0..clients {
            orders.clients.spawn(start_one_after_the_other(client.clone(), number, Arc::clone(&orders.book)));
        }
        orders
    }

    /// Orders that have ended so far.
    pub fn ended(&self) -> usize {
        self.book.ended.load(Ordering::SeqCst)
    }

    /// Lets every client have its last order, and checks all of them.
    pub fn end(self) -> Result<Seen, Vec<String>> {
        let Orders { runtime, book, mut clients, mut workers, leave, client } = self;
        book.stop.store(true, Ordering::SeqCst);
        runtime.block_on(async {
            while let Some(ended) = clients.join_next().await {
                ended.expect("no client panics");
            }
            let checked = check(&client, &book).await;
            let _ = leave.send(true);
            while let Some(ended) = workers.join_next().await {
                ended.expect("no worker panics");
            }
            checked
        })
    }
}

fn worker(servers: &str, number: usize, book: &Arc<Book>) -> Worker {
    let mut builder = Worker::builder().servers(servers).worker_id(format!("orders-{number}")).concurrency(32);
    for task in TASKS {
        let book = Arc::clone(book);
        builder = builder.task(task, "1", move |context: Context, _: Value| {
            let delivery = Delivery {
                execution: context.execution_id().into(),
                step: context.step_id().into(),
                attempt: context.attempt(),
                token: context.token().into(),
                redelivery: context.redelivery(),
            };
            book.deliveries.lock().expect("no panic").push(delivery);
            async {
                Ok::<_, TaskFailure>(json!({"score": 1, "reservation_id": "r", "charge_id": "c", "tracking": "t"}))
            }
        });
    }
    builder.build().expect("a complete worker")
}

async fn start_one_after_the_other(client: Client, number: usize, book: Arc<Book>) {
    for n in 0.. {
        if book.stop.load(Ordering::SeqCst) {
            return;
        }
        let id = format!("order-{number}-{n}");
        let options = StartOptions { execution_id: Some(id.clone()), input: order(&id), ..StartOptions::default() };
        let fault = match client.start("OrderProcessing", options).await {
            Err(error) => Some(format!("{id} is not started: {error}")),
            Ok(_) => {
                book.started.lock().expect("no panic").push(id.clone());
                match client.wait(&id, STUBBORN).await {
                    Ok(execution) if execution.status().is_finished() => None,
                    Ok(execution) => Some(format!("{id} does not end: {execution:?}")),
                    Err(error) => Some(format!("{id} is not waited for: {error}")),
                }
            }
        };
        book.faults.lock().expect("no panic").extend(fault);
        book.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn check(client: &Client, book: &Book) -> Result<Seen, Vec<String>> {
    let text = ORDER_PROCESSING;
    let definition = orbit_io::definition::check(text, orbit_io::definition::Format::Yaml).expect("it is valid");
    let mut faults = std::mem::take(&mut *book.faults.lock().expect("no panic"));
    let started = book.started.lock().expect("no panic").clone();
    let mut first_tokens = BTreeSet::new();
    for id in &started {
        faults.extend(of_one(client, &definition, id, &mut first_tokens).await);
    }
    let deliveries = book.deliveries.lock().expect("no panic").clone();
    // A repetition is one by the order of the histories, whichever the workers read first.
    let mut unflagged = BTreeSet::new();
    for delivery in &deliveries {
        let token = &delivery.token;
        if !(delivery.redelivery || (first_tokens.contains(token) && unflagged.insert(token.clone()))) {
            faults.push(format!("a delivery came again without a flag: {delivery:?}"));
        }
    }
    let flagged = deliveries.iter().filter(|delivery| delivery.redelivery).count();
    let seen = Seen { orders: started.len(), flagged };
    if faults.is_empty() { Ok(seen) } else { Err(faults) }
}

async fn of_one(
    client: &Client,
    definition: &Definition,
    id: &str,
    first_tokens: &mut BTreeSet<String>,
) -> Vec<String> {
    let history = match history::read(client, id).await {
        Ok(history) => history,
        Err(error) => return vec![format!("{id} was acknowledged, and its history cannot be read: {error}")],
    };
    let mut dispatched = BTreeSet::new();
    let mut succeeded = BTreeSet::new();
    for event in &history {
        match &event.event {
            Event::StepDispatched { step, attempt, token, .. } if dispatched.insert((step.clone(), *attempt)) => {
                first_tokens.insert(token.to_string());
            }
            Event::StepSucceeded { step, .. } => drop(succeeded.insert(step.clone())),
            _ => {}
        }
    }
    let mut faults = history::faults(definition, id, &history);
    if succeeded.len() != definition.steps.len() {
        faults.push(format!("{id}: {} of {} steps succeeded", succeeded.len(), definition.steps.len()));
    }
    faults
}
