//! Marks: how often each rare event happened. Every "always" of the checks has a "sometimes" here; an ensemble of
//! seeds in which one of them never happened shows nothing, and fails.

use serde::Serialize;
use std::collections::BTreeMap;

macro_rules! marks {
    ($($(#[$doc:meta])* $name:ident = $text:literal),+ $(,)?) => {
        /// A rare event.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
        pub enum Mark { $($(#[$doc])* #[serde(rename = $text)] $name),+ }
        impl Mark {
            /// All of them.
            pub const ALL: &[Mark] = &[$(Mark::$name),+];
            /// What it is called.
            pub fn as_str(self) -> &'static str { match self { $(Mark::$name => $text),+ } }
        }
    };
}

marks! {
    CrashBetweenEffects = "crash between the effects of one input",
    CrashBeforeCommit = "crash between an effect and its reply: not committed",
    CrashAfterCommit = "crash after a commit, before its reply",
    CrashAfterReply = "crash with no write in flight",
    PausedServer = "server paused past a session timeout",
    CleanStop = "clean stop",
    CleanStopWithWork = "clean stop with executions running",
    Usurped = "a second server took over; the first found out",
    FencedAppend = "group rejected: fenced",
    GroupRejected = "group rejected: other reasons",
    CallFailed = "store call failed",
    DiskFull = "store call refused by a full disk",
    UnknownWritten = "unknown outcome resolved as written",
    UnknownNotWritten = "unknown outcome resolved as not written",
    ClaimRepeated = "claim repeated under its key",
    BigBatch = "append of several groups",
    DirectDispatch = "dispatch in the append that schedules",
    Queued = "task queued",
    ClaimedFromQueue = "task claimed from the queue",
    Requeued = "claim of a dead server put back",
    Parked = "execution parked",
    Woken = "parked execution woken by its timer",
    Loaded = "execution loaded",
    SessionLost = "session fell silent",
    SessionUnknown = "worker told that its session is unknown",
    Uncertain = "attempt uncertain",
    Redelivery = "redelivery of an attempt",
    TokenAnsweredAgain = "token answered again",
    LateResultAccepted = "late result of an earlier delivery accepted",
    StaleResult = "stale result recorded",
    UnknownToken = "report of a delivery that never was",
    DuplicateResult = "duplicate result recognised",
    OutcomeUnknown = "request told that its outcome is unknown",
    NothingSent = "request told, while the database was away, that nothing was sent",
    AnswerLost = "answer lost, and the front noticed",
    RequestGone = "the one who asked was gone",
    StartRepeated = "repeated start recognised",
    StartConflict = "start refused: the id is taken",
    StartRefused = "start refused for a limit",
    CancelInFlight = "cancel while a task was out",
    CancelListed = "token in a cancel list",
    RetryScheduled = "retry scheduled",
    AttemptTimedOut = "attempt timed out",
    QueueTimedOut = "attempt timed out in the queue",
    StepSkipped = "step skipped",
    TimerFired = "timer fired",
    ClockBack = "database clock stepped back",
    ClockForward = "database clock stepped forward",
    ExecutionFailed = "execution failed",
    ExecutionCancelled = "execution cancelled",
    ExecutionCompleted = "execution completed",
    HistoryFull = "history reached its bound",
    PayloadTooLarge = "payload reached its bound",
    ListTooLong = "list reached its bound",
    AwaitTimedOut = "await timed out",
    SignalAcknowledged = "signal acknowledged",
    SignalRepeated = "repeated signal or update recognised",
    SignalIdTaken = "signal or update refused: its id was used for another",
    SignalUnknown = "signal or update refused: not declared",
    SignalMisfit = "signal or update refused for its payload",
    SignalTooLate = "signal or update refused: the execution ends, or has ended",
    SignalsTooMany = "signal or update refused: too many wait",
    SignalWaited = "signal came before its step waited",
    SignalTakenByItem = "signal taken by an item of a list",
    SignalLeftOver = "signal that nothing took before the end",
    SignalRacedCompletion = "signal recorded in the append that completes",
    ContinuedAsNew = "run continued as new",
    SignalRacedContinue = "signal or update recorded in the append that continues as new",
    SignalCarried = "signal or update left to the next run",
    SignalCarriedTwice = "signal or update left to the next run by more than one",
    SignalRepeatedOverRuns = "repeated signal recognised in a later run",
    UpdateRepeatedOverRuns = "repeated update answered again in a later run",
    WaitOverRuns = "wait answered with the end of a later run",
    EarlierRunRead = "history of an earlier run read",
    SignalRacedTimeout = "signal came within 250 ms of its step's deadline",
    UpdateAnswered = "update answered",
    UpdateRejected = "update not taken by the workflow",
    QueryAnswered = "query answered",
    QueryFailed = "query that gives no value",
    ManyItems = "list of more items than may be under way",
    ItemsInParallel = "as many items under way as may be",
    ItemFailed = "item failed",
    CompensationCompleted = "everything undone",
    CompensationFailed = "something could not be undone",
    ChildBegun = "child begun",
    ChildResultApplied = "child's result applied",
    ChildOfLaterRun = "result applied of a child that had continued as new",
    ChildFailed = "child failed",
    ChildRetried = "child ended badly, and another one begun",
    ChildCancelled = "child cancelled by its parent",
    ChildCancelledByOthers = "child cancelled by a client",
    ChildTerminated = "child terminated by its parent",
    ChildTerminatedByOthers = "child terminated by a client",
    ChildTookTooLong = "child cancelled since it took longer than its step allows",
    ChildTimedOut = "child ended by its own time-out",
    ChildWellThoughAsked = "child ended well though it was asked to end",
    ChildThreeDeep = "child of a child of a child begun",
    ChildHeldOverCrash = "child's end decided and not recorded when the server crashed",
    ChildUnknown = "child not begun: its workflow is not there",
    ChildBeyondBounds = "child not begun: too many, or too deep",
    ChildInputRefused = "child not begun: its input is refused",
    EventHandled = "event handled",
    FailureHandled = "failure handled",
    CancelHandled = "cancel handled",
    TimeoutHandled = "workflow's time-out handled",
    HandlerFailed = "handler failed",
    ExecutionTerminated = "execution terminated",
    TerminatedWhileUndoing = "terminated while it was being undone",
    ExecutionTimedOut = "execution timed out",
    WorkflowTimedOutInFlight = "workflow timed out while something was under way",
    InputRefused = "start refused for its input",
    OutputRefused = "output refused by its schema",
    WaitEnded = "wait answered with the end",
    Busy = "group busy: another transaction held its row",
    LateCommit = "commit of a backend whose client was gone",
    CommittedFatal = "commit of a session that ended with FATAL",
    WrittenOff = "call written off, and its connection with it",
    LinkCut = "database connection broke",
    ConnectionRefused = "database connection refused",
    SessionKilled = "database session killed",
    SessionFrozen = "database backend stood still",
    StatementTimedOut = "statement or lock timed out",
    ReadOnly = "write refused by a read-only database",
    DatabaseRestart = "database restarted",
    DatabaseCrash = "database crashed",
    Failover = "server elected after another",
    SteppedDown = "leader stepped down",
    SentToLeader = "request refused by a standby",
    ReadOnStandby = "execution shown by a standby",
    LeaseRanOut = "lease taken that another had let run out",
    LeaseGivenBack = "lease given back at a stop, and taken again",
    LeaseHeld = "lease asked for while another had it",
    RenewalRefused = "renewal refused: the lease had run out, or was another's",
    Promotion = "replica promoted",
    PromotionLost = "replica promoted that lacked commits",
    TermLost = "replica promoted that lacked a term",
    PromotionNoticed = "server forgot everything: a replica was promoted",
    OldPrimaryWrote = "commit by the primary of before a promotion",
    LedAstray = "connection to the primary of before a promotion not believed",
    RepeatOfQueued = "task that was queued at a promotion handed out as a repeat",
    LockHeld = "start found the election lock held",
    HandedOver = "lead handed over",
    LedNext = "lead handed over to another server",
    NameTakenOver = "name of a silent server taken over",
    NameRefused = "server refused since another of its name lives",
    NodeLeft = "server left its cluster",
    ThroughPooler = "connection opened through a pooler in transaction mode",
    PoolerFound = "server found a pooler in transaction mode in between",
    Migrated = "tables brought to a version that older servers do not know",
    OlderRefused = "older server refused by newer tables",
    ModeSet = "mode changed by the operator",
    ModeRefused = "mode not changed, since a server lived or may have",
    OtherwiseRefused = "server refused that is elected otherwise",
    ClockSkewed = "server on a host whose wall clock is not the database's",
    RowLocked = "row that appends lock locked by a session that is no server's",
    AppendHung = "backend of a leader's appends stood still",
    HeldAtTakeover = "execution held by a server that took over",
    HeldOverTakeover = "execution still held after another takeover",
    ResultWhileHeld = "result accepted of an execution that is held",
    EndedWhileHeld = "end asked for of an execution that is held",
    Recovered = "execution recovered after a hold",
    NotHeld = "recovery refused: not held",
}

/// How often each mark was hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage(BTreeMap<Mark, u64>);

impl Coverage {
    /// It happened.
    pub fn hit(&mut self, mark: Mark) {
        *self.0.entry(mark).or_default() += 1;
    }

    /// How often it happened.
    pub fn count(&self, mark: Mark) -> u64 {
        self.0.get(&mark).copied().unwrap_or(0)
    }

    /// Adds what happened in another run.
    pub fn add(&mut self, other: &Coverage) {
        for (mark, count) in &other.0 {
            *self.0.entry(*mark).or_default() += count;
        }
    }

    /// What never happened.
    pub fn holes(&self) -> Vec<Mark> {
        Mark::ALL.iter().copied().filter(|m| self.count(*m) == 0).collect()
    }

    /// A table for people.
    pub fn table(&self) -> String {
        Mark::ALL.iter().map(|m| format!("{:>9}  {}\n", self.count(*m), m.as_str())).collect()
    }
}
