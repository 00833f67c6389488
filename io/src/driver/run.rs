//! The loop: one task that owns the node.

use crate::definition::Schemas;
use crate::driver::backend::{Attached, Backend, StoreReply};
use crate::driver::handle::{Message, NodeHandle};
use crate::driver::{clock, log};
use orbit_core::api::{ApiError, ErrorCode, Response};
use orbit_core::node::{Deadline, Effect, Input, LogEvent, Node, NodeConfig, RequestId};
use orbit_core::time::{Mono, Now};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, UnboundedReceiver};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

/// Messages taken from one channel before the others have their turn.
const BURST: usize = 64;

/// Requests that wait for an answer at once, long polls included; past it they are refused without a decision.
const MAX_WAITING: usize = 100_000;

/// The longest sleep. The runtime's own clock stands still while the host is suspended and the node's does not, so a
/// deadline that passed in a suspended host is noticed no later than this after it goes on.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The shortest sleep: the granularity of the runtime's timers, and what keeps a deadline that does not move from
/// taking a whole processor.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);

/// Starts nodes.
#[derive(Debug)]
pub struct Driver;

impl Driver {
    /// Starts a node on a store, within the current Tokio runtime. At most `room` requests wait for the node to look at
    /// them; past it [`NodeHandle::submit`] refuses.
    pub fn start<B: Backend>(config: NodeConfig, store: Attached<B>, room: usize) -> (NodeHandle, DriverTask) {
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).expect("the operating system gives random bytes");
        let node = Node::new(config, entropy, clock::now()).with_schemas(Arc::new(Schemas::new()));
        start(node, store, room)
    }
}

fn start<N: Machine, B: Backend>(node: N, store: Attached<B>, room: usize) -> (NodeHandle, DriverTask) {
    let (handle, requests, notices) = NodeHandle::new(room);
    let Attached { backend, replies } = store;
    let (reason, (serves, serving)) = (Reason::default(), watch::channel(false));
    let turn = Turn {
        node,
        backend,
        waiting: HashMap::new(),
        next: VecDeque::new(),
        exit: None,
        reason: Arc::clone(&reason),
        serves,
    };
    let task = tokio::spawn(turn.run(Channels { requests, notices, replies }));
    (handle, DriverTask { task, reason, serving })
}

/// A loop that runs.
#[derive(Debug)]
pub struct DriverTask {
    task: JoinHandle<u8>,
    reason: Reason,
    serving: watch::Receiver<bool>,
}

/// Why a node ended by itself, for people; set before its exit status is known.
pub type Reason = Arc<OnceLock<String>>;

impl DriverTask {
    /// Where the reason stands once the node has ended by itself.
    pub fn reason(&self) -> Reason {
        Arc::clone(&self.reason)
    }

    /// Ready once the node serves, with true; with false where it ends before.
    pub fn serving(&self) -> impl Future<Output = bool> + Send + use<> {
        let mut serving = self.serving.clone();
        async move { serving.wait_for(|serves| *serves).await.is_ok() }
    }

    /// The status with which the process is to end, once the node has stopped and its store is closed.
    pub async fn exited(self) -> u8 {
        match self.task.await {
            Ok(status) => status,
            Err(failed) => {
                tracing::error!(target: "orbit_runtime::server", error = %failed, "the server's loop has failed; please report this");
                101
            }
        }
    }
}

/// What the loop drives: a [`Node`], or a script in tests.
trait Machine: Send + 'static {
    fn handle(&mut self, now: Now, input: Input);
    fn poll_effect(&mut self) -> Option<Effect>;
    fn poll_timeout(&self) -> Option<Deadline>;
}

impl Machine for Node {
    fn handle(&mut self, now: Now, input: Input) {
        Node::handle(self, now, input);
    }
    fn poll_effect(&mut self) -> Option<Effect> {
        Node::poll_effect(self)
    }
    fn poll_timeout(&self) -> Option<Deadline> {
        Node::poll_timeout(self)
    }
}

/// Where inputs come from.
struct Channels {
    requests: Receiver<Message>,
    notices: UnboundedReceiver<Message>,
    replies: UnboundedReceiver<StoreReply>,
}

/// The node and what its effects act on.
struct Turn<N, B> {
    node: N,
    backend: B,
    waiting: HashMap<RequestId, oneshot::Sender<Response>>,
    /// Inputs that came of effects; given once the effects before them are done.
    next: VecDeque<Input>,
    exit: Option<u8>,
    reason: Reason,
    /// True once it has recovered what was running.
    serves: watch::Sender<bool>,
}

impl<N: Machine, B: Backend> Turn<N, B> {
    async fn run(mut self, mut channels: Channels) -> u8 {
        self.give(Input::Start);
        while self.exit.is_none() {
            if self.due() {
                self.give(Input::Wake);
            }
            if self.take_ready(&mut channels) {
                // Others of this runtime have their turn, too: above all the fronts, which the answers are for.
                tokio::task::yield_now().await;
            } else if self.exit.is_none() {
                self.wait(&mut channels).await;
            }
        }
        let status = self.exit.expect("the loop ends with a status");
        // Requests that came too late learn it now; those without an answer do when their senders are dropped.
        drop(channels);
        let Turn { node, backend, waiting, .. } = self;
        drop((node, waiting));
        // Closing runs what was sent and may wait for the disk.
        tokio::task::spawn_blocking(move || drop(backend)).await.expect("a store closes without a panic");
        status
    }

    /// Takes what is there, channel by channel, each up to its share; whether there was anything.
    fn take_ready(&mut self, channels: &mut Channels) -> bool {
        let mut any = false;
        for _ in 0..BURST {
            let Ok(message) = channels.notices.try_recv() else { break };
            any = true;
            self.message(message);
        }
        for _ in 0..BURST {
            let Ok(reply) = channels.replies.try_recv() else { break };
            any = true;
            self.reply(reply);
        }
        for _ in 0..BURST {
            let Ok(message) = channels.requests.try_recv() else { break };
            any = true;
            self.message(message);
        }
        any
    }

    /// Waits for the next input of any kind, and takes it.
    async fn wait(&mut self, channels: &mut Channels) {
        tokio::select! {
            Some(message) = channels.notices.recv() => self.message(message),
            Some(reply) = channels.replies.recv() => self.reply(reply),
            Some(message) = channels.requests.recv() => self.message(message),
            () = tokio::time::sleep(self.until_timeout()) => {}
        }
    }

    fn due(&self) -> bool {
        self.node.poll_timeout().is_some_and(|deadline| deadline.at <= clock::mono())
    }

    fn until_timeout(&self) -> Duration {
        let wanted = self.node.poll_timeout().map_or(LONGEST_SLEEP, |deadline: Deadline| {
            let now: Mono = clock::mono();
            deadline.at.since(now)
        });
        wanted.clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
    }

    fn message(&mut self, message: Message) {
        match message {
            // Nobody waits for it any more, and nothing of it was done.
            Message::Request { answer, .. } if answer.is_closed() => {}
            Message::Request { answer, .. } if self.waiting.len() >= MAX_WAITING => {
                let refusal = format!("{MAX_WAITING} requests are waiting for an answer already");
                let _ = answer.send(ApiError::new(ErrorCode::ResourceExhausted, refusal).into());
            }
            Message::Request { id, request, answer, held } => {
                self.waiting.insert(id, answer);
                self.give(Input::Request { id, request });
                drop(held);
            }
            Message::Gone(id) => match self.waiting.remove(&id) {
                Some(_) => self.give(Input::RequestGone(id)),
                // The answer was on its way to somebody who had left. The node passes over ids that it does not know.
                None => self.give(Input::AnswerLost(id)),
            },
            Message::AnswerLost(id) => self.give(Input::AnswerLost(id)),
            Message::Stop => self.give(Input::Stop),
        }
    }

    fn reply(&mut self, StoreReply { call, reply, origin }: StoreReply) {
        tracing::trace!(target: "orbit_runtime::store", call = call.0, "store call answered");
        self.give(Input::Store { call, reply, origin });
    }

    /// Gives one input to the node, then does what it wants done. Every input passes here, in the order in which the
    /// node sees them, so this is where a recording of them is taken.
    fn give(&mut self, input: Input) {
        self.next.push_back(input);
        while self.exit.is_none() {
            let Some(input) = self.next.pop_front() else { break };
            self.node.handle(clock::now(), input);
            while let Some(effect) = self.node.poll_effect() {
                self.perform(effect);
            }
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Store { call, connection, transaction, origin } => {
                let name = transaction.name();
                tracing::trace!(target: "orbit_runtime::store", call = call.0, transaction = name, "store call sent");
                self.backend.run(connection, call, transaction, origin);
            }
            Effect::WriteOff { call, connection } => {
                tracing::warn!(target: "orbit_runtime::store", call = call.0, ?connection, "no reply within the deadline; giving the connection up");
                self.backend.write_off(connection, call);
            }
            Effect::Respond { request, response } => {
                // Whoever left before the answer was there loses it as well: it may carry tasks (protocols, 24).
                let taken = self.waiting.remove(&request).is_some_and(|answer| answer.send(response).is_ok());
                if !taken {
                    self.next.push_back(Input::AnswerLost(request));
                }
            }
            Effect::Log(event) => {
                if let Some(reason) = log::last_words(&event) {
                    // The first one is the cause of those that follow.
                    let _ = self.reason.set(reason);
                }
                log::write(&event);
                if matches!(event, LogEvent::Recovered { .. }) {
                    self.serves.send_replace(true);
                }
            }
            Effect::Exit { status } => self.exit = Some(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::api::{Reply, Request};
    use orbit_core::node::{CallId, Connection, Timer};
    use orbit_core::store::origin::Origin;
    use orbit_core::store::outcome;
    use orbit_core::store::transaction::{Transaction, Verdict};
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
            let _ =
                self.replies.send(StoreReply { call, reply: outcome::Reply::Done(Verdict::SaveWorker), origin: None });
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
        let (handle, task) = start(script, store, 4);
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
}
