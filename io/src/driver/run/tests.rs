//! The loop, with a script in place of the node.

use super::*;
use orbit_core::api::{Reply, Request};
use orbit_core::node::{CallId, Connection, Timer};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::Mono;
use std::sync::{Arc, Mutex};

/// A node that does what a test says, and remembers what it was given.
struct Script<F> {
    seen: Arc<Mutex<Vec<Input>>>,
    answer: F,
    effects: VecDeque<Effect>,
    timeout: Option<Deadline>,
}

impl<F: FnMut(&Input, &mut VecDeque<Effect>, &mut Option<Deadline>) + Send + 'static> Machine for Script<F> {
    fn handle(&mut self, _: Now, input: Input) {
        assert!(self.effects.is_empty(), "an input came before the effects of the last one were taken");
        (self.answer)(&input, &mut self.effects, &mut self.timeout);
        self.seen.lock().unwrap().push(input);
    }
    fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }
    fn poll_timeout(&self) -> Option<Deadline> {
        self.timeout
    }
}

/// A store that answers each call at once, and says when it is dropped.
struct Echo {
    replies: tokio::sync::mpsc::UnboundedSender<StoreReply>,
    closed: Arc<Mutex<Vec<&'static str>>>,
}

impl Backend for Echo {
    fn run(&self, _: Connection, call: CallId, _: Transaction, _: Option<Origin>) {
        let _ = self.replies.send(StoreReply { call, reply: outcome::Reply::Done(Verdict::SaveWorker), origin: None });
    }

    fn write_off(&self, _: Connection, _: CallId) {
        self.closed.lock().unwrap().push("written off");
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.closed.lock().unwrap().push("closed");
    }
}

type Seen = Arc<Mutex<Vec<Input>>>;

fn begin(
    answer: impl FnMut(&Input, &mut VecDeque<Effect>, &mut Option<Deadline>) + Send + 'static,
) -> (NodeHandle, DriverTask, Seen, Arc<Mutex<Vec<&'static str>>>) {
    let (seen, closed) = (Seen::default(), Arc::<Mutex<Vec<&'static str>>>::default());
    let script = Script { seen: seen.clone(), answer, effects: VecDeque::new(), timeout: None };
    let store = Attached::new(|replies| Echo { replies, closed: closed.clone() });
    let (handle, task) = start(script, store, 4, HostClock);
    (handle, task, seen, closed)
}

/// Longer than any of this takes, so that a loop that has stopped fails its test.
const LONG: Duration = Duration::from_secs(20);

async fn ended(task: DriverTask) -> u8 {
    tokio::time::timeout(LONG, task.exited()).await.expect("the loop ends")
}

/// The node has been given the start and one request: whoever leaves now leaves after it.
async fn two_inputs(seen: &Seen) {
    let both = async {
        while seen.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(LONG, both).await.expect("the request comes to the node");
}

fn healthy() -> Response {
    Response::ok(Reply::Probe { ok: true })
}

fn exit_on_stop(input: &Input, effects: &mut VecDeque<Effect>) {
    if *input == Input::Stop {
        effects.push_back(Effect::Exit { status: 7 });
    }
}

#[tokio::test]
async fn a_request_is_answered_and_the_store_is_closed_before_the_exit_status_is_known() {
    let (handle, task, seen, closed) = begin(|input, effects, _| {
        if let Input::Request { id, .. } = input {
            effects.push_back(Effect::Respond { request: *id, response: healthy() });
        }
        exit_on_stop(input, effects);
    });
    assert_eq!(handle.submit(Request::Livez).unwrap().await, Ok(healthy()));
    handle.stop();
    assert_eq!(ended(task).await, 7);
    assert_eq!(*closed.lock().unwrap(), ["closed"]);
    let seen = seen.lock().unwrap();
    assert!(
        matches!(seen[..], [Input::Start, Input::Request { .. }, Input::Stop]),
        "the start comes first, and each input once: {seen:?}"
    );
}

#[tokio::test]
async fn a_store_call_is_answered_under_its_own_id() {
    let (handle, task, seen, _) = begin(|input, effects, _| match input {
        Input::Start => effects.push_back(Effect::Store {
            call: CallId(41),
            connection: Connection::Requests,
            transaction: Transaction::Workers,
            origin: None,
        }),
        Input::Store { .. } => effects.push_back(Effect::Exit { status: 0 }),
        _ => {}
    });
    assert_eq!(ended(task).await, 0);
    let done = Input::Store { call: CallId(41), reply: outcome::Reply::Done(Verdict::SaveWorker), origin: None };
    assert_eq!(*seen.lock().unwrap(), [Input::Start, done]);
    assert_eq!(handle.submit(Request::Livez).unwrap_err(), crate::driver::Unavailable::Stopped);
}

#[tokio::test]
async fn whoever_leaves_before_the_answer_is_reported_gone() {
    let (handle, task, seen, _) = begin(|input, effects, _| {
        if let Input::RequestGone(_) = input {
            effects.push_back(Effect::Exit { status: 0 });
        }
    });
    let pending = handle.submit(Request::Livez).unwrap();
    let id = pending.id();
    two_inputs(&seen).await;
    drop(pending);
    assert_eq!(ended(task).await, 0);
    assert_eq!(seen.lock().unwrap()[2..], [Input::RequestGone(id)]);
}

#[tokio::test]
async fn a_request_whose_asker_left_while_it_waited_its_turn_is_never_begun() {
    let (handle, task, seen, _) = begin(|input, effects, _| {
        if let Input::Request { request: Request::Readyz, .. } = input {
            effects.push_back(Effect::Exit { status: 0 });
        }
    });
    // The loop has not run yet: this test's runtime has one thread, and it is here.
    drop(handle.submit(Request::Livez).unwrap());
    let _second = handle.submit(Request::Readyz).unwrap();
    assert_eq!(ended(task).await, 0);
    let seen = seen.lock().unwrap();
    let begun = seen.iter().filter(|input| matches!(input, Input::Request { .. })).count();
    assert_eq!(begun, 1, "{seen:?}");
}

#[tokio::test]
async fn an_answer_that_nobody_took_is_reported_lost() {
    let (handle, task, seen, _) = begin(|input, effects, _| match input {
        Input::Request { id, .. } => effects.push_back(Effect::Respond { request: *id, response: healthy() }),
        Input::AnswerLost(_) => effects.push_back(Effect::Exit { status: 0 }),
        _ => {}
    });
    let pending = handle.submit(Request::Livez).unwrap();
    let id = pending.id();
    two_inputs(&seen).await;
    // The answer is in the channel and was never read.
    drop(pending);
    assert_eq!(ended(task).await, 0);
    assert_eq!(seen.lock().unwrap()[2..], [Input::AnswerLost(id)]);
}

#[tokio::test]
async fn a_call_that_is_given_up_is_given_up_by_the_store() {
    let (handle, task, _, closed) = begin(|input, effects, _| {
        if let Input::Stop = input {
            effects.push_back(Effect::WriteOff { call: CallId(1), connection: Connection::Store });
            effects.push_back(Effect::Exit { status: 0 });
        }
    });
    handle.stop();
    assert_eq!(ended(task).await, 0);
    assert_eq!(*closed.lock().unwrap(), ["written off", "closed"]);
}

#[tokio::test]
async fn an_answer_to_a_closed_channel_is_reported_lost_after_the_effects_before_it() {
    let held: Arc<Mutex<Option<RequestId>>> = Arc::default();
    let (handle, task, seen, _) = begin(move |input, effects, _| match input {
        Input::Request { id, .. } => *held.lock().unwrap() = Some(*id),
        Input::Stop => {
            let request = held.lock().unwrap().expect("the request came first");
            effects.push_back(Effect::Respond { request, response: healthy() });
            effects.push_back(Effect::Store {
                call: CallId(1),
                connection: Connection::Store,
                transaction: Transaction::Workers,
                origin: None,
            });
        }
        Input::Store { .. } => effects.push_back(Effect::Exit { status: 0 }),
        _ => {}
    });
    // Without a `Pending`, nobody says that the asker left: only the closed channel does.
    let (answer, answered) = oneshot::channel();
    handle.send_raw(Message::Request { id: RequestId(900), request: Request::Livez, answer, held: None });
    two_inputs(&seen).await;
    drop(answered);
    handle.stop();
    assert_eq!(ended(task).await, 0);
    let seen = seen.lock().unwrap();
    assert_eq!(seen[2..4], [Input::Stop, Input::AnswerLost(RequestId(900))]);
}

#[tokio::test]
async fn an_answer_to_one_who_has_left_is_reported_lost() {
    let (handle, task, seen, _) = begin(|input, effects, _| match input {
        Input::RequestGone(id) => effects.push_back(Effect::Respond { request: *id, response: healthy() }),
        Input::AnswerLost(_) => effects.push_back(Effect::Exit { status: 0 }),
        _ => {}
    });
    let pending = handle.submit(Request::Livez).unwrap();
    let id = pending.id();
    two_inputs(&seen).await;
    drop(pending);
    assert_eq!(ended(task).await, 0);
    assert_eq!(seen.lock().unwrap()[2..], [Input::RequestGone(id), Input::AnswerLost(id)]);
}

#[tokio::test]
async fn a_node_that_ends_by_itself_leaves_its_reason() {
    let (_handle, task, _, _) = begin(|input, effects, _| {
        if *input == Input::Start {
            let message = "the database is held by `a`".to_owned();
            effects.push_back(Effect::Log(LogEvent::Unservable { message }));
            effects.push_back(Effect::Exit { status: 1 });
        }
    });
    let reason = task.reason();
    assert_eq!(ended(task).await, 1);
    assert_eq!(reason.get().map(String::as_str), Some("the database is held by `a`"));
}

#[tokio::test]
async fn a_node_serves_once_it_has_recovered_and_one_that_ends_before_never_does() {
    let recovered = || LogEvent::Recovered { executions: 0, resident: 0, in_flight: 0, recovery_ms: 0 };
    let (handle, task, _, _) = begin(move |input, effects, _| match input {
        Input::Start => effects.push_back(Effect::Log(LogEvent::Stopping)),
        Input::Request { .. } => effects.push_back(Effect::Log(recovered())),
        _ => {}
    });
    let mut serving = Box::pin(task.serving());
    let soon = tokio::time::timeout(Duration::from_millis(20), &mut serving);
    assert!(soon.await.is_err(), "it has not recovered");
    let _pending = handle.submit(Request::Health).expect("there is room");
    assert!(serving.await);
    let (_handle, task, _, _) = begin(|_, effects, _| effects.push_back(Effect::Exit { status: 1 }));
    assert!(!task.serving().await);
    assert_eq!(ended(task).await, 1);
}

#[tokio::test]
async fn a_deadline_wakes_the_node_when_nothing_else_does() {
    let (_handle, task, seen, _) = begin(|input, effects, timeout| match input {
        Input::Start => {
            *timeout = Some(Deadline { at: clock::mono() + Duration::from_millis(5), why: Timer::Check });
        }
        Input::Wake => effects.push_back(Effect::Exit { status: 0 }),
        _ => {}
    });
    assert_eq!(ended(task).await, 0);
    assert_eq!(*seen.lock().unwrap(), [Input::Start, Input::Wake]);
}

#[tokio::test]
async fn a_deadline_is_kept_while_requests_keep_coming() {
    let (handle, task, _, _) = begin(|input, effects, timeout| match input {
        Input::Start => {
            *timeout = Some(Deadline { at: clock::mono() + Duration::from_millis(20), why: Timer::Check });
        }
        Input::Request { id, .. } => effects.push_back(Effect::Respond { request: *id, response: healthy() }),
        Input::Wake => effects.push_back(Effect::Exit { status: 3 }),
        _ => {}
    });
    let asking = async {
        while let Ok(pending) = handle.submit(Request::Livez) {
            if pending.await.is_err() {
                break;
            }
        }
    };
    // Ends only because the node exits, which it does only when it is woken.
    tokio::time::timeout(LONG, asking).await.expect("the deadline is kept");
    assert_eq!(ended(task).await, 3);
}

#[tokio::test]
async fn a_full_channel_refuses_and_a_panic_in_the_node_ends_with_a_status() {
    let (handle, task, _, _) = begin(|input, _, _| {
        if *input == Input::Stop {
            panic!("planted by this test");
        }
    });
    // The loop has not run yet: this test's runtime has one thread, and it is here.
    let waiting: Vec<_> = (0..4).map(|_| handle.submit(Request::Livez).unwrap()).collect();
    assert_eq!(handle.submit(Request::Livez).unwrap_err(), crate::driver::Unavailable::Overloaded);
    handle.stop();
    assert_eq!(ended(task).await, 101);
    for pending in waiting {
        assert_eq!(pending.await, Err(crate::driver::Unavailable::Stopped));
    }
}

/// A clock that stands still, long after the beginning.
struct Late(Mono);

impl Clock for Late {
    fn now(&self) -> Now {
        Now { mono: self.0, wall: clock::wall() }
    }
}

#[tokio::test]
async fn the_time_is_that_of_the_clock_that_was_given() {
    // Years of this host's uptime would not reach it.
    let at = Mono(1 << 60);
    let seen = Seen::default();
    let answer = move |input: &Input, effects: &mut VecDeque<Effect>, timeout: &mut Option<Deadline>| match input {
        Input::Start => *timeout = Some(Deadline { at, why: Timer::Check }),
        Input::Wake => effects.push_back(Effect::Exit { status: 4 }),
        _ => {}
    };
    let script = Script { seen: seen.clone(), answer, effects: VecDeque::new(), timeout: None };
    let store = Attached::new(|replies| Echo { replies, closed: Arc::default() });
    let (_handle, task) = start(script, store, 4, Late(at));
    assert_eq!(ended(task).await, 4);
    assert_eq!(*seen.lock().unwrap(), [Input::Start, Input::Wake]);
}
