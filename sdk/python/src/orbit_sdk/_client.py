"""The client: what programs ask of a server."""

from __future__ import annotations

import ssl
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from . import _models as models
from ._backoff import Backoff
from ._errors import OrbitError
from ._json import encode
from ._models import (
    Deployed,
    Event,
    Execution,
    ExecutionSummary,
    Signalled,
    Started,
    Updated,
    WorkerInfo,
    WorkflowSummary,
)
from ._transport import Answer, Call, Transport, query_value, segment

#: How much longer than the wait itself the answer to a wait may take, in seconds.
_WAIT_MARGIN = 15.0
#: The longest wait of one request; longer ones are made of several (the API allows 300 s).
_WAIT_SLICE = 60.0
#: The most rows and events that one request asks for (the API allows 1000).
_PAGE = 500


class Client:
    """A client of one server or of several that share their work. May be used by several threads at once.

    Each call asks the servers in turn until one answers, and raises `OrbitError` where it cannot be done.

    `servers`: `http://host:port` or `https://host:port`; several by comma or as a list.
    `token`: the bearer token that the servers want.
    `timeout`: seconds that each server has for its answer.
    `patience`: for so many seconds, calls are repeated while no server serves; 0 gives up after one round.
    `ssl_context`: for `https`; Python's default without it.
    """

    def __init__(
        self,
        servers: str | Iterable[str] = "http://127.0.0.1:7233",
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 0.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}; give a number of seconds above 0")
        self._transport = Transport(servers, token, ssl_context)
        self._timeout = timeout
        self._patience = patience

    def deploy(self, definition: str | bytes | Mapping[str, Any], *, strict: bool = False) -> Deployed:
        """Deploys a definition: its text (YAML or JSON), or what such a text says.

        The same content again is `unchanged`; other content under the same version is refused with
        `DEFINITION_CONFLICT`. `OrbitError.details["problems"]` lists what is wrong with one that is invalid. `strict`
        refuses one with warnings, with `DEFINITION_WARNINGS`.
        """
        if isinstance(definition, Mapping):
            body, content_type = encode(dict(definition), "definition"), "application/json"
        else:
            body = definition.encode() if isinstance(definition, str) else definition
            content_type = "application/json" if body.lstrip()[:1] == b"{" else "application/yaml"
        path = "/v1/workflows?strict=true" if strict else "/v1/workflows"
        answer = self._ask(Call("POST", path, self._timeout, body, content_type))
        return answer.read(models.deployed)

    def workflows(self) -> Sequence[WorkflowSummary]:
        """Every deployed version."""
        return self._get("/v1/workflows").read(_workflows)

    def start(
        self,
        workflow: str,
        input: Any = None,
        *,
        execution_id: str | None = None,
        version: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Started:
        """Starts an execution. It is durable once this returns.

        `version`: the newest deployed without it. `execution_id`: starting twice with the same id starts once; drawn
        without it. `labels`: what people search by.
        """
        # The call always carries an id, so that it may be repeated.
        body: dict[str, Any] = {"workflow": workflow, "execution_id": execution_id or str(uuid.uuid4())}
        if version is not None:
            body["version"] = version
        if labels:
            body["labels"] = dict(labels)
        text = encode(body, "start")[:-1] + b',"input":' + encode(input, "input") + b"}"
        started = self._ask(Call("POST", "/v1/executions", self._timeout, text)).read(models.started)
        if execution_id is None and not started.created:
            # Nobody else can have drawn the same id: this answer speaks of the call's own first sending.
            return Started(started.execution_id, started.status, True, started.workflow, started.version)
        return started

    def get(self, execution_id: str) -> Execution:
        """An execution, with its input and what came of it."""
        return self._get(f"/v1/executions/{segment(execution_id)}").read(models.execution)

    def list(
        self,
        *,
        status: str | None = None,
        workflow: str | None = None,
        labels: Mapping[str, str] | None = None,
        since_ms: int | None = None,
        limit: int | None = None,
    ) -> Iterator[ExecutionSummary]:
        """Executions, newest first; page after page is asked for as the iteration goes on.

        What is absent filters nothing. `labels`: all of these. `since_ms`: created at this time or later. `limit`: at
        most so many.
        """
        filters = [("status", status), ("workflow", workflow), ("since", since_ms)]
        query = [f"{name}={query_value(str(value))}" for name, value in filters if value is not None]
        query += [f"label={query_value(f'{key}={value}')}" for key, value in (labels or {}).items()]
        left = limit
        cursor: str | None = None
        while left is None or left > 0:
            page = _PAGE if left is None else min(left, _PAGE)
            parts = [*query, f"limit={page}"] + ([f"cursor={query_value(cursor)}"] if cursor else [])
            rows, cursor = self._get("/v1/executions?" + "&".join(parts)).read(_executions)
            yield from rows
            if cursor is None:
                return
            left = None if left is None else left - len(rows)

    def history(self, execution_id: str, after: int = 0, *, run: int | None = None) -> Iterator[Event]:
        """The events of an execution after number `after`, in their order; page after page is asked for.

        `run`: of this run, where the execution has continued as new; the newest without it.
        """
        path = f"/v1/executions/{segment(execution_id)}/history?limit={_PAGE}"
        more = True
        while more:
            of_run = "" if run is None else f"&run={run}"
            events, more, run = self._get(f"{path}{of_run}&after_seq={after}").read(_events)
            yield from events
            after = events[-1].seq if events else after
            more = more and bool(events)

    def wait(self, execution_id: str, timeout: float | None = None) -> Execution:
        """Waits until the execution has ended, or for so many seconds: `Execution.finished` tells which.

        Without a timeout it waits for as long as it takes. A wait that loses its server goes on with the next one.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = _WAIT_SLICE if end is None else max(end - time.monotonic(), 0.0)
            piece = min(left, _WAIT_SLICE)
            path = f"/v1/executions/{segment(execution_id)}/wait?timeout_ms={int(piece * 1000)}"
            execution = self._ask(Call("GET", path, piece + _WAIT_MARGIN)).read(models.execution)
            if execution.finished or (end is not None and time.monotonic() >= end):
                return execution

    def signal(self, execution_id: str, name: str, payload: Any = None, *, signal_id: str | None = None) -> Signalled:
        """Sends a signal that the workflow declares; gives where it stands in the history.

        It is durable once this returns, and waits until a step or a handler takes it. `signal_id`: sending twice with the
        same id sends once; drawn without it.
        """
        path = f"/v1/executions/{segment(execution_id)}/signals/{segment(name)}"
        return self._send(path, payload, "signal_id", signal_id).read(models.signalled)

    def update(self, execution_id: str, name: str, payload: Any = None, *, update_id: str | None = None) -> Updated:
        """Sends an update that the workflow declares, and gives what the workflow answers.

        One that it does not take raises `OrbitError` with the code `UPDATE_REJECTED`. `update_id`: sending twice with the
        same id sends once, and gives the first answer; drawn without it.
        """
        path = f"/v1/executions/{segment(execution_id)}/updates/{segment(name)}"
        return self._send(path, payload, "update_id", update_id).read(models.updated)

    def query(self, execution_id: str, name: str) -> Any:
        """The value of a query that the workflow declares, as the execution stands, or stood at its end."""
        return self._get(f"/v1/executions/{segment(execution_id)}/queries/{segment(name)}").read(_result)

    def cancel(self, execution_id: str, reason: str | None = None) -> Execution:
        """Asks for the end of an execution; what the server answers is how it stands then.

        What the execution did is undone as its definition says.
        """
        return self._end(execution_id, "cancel", reason)

    def terminate(self, execution_id: str, reason: str | None = None) -> Execution:
        """Ends an execution at once: nothing is undone, and no handler runs."""
        return self._end(execution_id, "terminate", reason)

    def recover(self, execution_id: str, reason: str | None = None) -> Execution:
        """Lets an execution go on that was held when a server took over."""
        return self._end(execution_id, "recover", reason)

    def release(self, execution_id: str) -> Execution:
        """Tries an execution again that is quarantined."""
        return self._end(execution_id, "release", None)

    def workers(self) -> Sequence[WorkerInfo]:
        """The workers that registered, now or earlier."""
        return self._get("/v1/workers").read(_workers)

    def health(self) -> Mapping[str, Any]:
        """What a running server says of itself."""
        return self._get("/v1/health").read(_health)

    def close(self) -> None:
        """Closes the connections that are kept. The client may be used again."""
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _end(self, execution_id: str, how: str, reason: str | None) -> Execution:
        body = encode({} if reason is None else {"reason": reason}, how)
        call = Call("POST", f"/v1/executions/{segment(execution_id)}/{how}", self._timeout, body)
        return self._ask(call).read(models.execution)

    def _send(self, path: str, payload: Any, key: str, id: str | None) -> Answer:
        # The call always carries an id, so that it may be repeated.
        head = encode({key: str(uuid.uuid4()) if id is None else id}, key)
        text = head[:-1] + b',"payload":' + encode(payload, "payload") + b"}"
        return self._ask(Call("POST", path, self._timeout, text))

    def _get(self, path: str) -> Answer:
        return self._ask(Call("GET", path, self._timeout))

    def _ask(self, call: Call) -> Answer:
        """Makes a call, and repeats it while that may help and the patience lasts."""
        begun = time.monotonic()
        backoff = Backoff()
        while True:
            error: OrbitError | None = None
            answer: Answer | None = None
            pause = backoff.next()
            try:
                answer = self._transport.call(call)
            except OrbitError as unreachable:
                error = unreachable
            else:
                if answer.status not in (429, 502, 503, 504):
                    return answer
                pause = max(pause, answer.retry_after if answer.status == 429 else 0.0)
            if time.monotonic() - begun + pause >= self._patience:
                if answer is None:
                    assert error is not None, "a call gives an answer or an error"
                    raise error
                return answer
            time.sleep(pause)


def _result(body: Any) -> Any:
    return body["result"]


def _workflows(body: Any) -> Sequence[WorkflowSummary]:
    return [models.workflow_summary(one) for one in body["workflows"]]


def _workers(body: Any) -> Sequence[WorkerInfo]:
    return [models.worker_info(one) for one in body["workers"]]


def _health(body: Any) -> Mapping[str, Any]:
    return dict(body)


def _executions(body: Any) -> tuple[Sequence[ExecutionSummary], str | None]:
    return [models.execution_summary(one) for one in body["executions"]], body.get("next_cursor")


def _events(body: Any) -> tuple[Sequence[Event], bool, int | None]:
    """Events, whether more follow, and of which run: numbers begin again with each."""
    return [models.event(one) for one in body["events"]], bool(body.get("more")), body.get("run")
