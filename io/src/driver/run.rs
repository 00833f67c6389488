//! The loop: one task that owns the node.

use crate::definition::Schemas;
use crate::driver::backend::{Attached, Backend, StoreReply};
use crate::driver::clock::{self, Clock, HostClock};
use crate::driver::handle::{Message, NodeHandle};
use crate::driver::log;
use orbit_core::api::{ApiError, ErrorCode, Response};
use orbit_core::node::{Deadline, Effect, Input, LogEvent, Node, NodeConfig, RequestId};
use orbit_core::time::Now;
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
        start(node, store, room, HostClock)
    }

    /// The same with a node that is there already, and the clock that it was made by: whoever gives both has everything
    /// in hand that the loop would take from its host.
    pub fn start_node<B: Backend>(
        node: Node,
        store: Attached<B>,
        room: usize,
        clock: impl Clock,
    ) -> (NodeHandle, DriverTask) {
        start(node, store, room, clock)
    }
}

fn start<N: Machine, B: Backend>(
    node: N,
    store: Attached<B>,
    room: usize,
    clock: impl Clock,
) -> (NodeHandle, DriverTask) {
    let (handle, requests, notices) = NodeHandle::new(room);
    let Attached { backend, replies } = store;
    let (reason, (serves, serving)) = (Reason::default(), watch::channel(false));
    let turn = Turn {
        node,
        backend,
        clock,
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
struct Turn<N, B, C> {
    node: N,
    backend: B,
    clock: C,
    waiting: HashMap<RequestId, oneshot::Sender<Response>>,
    /// Inputs that came of effects; given once the effects before them are done.
    next: VecDeque<Input>,
    exit: Option<u8>,
    reason: Reason,
    /// True once it has recovered what was running.
    serves: watch::Sender<bool>,
}

impl<N: Machine, B: Backend, C: Clock> Turn<N, B, C> {
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
        drop(node);
        // In the order in which they came, so that who hears of it first is no matter of chance.
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(id, _)| *id);
        drop(waiting);
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
        // One of them is there: which comes first is no matter, since each has its share of the next turn.
        tokio::select! {
            biased;
            Some(message) = channels.notices.recv() => self.message(message),
            Some(reply) = channels.replies.recv() => self.reply(reply),
            Some(message) = channels.requests.recv() => self.message(message),
            () = tokio::time::sleep(self.until_timeout()) => {}
        }
    }

    fn due(&self) -> bool {
        self.node.poll_timeout().is_some_and(|deadline| deadline.at <= self.clock.now().mono)
    }

    fn until_timeout(&self) -> Duration {
        let wanted = self
            .node
            .poll_timeout()
            .map_or(LONGEST_SLEEP, |deadline: Deadline| deadline.at.since(self.clock.now().mono));
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
            self.node.handle(self.clock.now(), input);
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
mod tests;
