"""The answers of the API, as a program sees them. Unknown fields are ignored, so that a newer server is understood.

Times are milliseconds since 1970, by the server's database.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: Statuses after which nothing more happens.
ENDS = frozenset({"completed", "failed", "cancelled", "timed_out", "terminated"})


@dataclass(frozen=True)
class Problem:
    """Something that is wrong, or hardly meant, in a definition."""

    #: A JSON pointer to the place, such as `/steps/2/after/0`.
    path: str
    message: str
    #: What would be right.
    hint: str = ""
    #: The place in the text that was sent, both counted from 1.
    line: int | None = None
    column: int | None = None


@dataclass(frozen=True)
class Deployed:
    """The answer to a deployment."""

    name: str
    version: str
    definition_hash: str
    #: `created`, or `unchanged` where the same content stood there already.
    result: str
    #: What is allowed, and hardly meant.
    warnings: Sequence[Problem] = ()


@dataclass(frozen=True)
class WorkflowSummary:
    """One deployed version of a workflow."""

    name: str
    version: str
    definition_hash: str
    created_at_ms: int
    description: str | None = None
    #: Whether a start without a version takes this one.
    latest: bool = False


@dataclass(frozen=True)
class Started:
    """The answer to a start."""

    execution_id: str
    status: str
    #: Whether this call started it; false where the same start had been made before.
    created: bool
    workflow: str
    version: str


@dataclass(frozen=True)
class Failure:
    """Why an execution failed."""

    code: str
    message: str = ""
    retryable: bool = False
    details: Any = None
    #: The step that failed.
    step: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExecutionSummary:
    """A row of a list of executions."""

    execution_id: str
    workflow: str
    version: str
    #: `running`, `held`, `quarantined`, `completed`, `failed`, `cancelled`, `timed_out` or `terminated`.
    status: str
    created_at_ms: int
    updated_at_ms: int
    labels: Mapping[str, str] = field(default_factory=dict)
    #: The newest run. The first is 1; continue-as-new begins the next one.
    run: int = 1

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.status in ENDS


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A step that has begun and not ended, and what it waits for. Which fields are set depends on the reason."""

    step_id: str
    #: `task`, `sleep`, `compute`, `await`, `for`, `workflow` or `continue_as_new`.
    kind: str
    #: When it began to wait for this.
    since_ms: int
    #: `no_worker`, `queued`, `running`, `retry`, `sleep`, `signal`, `update`, `items`, `child` or `server`: see the API's
    #: reference.
    reason: str
    #: What of the step it is, where it is not the step as a whole: `ship[3]`, `compensate:charge`, `on_failure/tell`.
    unit: str | None = None
    task_name: str | None = None
    contract_version: str | None = None
    #: Which attempt it is, or with `retry` will be; the first is 1.
    attempt: int | None = None
    max_attempts: int | None = None
    #: Why the attempt before failed.
    last_error: Failure | None = None
    #: The versions in which the task is offered, where nobody offers the one that is wanted.
    other_versions: Sequence[str] = ()
    #: Worker sessions that offer the task.
    sessions: int | None = None
    #: Who has it.
    worker_id: str | None = None
    #: When a running attempt is given up.
    deadline_ms: int | None = None
    #: The session that has it, where the server knows.
    session_id: str | None = None
    #: For how long that session has not been heard from.
    silent_ms: int | None = None
    #: When it is offered again, unless its worker is heard from before.
    offered_again_ms: int | None = None
    #: When its worker id registered again since.
    registered_again_ms: int | None = None
    #: When it goes on.
    until_ms: int | None = None
    #: The signal that is awaited, or the update.
    signal: str | None = None
    update: str | None = None
    #: The child that runs.
    execution_id: str | None = None
    #: Items of a `for` step, and how many of them have ended.
    items: int | None = None
    ended: int | None = None


@dataclass(frozen=True)
class Parent:
    """The execution that started another one as its child."""

    execution_id: str
    #: The step that waits, or the item: `pay`, `ship[3]`.
    step: str


@dataclass(frozen=True, kw_only=True)
class Execution(ExecutionSummary):
    """An execution, with what it was given and what it gave."""

    #: The number of its last event.
    last_seq: int
    input: Any = None
    #: Once completed.
    output: Any = None
    #: Once failed.
    error: Failure | None = None
    #: Why it is held, or quarantined.
    reason: str | None = None
    #: Why it was cancelled or terminated, where a reason was given.
    cancel_reason: str | None = None
    #: What it waits for while it runs: an entry for each step that has begun and not ended.
    waiting: Sequence[Waiting] = ()
    #: Whose child it is.
    parent: Parent | None = None


@dataclass(frozen=True)
class Signalled:
    """A signal that an execution has."""

    #: Its number in the history of the run that took it in; of a repetition that of the first.
    seq: int
    #: That run; of a repetition that of the first.
    run: int


@dataclass(frozen=True)
class Updated:
    """An update that a workflow took."""

    #: Its number in the history of the run that took it; of a repetition that of the first.
    seq: int
    #: That run; of a repetition that of the first.
    run: int
    #: What the workflow answers.
    result: Any = None


@dataclass(frozen=True)
class Event:
    """One event of a history. Which `fields` there are depends on the type."""

    #: Its position.
    seq: int
    at_ms: int
    #: `StepScheduled`, `StepSucceeded` …
    type: str
    fields: Mapping[str, Any]

    @property
    def step(self) -> str | None:
        """The step that the event is about, if it is about one."""
        step = self.fields.get("step")
        return step if isinstance(step, str) else None


@dataclass(frozen=True)
class Contract:
    """A task that a worker can run."""

    task_name: str
    contract_version: str = "1"


@dataclass(frozen=True)
class SessionInfo:
    """A worker session that is alive."""

    session_id: str
    registered_ms: int
    last_seen_ms: int
    #: Tasks that it holds.
    holding: int


@dataclass(frozen=True)
class WorkerInfo:
    """A worker that registered, now or earlier."""

    worker_id: str
    runtime: str
    contracts: Sequence[Contract]
    last_seen_ms: int
    sdk: str | None = None
    #: Its sessions that are alive.
    sessions: int = 0
    #: Tasks that they hold.
    holding: int = 0
    #: Those sessions, in the order in which they registered.
    open_sessions: Sequence[SessionInfo] = ()


def deployed(body: dict[str, Any]) -> Deployed:
    warnings = [problem(one) for one in body.get("warnings", ())]
    return Deployed(body["name"], body["version"], body["definition_hash"], body["result"], warnings)


def problem(body: dict[str, Any]) -> Problem:
    return Problem(body["path"], body["message"], body.get("hint", ""), body.get("line"), body.get("column"))


def workflow_summary(body: dict[str, Any]) -> WorkflowSummary:
    return WorkflowSummary(
        body["name"],
        body["version"],
        body["definition_hash"],
        body["created_at_ms"],
        body.get("description"),
        body.get("latest", False),
    )


def started(body: dict[str, Any]) -> Started:
    return Started(body["execution_id"], body["status"], body["created"], body["workflow"], body["version"])


def failure(body: dict[str, Any]) -> Failure:
    return Failure(
        body["code"], body.get("message", ""), body.get("retryable", False), body.get("details"), body.get("step")
    )


def _summary(body: dict[str, Any]) -> dict[str, Any]:
    names = ("execution_id", "workflow", "version", "status", "created_at_ms", "updated_at_ms")
    return {**{name: body[name] for name in names}, "labels": body.get("labels", {}), "run": body["run"]}


def execution_summary(body: dict[str, Any]) -> ExecutionSummary:
    return ExecutionSummary(**_summary(body))


def execution(body: dict[str, Any]) -> Execution:
    return Execution(
        **_summary(body),
        last_seq=body["last_seq"],
        input=body.get("input"),
        output=body.get("output"),
        error=failure(body["error"]) if body.get("error") else None,
        reason=body.get("reason"),
        cancel_reason=body.get("cancel_reason"),
        waiting=[waiting(one) for one in body.get("waiting", ())],
        parent=Parent(body["parent"]["execution_id"], body["parent"]["step"]) if body.get("parent") else None,
    )


def waiting(body: dict[str, Any]) -> Waiting:
    known = {name: body[name] for name in Waiting.__dataclass_fields__ if name in body}
    if "last_error" in known:
        known["last_error"] = failure(known["last_error"])
    return Waiting(**known)


def signalled(body: dict[str, Any]) -> Signalled:
    return Signalled(body["seq"], body["run"])


def updated(body: dict[str, Any]) -> Updated:
    return Updated(body["seq"], body["run"], body["result"])


def event(body: dict[str, Any]) -> Event:
    fields = {name: value for name, value in body.items() if name not in ("seq", "at_ms", "type")}
    return Event(body["seq"], body["at_ms"], body["type"], fields)


def worker_info(body: dict[str, Any]) -> WorkerInfo:
    contracts = [Contract(one["task_name"], one.get("contract_version", "1")) for one in body["contracts"]]
    open_sessions = body.get("open_sessions", ())
    return WorkerInfo(
        body["worker_id"],
        body["runtime"],
        contracts,
        body["last_seen_ms"],
        body.get("sdk"),
        body.get("sessions", 0),
        body.get("holding", 0),
        [SessionInfo(**{name: one[name] for name in SessionInfo.__dataclass_fields__}) for one in open_sessions],
    )
