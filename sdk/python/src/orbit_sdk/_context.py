"""What a task's function is told beside its input, and how it says that it failed."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any


class TaskFailure(Exception):
    """Raised by a task's function: the attempt failed. Whether the step is tried again, its `retry` and this say.

    `code`: what the definition's `non_retryable` names, 1 to 128 bytes: `CARD_DECLINED` …
    `message`: for people. `retryable`: False where no other attempt would help. `details`: any JSON, for programs.
    """

    def __init__(self, code: str, message: str = "", *, retryable: bool = True, details: Any = None) -> None:
        if not isinstance(code, str) or not 1 <= len(code.encode("utf-8", "replace")) <= 128:
            raise ValueError(f"the code of a failure is a text of 1 to 128 bytes, not {code!r}")
        super().__init__(code, message)
        self.code = code
        self.message = str(message)
        self.retryable = bool(retryable)
        self.details = details

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" if self.message else self.code


class Cancelled(BaseException):
    """Raised by `Context.check` once the result is not wanted any more.

    Like `asyncio.CancelledError` it is no `Exception`, so that a handler of errors does not take it for one.
    """


class Context:
    """What a task's function knows of the task that it runs."""

    def __init__(self, task: Mapping[str, Any]) -> None:
        #: Names this delivery.
        self.token: str = task["token"]
        #: The execution that waits for the result.
        self.execution_id: str = task["execution_id"]
        self.workflow: str = task["workflow"]
        self.workflow_version: str = task["workflow_version"]
        #: The step that this task is.
        self.step_id: str = task["step_id"]
        self.task_name: str = task["task_name"]
        self.contract_version: str = task["contract_version"]
        #: The same for every delivery of every attempt of this step. Hand it to whatever must happen only once.
        self.idempotency_key: str = task["idempotency_key"]
        #: The first attempt is 1.
        self.attempt: int = task["attempt"]
        #: Whether an earlier delivery of this attempt may have run: look first whether its work is done already.
        #:
        #: False is no proof: a worker that stood still for longer than its session lives reads a first delivery, which
        #: has no flag, after its repetition has gone to another. What must happen only once needs `idempotency_key`.
        self.redelivery: bool = bool(task.get("redelivery", False))
        #: Set once the result is not wanted any more: the attempt has timed out, the execution is ending, or another
        #: worker has the task. What the function returns after that is dropped.
        self.cancelled = threading.Event()
        timeout_ms = task.get("timeout_ms")
        self._deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1000

    def check(self) -> None:
        """Raises `Cancelled` if the result is not wanted any more."""
        if self.cancelled.is_set():
            raise Cancelled

    def remaining(self) -> float | None:
        """Seconds until the attempt times out, at least 0; None if it does not.

        Counted from when the task came in, so slightly too long.
        """
        return None if self._deadline is None else max(self._deadline - time.monotonic(), 0.0)

    def fields(self) -> dict[str, Any]:
        """What log lines about this task say: `log.info("charging", extra=ctx.fields())`."""
        return {
            "execution_id": self.execution_id,
            "step": self.step_id,
            "attempt": self.attempt,
            "task": self.task_name,
            "redelivery": self.redelivery,
        }
