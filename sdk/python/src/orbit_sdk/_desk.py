"""What lies on a worker's desk: the tasks that it runs, and the results that no server has answered yet.

A result stays until a server has said what became of it, whatever happens to sessions and connections meanwhile. The
desk has no lock of its own: the engine holds its own around every call.
"""

from __future__ import annotations

import enum
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ._context import Context, TaskFailure
from ._json import NotJson, encode, plain

log = logging.getLogger("orbit")

#: Tokens that are remembered after their end.
REMEMBERED = 1024
#: Bytes of results in one request: well below the largest body that a server takes (4 MiB).
BATCH_BYTES = 1 << 20
#: Results in one request (the API allows 1000).
BATCH_RESULTS = 500
#: Characters of a failure's message that are sent.
LONGEST_MESSAGE = 8000

#: Refusals that speak of the server's state rather than of the result: it is sent again.
PASSING = frozenset({"STORAGE_ERROR", "OUTCOME_UNKNOWN", "NOT_READY", "NOT_LEADER", "FENCED", "RESOURCE_EXHAUSTED"})
#: Refusals after which nothing waits for the result.
MOOT = frozenset({"UNKNOWN_TOKEN", "EXECUTION_FINISHED", "UNKNOWN_EXECUTION"})


class _State(enum.Enum):
    #: Its function runs.
    RUNNING = 1
    #: Its function still runs, but nobody wants the result.
    CANCELLED = 2
    #: Its function has ended, and there is a result.
    FINISHED = 3


class _Held:
    def __init__(self, context: Context, cancel: Callable[[], None], session: str) -> None:
        self.context = context
        self.cancel = cancel
        #: The session under which it came.
        self.session = session
        self.state = _State.RUNNING
        #: What a request says of it.
        self.result = b""
        #: Whether a request with the result is under way.
        self.sent = False
        #: Whether the server refused what the function returned, and this says so.
        self.replaced = False


class Outcome(NamedTuple):
    """What became of one reported result."""

    token: str
    #: `accepted`, `duplicate`, `stale` or `refused`.
    outcome: str
    #: Why it was refused.
    code: str = ""
    message: str = ""


def line(what: str, context: Context, /, **more: Any) -> str:
    """A log line about a task, in the form that the server's documents show."""
    return f"{what} {json.dumps({**context.fields(), **more}, ensure_ascii=False)}"


def output_result(token: str, output: Any) -> bytes:
    """What a report says of a success. Raises `NotJson`."""
    return b'{"token":%s,"output":%s}' % (encode(token, "token"), encode(output, "output"))


def failure_result(token: str, failure: TaskFailure) -> bytes:
    """What a report says of a failure."""
    error: dict[str, Any] = {
        "code": plain(failure.code),
        "message": plain(failure.message[:LONGEST_MESSAGE]),
        "retryable": failure.retryable,
    }
    if failure.details is not None:
        try:
            encode(failure.details, "details")
            error["details"] = failure.details
        except NotJson as problem:
            error["details"] = {"unreadable": plain(str(problem))}
    return b'{"token":%s,"error":%s}' % (encode(token, "token"), encode(error, "error"))


class Desk:
    """See the module."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        #: Tokens that have results, in the order in which they came.
        self._finished: dict[str, None] = {}
        #: Tokens that were here, so that one that is answered again late does not run again.
        self._past: dict[str, None] = {}
        #: Results of requests that were refused as a whole: each is sent alone until a server has answered it, which
        #: shows whose fault it was. Whatever else is answered meanwhile, they do not come together again.
        self._suspects: set[str] = set()

    def accept(self, context: Context, cancel: Callable[[], None], session: str) -> bool:
        """Takes a delivery; false if it is here already, or was. `cancel` is called if nobody wants it any more."""
        if context.token in self._held or context.token in self._past:
            return False
        self._held[context.token] = _Held(context, cancel, session)
        return True

    def finish(self, token: str, result: bytes) -> None:
        """A function ended. Its result is kept unless nobody wants it."""
        held = self._held.get(token)
        if held is None or held.state is _State.FINISHED:
            return
        if held.state is _State.CANCELLED:
            log.debug(line("ended after it was cancelled; its result is dropped", held.context))
            self._forget(token)
            return
        held.state = _State.FINISHED
        held.result = result
        self._finished[token] = None
        log.debug(line("ended", held.context))

    def cancel(self, tokens: Iterable[str]) -> None:
        """The server wants no result for these: their functions are told.

        Results that are there already stay until the server has answered them.
        """
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.state is _State.RUNNING:
                held.state = _State.CANCELLED
                log.info(line("cancelled", held.context), extra=held.context.fields())
                held.cancel()

    def take_results(self) -> tuple[list[str], list[bytes]]:
        """Tokens and results to send now, at most what one request takes.

        They count as under way until `settle` or `unsent`.
        """
        tokens: list[str] = []
        results: list[bytes] = []
        room = BATCH_BYTES
        for token in self._finished:
            held = self._held[token]
            if held.sent:
                continue
            alone = token in self._suspects
            if tokens and (alone or len(held.result) > room or len(tokens) == BATCH_RESULTS):
                break
            room -= len(held.result)
            held.sent = True
            tokens.append(token)
            results.append(held.result)
            if alone:
                break
        return tokens, results

    def has_results_to_send(self) -> bool:
        """Whether `take_results` would give anything."""
        return any(not self._held[token].sent for token in self._finished)

    def unsent(self, tokens: Iterable[str]) -> int:
        """A request with these results has no answer: they are sent again. Says how many there are."""
        count = 0
        for token in tokens:
            held = self._held.get(token)
            if held is not None and held.sent:
                held.sent = False
                count += 1
        return count

    def settle(self, sent: Sequence[str], outcomes: Iterable[Outcome], session: str) -> bool:
        """A server answered a request of this session with the results of these tokens.

        False where some have to be sent again: it could not take them just now, or said nothing about them.
        """
        for token, outcome, code, message in outcomes:
            held = self._held.get(token)
            if held is None:
                continue
            if outcome == "refused":
                if code not in PASSING:
                    self._refused(token, code, message)
                continue
            if outcome == "stale":
                log.warning(line("the result came too late: nothing waits for it any more", held.context))
            elif held.session != session:
                log.info(line(f"a result of an earlier session was {outcome}", held.context))
            else:
                log.debug(line(f"the result was {outcome}", held.context))
            self._forget(token)
        return self.unsent(sent) == 0

    def refused_together(self, tokens: Sequence[str], code: str, message: str) -> None:
        """A request with these results was refused as a whole, for what it holds."""
        if len(tokens) == 1:
            self._refused(tokens[0], code, message)
        else:
            self._suspects.update(tokens)
            self.unsent(tokens)

    def _refused(self, token: str, code: str, message: str) -> None:
        """A result that the server will never take becomes a failure that says so, unless nothing waits for it.

        A step whose result stayed away silently would wait for ever.
        """
        self._suspects.discard(token)
        held = self._held.get(token)
        if held is None or held.state is not _State.FINISHED:
            return
        log.warning(line("the server refused the result", held.context, code=code, message=message))
        if code in MOOT or held.replaced:
            self._forget(token)
            return
        failure = TaskFailure(
            code[:128] or "RESULT_REFUSED",
            f"the server refused the task's result: {message[:1000]}",
            retryable=False,
        )
        held.result = failure_result(token, failure)
        held.sent = False
        held.replaced = True

    def holding(self) -> list[str]:
        """The tokens to name to the server: all but those that nobody wants."""
        return [token for token, held in self._held.items() if held.state is not _State.CANCELLED]

    def running(self) -> int:
        """Functions that run, those of cancelled tasks too."""
        return len(self._held) - len(self._finished)

    def unanswered(self) -> int:
        """Results that no server has answered."""
        return len(self._finished)

    def _forget(self, token: str) -> None:
        del self._held[token]
        self._finished.pop(token, None)
        self._suspects.discard(token)
        if len(self._past) == REMEMBERED:
            del self._past[next(iter(self._past))]
        self._past[token] = None
