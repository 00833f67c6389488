"""When a worker registers, polls, reports and heartbeats.

Three threads, each with at most one request under way: the *keeper* registers and heartbeats, the *poller* waits for
tasks, the *reporter* brings results. A function that ended has its result sent at once: inside the next poll where none
is waiting, else as a report beside the poll that waits, which nothing cuts short. So a step's result reaches the server
in one round trip. Results that come while a report is under way go together in the next one.

Polls and heartbeats name every token that is held (protocols, 24). A server that does not know the session any more (it
was restarted, or this process stood still) gets a new registration; tasks and results are kept through that.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ._backoff import Backoff
from ._context import Context, TaskFailure
from ._desk import Desk, Outcome, failure_result, line
from ._errors import OrbitError, Unexpected
from ._run import Handler, Runner
from ._transport import Abort, Aborted, Answer, Call, Transport
from ._version import VERSION

log = logging.getLogger("orbit")

#: How long a server has for an answer that it need not wait for, in seconds.
ANSWER_DEADLINE = 15.0
#: The same for heartbeats, where another server may serve instead: between these two, as long as the heartbeat's interval.
#: A server that stands still is left after that, and its poll with it, once the other one does not know the session.
HEARTBEAT_DEADLINE = (1.0, 5.0)
#: How long the goodbye may take; a server that does not hear it notices by the session's time-out.
UNREGISTER_DEADLINE = 2.0
#: How long the next poll stays back, at most, after one that brought tasks, until the last of their functions has ended:
#: quick ones get their results into it together, and its answer brings their successors.
LINGER = 0.002


@dataclass(frozen=True)
class Setup:
    """What a worker is made of."""

    transport: Transport
    worker_id: str
    #: By task name and contract version.
    handlers: Mapping[tuple[str, str], Handler]
    concurrency: int
    #: Seconds that a poll waits for tasks.
    poll_wait: float


@dataclass(frozen=True)
class _Session:
    id: str
    #: Seconds between heartbeats.
    interval: float
    #: Seconds of silence after which the server takes the session for lost.
    timeout: float


class _Lane:
    """One kind of request: at most one is under way, and a failure makes the next one wait."""

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        self.path = path
        self.backoff = Backoff()
        #: Nothing is sent before.
        self.not_before = 0.0
        #: The request under way, and the tokens whose results it carries.
        self.abort: Abort | None = None
        self.results: list[str] = []

    def pause(self, least: float = 0.0) -> float:
        """Nothing is sent for a while: the seconds."""
        wait = max(self.backoff.next(), least)
        self.not_before = time.monotonic() + wait
        return wait

    def failed(self, error: OrbitError) -> None:
        """The request failed in a way that may pass."""
        # A server that has too much to do is given the time that it asks for.
        wait = self.pause(error.retry_after if error.status == 429 else 0.0)
        log.warning("%s failed: %s; retrying in %.1fs", self.name, error, wait)


class Engine:
    """See the module. `ended` is called once, when everything is over."""

    def __init__(self, setup: Setup, ended: Callable[[], None]) -> None:
        self._setup = setup
        self._ended = ended
        self._lock = threading.Lock()
        self._keeper = threading.Condition(self._lock)
        self._poller = threading.Condition(self._lock)
        self._reporter = threading.Condition(self._lock)
        self._closer = threading.Condition(self._lock)
        self._runner = Runner(setup.concurrency, self._finish)
        # What follows is read and written under the lock alone.
        self._desk = Desk()
        self._session: _Session | None = None
        self._register = _Lane("register", "/v1/workers/register")
        self._heartbeat = _Lane("heartbeat", "/v1/workers/heartbeat")
        self._poll = _Lane("poll", "/v1/workers/poll")
        self._report = _Lane("report", "/v1/tasks/complete")
        #: See `LINGER`.
        self._linger_until = 0.0
        #: The tasks that the last poll brought and whose functions run.
        self._batch: set[str] = set()
        #: Results go in reports alone: a poll that carried some was refused.
        self._results_apart = False
        #: Set at a stop: when to wait no longer for functions and answers.
        self._stop_by: float | None = None
        self._over = False
        #: Why the worker ended by itself.
        self.error: OrbitError | None = None

    def start(self) -> None:
        """Begins to work."""
        for name, work in (("keeper", self._keep), ("poller", self._poll_on), ("reporter", self._report_on)):
            threading.Thread(target=self._guarded, args=(work,), name=f"orbit-{name}", daemon=True).start()

    def stop(self, grace: float) -> None:
        """Takes nothing new; what runs may end within so many seconds. Said again, the shorter time counts."""
        with self._lock:
            stop_by = time.monotonic() + grace
            if self._stop_by is not None:
                self._stop_by = min(self._stop_by, stop_by)
                self._closer.notify_all()
                return
            log.info('stopping {"running": %d}', self._desk.running())
            self._stop_by = stop_by
            # Nobody waits for tasks any more. Results that the poll carries go again, in a report.
            self._cut(self._poll)
            self._report.not_before = 0.0
            self._wake_all()
        threading.Thread(target=self._close, name="orbit-closer", daemon=True).start()

    # The keeper.

    def _keep(self) -> None:
        while True:
            with self._lock:
                due = self._next_keeping()
                while not self._over and (due is None or due > time.monotonic()):
                    self._keeper.wait(None if due is None else due - time.monotonic())
                    due = self._next_keeping()
                if self._over:
                    return
                session = self._session
                lane = self._register if session is None else self._heartbeat
                abort = lane.abort = Abort()
                holding = self._desk.holding()
            if session is None:
                self._register_once(abort)
            else:
                self._beat(session, abort, holding)

    def _next_keeping(self) -> float | None:
        """When to register or to heartbeat; None where nothing is to be done."""
        if self._session is not None:
            return self._heartbeat.not_before
        # A worker that stops registers again only to bring results.
        wanted = self._stop_by is None or self._desk.unanswered() > 0
        return self._register.not_before if wanted else None

    def _register_once(self, abort: Abort) -> None:
        contracts = [{"task_name": name, "contract_version": version} for name, version in self._setup.handlers]
        body = {
            "worker_id": self._setup.worker_id,
            "runtime": "python",
            "sdk": f"orbit-sdk-python/{VERSION}",
            "contracts": contracts,
        }
        try:
            session = self._ask(self._register, abort, json.dumps(body).encode()).read(_session)
        except Aborted:
            return
        except OrbitError as error:
            with self._lock:
                if not error.retryable and 400 <= error.status < 500 and not isinstance(error, Unexpected):
                    log.error("the server refuses this worker: %s", error)
                    self.error = error
                    self._end()
                else:
                    self._register.failed(error)
            return
        with self._lock:
            fields = {"worker_id": self._setup.worker_id, "tasks": len(contracts), "holding": self._desk.holding()}
            log.info("registered %s", json.dumps(fields, ensure_ascii=False))
            self._register.backoff.reset()
            self._heartbeat.not_before = time.monotonic() + session.interval
            self._poll.not_before = self._report.not_before = 0.0
            self._session = session
            self._wake_all()

    def _beat(self, session: _Session, abort: Abort, holding: list[str]) -> None:
        body = json.dumps({"session_id": session.id, "holding": holding}).encode()
        try:
            several = self._setup.transport.knows_several()
            least, most = HEARTBEAT_DEADLINE
            deadline = min(max(session.interval, least), most) if several else ANSWER_DEADLINE
            cancel = self._ask(self._heartbeat, abort, body, deadline).read(_cancel)
        except Aborted:
            return
        except OrbitError as error:
            with self._lock:
                if not self._lost(error, session):
                    self._heartbeat.failed(error)
            return
        with self._lock:
            self._heartbeat.backoff.reset()
            self._heartbeat.not_before = time.monotonic() + session.interval
            self._desk.cancel(cancel)

    # The poller.

    def _poll_on(self) -> None:
        while True:
            with self._lock:
                while not self._polls_now():
                    if self._over or self._stop_by is not None:
                        return
                    # Results that a poll would have taken along go in a report.
                    self._reporter.notify_all()
                    self._poller.wait(self._next_poll())
                session = self._session
                assert session is not None, "polls are made under a session"
                tokens, results = ([], []) if self._results_apart else self._desk.take_results()
                abort = self._poll.abort = Abort()
                self._poll.results = tokens
                # What did not fit goes in a report.
                self._reporter.notify_all()
                head = {
                    "session_id": session.id,
                    "max_tasks": self._free(),
                    "wait_ms": int(self._setup.poll_wait * 1000),
                    "holding": self._desk.holding(),
                }
            body = json.dumps(head).encode()
            if results:
                body = body[:-1] + b',"results":[' + b",".join(results) + b"]}"
            try:
                answer = self._ask(self._poll, abort, body, self._setup.poll_wait + ANSWER_DEADLINE)
                tasks, cancel, outcomes = answer.read(_polled)
            except Aborted:
                with self._lock:
                    self._desk.unsent(self._sent(self._poll))
                continue
            except OrbitError as error:
                with self._lock:
                    sent = self._sent(self._poll)
                    self._desk.unsent(sent)
                    if not self._lost(error, session):
                        self._results_apart |= bool(sent) and _is_refusal(error)
                        self._poll.failed(error)
                continue
            with self._lock:
                if self._over:
                    return
                sent = self._sent(self._poll)
                if self._desk.settle(sent, outcomes, session.id):
                    self._poll.backoff.reset()
                else:
                    self._poll.pause()
                    self._report.pause()
                self._desk.cancel(cancel)
                if tasks:
                    self._linger_until = time.monotonic() + LINGER
                    self._batch = {context.token for context, _ in tasks}
                for context, input in tasks:
                    self._execute(context, input, session)
                self._closer.notify_all()

    def _polls_now(self) -> bool:
        """Whether a poll may begin, if none is under way."""
        now = time.monotonic()
        if self._session is None or self._over or self._stop_by is not None or self._free() == 0:
            return False
        return now >= self._poll.not_before and not self._lingers(now)

    def _lingers(self, now: float) -> bool:
        """Whether more results are awaited for the next poll."""
        return now < self._linger_until and bool(self._batch) and self._free() > 0

    def _next_poll(self) -> float | None:
        """Seconds after which `_polls_now` may say something else by the passing of time."""
        if self._session is None or self._free() == 0:
            return None
        return max(max(self._poll.not_before, self._linger_until) - time.monotonic(), 0.0)

    def _free(self) -> int:
        """How many tasks may come. Results that no server takes for a while count too, so that they do not pile up."""
        if self._desk.unanswered() >= 4 * self._setup.concurrency:
            return 0
        return max(self._setup.concurrency - self._desk.running(), 0)

    def _execute(self, context: Context, input: Any, session: _Session) -> None:
        """Runs a task, unless it is here already."""
        if not self._desk.accept(context, lambda: self._runner.cancel(context), session.id):
            log.debug(line("was delivered again, and is here already", context))
            return
        log.info(line("executing", context), extra=context.fields())
        handler = self._setup.handlers.get((context.task_name, context.contract_version))
        if handler is None:
            failure = TaskFailure("UNKNOWN_TASK", "this worker never announced that task")
            self._desk.finish(context.token, failure_result(context.token, failure))
            self._batch.discard(context.token)
        else:
            self._runner.start(handler, context, input)

    def _finish(self, token: str, result: bytes) -> None:
        """A function has ended, with this result."""
        with self._lock:
            self._desk.finish(token, result)
            self._batch.discard(token)
            self._poller.notify_all()
            self._reporter.notify_all()
            self._closer.notify_all()
            if self._stop_by is not None:
                self._keeper.notify_all()

    # The reporter.

    def _report_on(self) -> None:
        while True:
            with self._lock:
                while not self._reports_now():
                    if self._over:
                        return
                    self._reporter.wait(self._next_report())
                session = self._session
                assert session is not None, "reports are made under a session"
                tokens, results = self._desk.take_results()
                abort = self._report.abort = Abort()
                self._report.results = tokens
            head = json.dumps({"session_id": session.id}).encode()
            body = head[:-1] + b',"results":[' + b",".join(results) + b"]}"
            try:
                outcomes = self._ask(self._report, abort, body).read(_outcomes)
            except Aborted:
                with self._lock:
                    self._desk.unsent(self._sent(self._report))
                continue
            except OrbitError as error:
                with self._lock:
                    sent = self._sent(self._report)
                    if self._lost(error, session):
                        self._desk.unsent(sent)
                    else:
                        if _is_refusal(error):
                            self._desk.refused_together(sent, error.code, error.message)
                        else:
                            self._desk.unsent(sent)
                        self._report.failed(error)
                continue
            with self._lock:
                if self._desk.settle(self._sent(self._report), outcomes, session.id):
                    self._report.backoff.reset()
                else:
                    self._poll.pause()
                    self._report.pause()
                if not self._desk.has_results_to_send():
                    self._results_apart = False
                self._poller.notify_all()
                self._closer.notify_all()

    def _reports_now(self) -> bool:
        """Whether a report may begin, if none is under way."""
        if self._session is None or self._over or not self._desk.has_results_to_send():
            return False
        # A poll that can begin takes the results along.
        now = time.monotonic()
        goes_with_poll = (
            self._poll.abort is None and not self._results_apart and (self._polls_now() or self._lingers(now))
        )
        return not goes_with_poll and now >= self._report.not_before

    def _next_report(self) -> float | None:
        """Seconds after which `_reports_now` may say something else by the passing of time."""
        if self._session is None or not self._desk.has_results_to_send():
            return None
        return max(self._report.not_before - time.monotonic(), 0.0) or None

    # The end.

    def _close(self) -> None:
        """Waits until everything is done or the time is over, then leaves."""
        with self._lock:
            while not self._over and (self._desk.running() or self._desk.unanswered()):
                assert self._stop_by is not None, "set by stop"
                left = self._stop_by - time.monotonic()
                if left <= 0:
                    break
                self._closer.wait(left)
            if self._over:
                return
            running, unanswered, session = self._desk.running(), self._desk.unanswered(), self._session
            if running or unanswered:
                fields = json.dumps({"running": running, "unanswered": unanswered})
                log.warning("stopped before everything was done; it will be delivered again %s", fields)
            self._session = None
            self._over = True
            for lane in (self._register, self._heartbeat, self._poll, self._report):
                self._cut(lane)
            self._desk.cancel(self._desk.holding())
            self._wake_all()
        self._runner.close()
        if session is not None:
            body = json.dumps({"session_id": session.id}).encode()
            goodbye = Call("POST", "/v1/workers/unregister", UNREGISTER_DEADLINE, body)
            try:
                self._setup.transport.call(goodbye).json()
            except OrbitError as error:
                log.debug("could not unregister: %s", error)
        self._setup.transport.close()
        log.info("stopped")
        self._ended()

    def _end(self) -> None:
        """The worker ends by itself: no server wants it."""
        if self._stop_by is None:
            self._stop_by = 0.0
            threading.Thread(target=self._close, name="orbit-closer", daemon=True).start()
        else:
            self._stop_by = 0.0
        self._cut(self._poll)
        self._wake_all()

    def _guarded(self, work: Callable[[], None]) -> None:
        """A mistake in this package ends the worker, which would seem to work otherwise."""
        try:
            work()
        except Exception as error:
            log.critical("the worker failed; please report this", exc_info=error)
            with self._lock:
                self.error = OrbitError("WORKER_FAILED", f"{type(error).__name__}: {error}", "please report this")
                self._end()

    # What they share.

    def _ask(self, lane: _Lane, abort: Abort, body: bytes, deadline: float = ANSWER_DEADLINE) -> Answer:
        try:
            return self._setup.transport.call(Call("POST", lane.path, deadline, body), abort)
        finally:
            with self._lock:
                lane.abort = None

    @staticmethod
    def _sent(lane: _Lane) -> list[str]:
        """The tokens whose results the request carried that has just ended."""
        sent, lane.results = lane.results, []
        return sent

    def _cut(self, lane: _Lane) -> None:
        """Ends the request of a lane, if one is under way. Results that it carried are sent again."""
        self._desk.unsent(self._sent(lane))
        if lane.abort is not None:
            lane.abort.abort()

    def _lost(self, error: OrbitError, session: _Session) -> bool:
        """Whether a request failed because its session is known no more.

        Then a new one is asked for, if that has not happened already.
        """
        if error.code != "UNKNOWN_SESSION":
            return False
        if self._session is session:
            still = time.monotonic() - self._heartbeat.not_before
            if still > session.timeout - session.interval:
                message = "this process stood still for about %.1fs, and its session lives %.1fs"
                log.warning(message, still, session.timeout)
            holding = json.dumps({"holding": self._desk.holding()}, ensure_ascii=False)
            log.warning("the server does not know this session any more; registering again %s", holding)
            self._session = None
            # What still waits for the old session cannot bring anything.
            for lane in (self._poll, self._report, self._heartbeat):
                self._cut(lane)
            self._wake_all()
        return True

    def _wake_all(self) -> None:
        for condition in (self._keeper, self._poller, self._reporter, self._closer):
            condition.notify_all()


def _session(body: dict[str, Any]) -> _Session:
    interval = max(body["heartbeat_interval_ms"] / 1000, 0.01)
    return _Session(str(body["session_id"]), interval, body["session_timeout_ms"] / 1000)


def _polled(body: dict[str, Any]) -> tuple[list[tuple[Context, Any]], list[str], list[Outcome]]:
    tasks = [(Context(one), one.get("input")) for one in body.get("tasks", ())]
    return tasks, _cancel(body), _outcomes({"outcomes": (), **body})


def _cancel(body: dict[str, Any]) -> list[str]:
    return [str(token) for token in body.get("cancel", ())]


def _outcomes(body: dict[str, Any]) -> list[Outcome]:
    return [_outcome(one) for one in body["outcomes"]]


def _outcome(body: dict[str, Any]) -> Outcome:
    error = body.get("error") or {}
    return Outcome(body["token"], body["outcome"], str(error.get("code", "")), str(error.get("message", "")))


def _is_refusal(error: OrbitError) -> bool:
    """Whether a server refused what a request holds, so that the same again would be refused again."""
    return not error.retryable and error.status in (400, 413, 422) and not isinstance(error, Unexpected)
