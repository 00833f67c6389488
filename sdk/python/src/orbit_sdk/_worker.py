"""The worker: tasks by decorator, and the program's end."""

from __future__ import annotations

import inspect
import os
import queue
import re
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any, TypeVar

from ._engine import Engine, Setup
from ._errors import OrbitError
from ._transport import Transport

_F = TypeVar("_F", bound=Callable[..., Any])


#: What definitions can name: the book, "Workflow definitions".
_TASK_NAME = re.compile("[A-Za-z][A-Za-z0-9_.:/-]{0,127}")
_TASK_NAME_RULE = "it begins with a letter and goes on with letters, digits and `_ . : / -`, at most 128 characters"
_VERSION = re.compile("[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_VERSION_RULE = "it begins with a letter or digit and goes on with letters, digits and `_ . + -`, at most 64 characters"


class Worker:
    """Runs tasks for one server, or for several that share their work.

        worker = Worker("http://127.0.0.1:7233", worker_id="payments-1")

        @worker.task("payments.charge", contract_version="1")
        def charge(ctx, input):
            return {"charge": ctx.idempotency_key}

        worker.run()

    `servers`: `http://host:port` or `https://host:port`; several by comma or as a list.
    `worker_id`: the worker's name, for people: it stands in histories and lists. Host name and process id without it.
    `concurrency`: how many functions run at the same time, 1 to 1000.
    `token`: the bearer token that the servers want.
    `poll_wait`: seconds that a poll waits for tasks before it is renewed; a server allows 60.
    `grace`: seconds that running functions have to end when the worker stops, and their results to arrive.
    `ssl_context`: for `https`; Python's default without it.

    Progress is logged to `logging.getLogger("orbit")`.
    """

    def __init__(
        self,
        servers: str | Iterable[str] = "http://127.0.0.1:7233",
        worker_id: str | None = None,
        concurrency: int = 8,
        *,
        token: str | None = None,
        poll_wait: float = 20.0,
        grace: float = 30.0,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        if not 1 <= concurrency <= 1000:
            raise ValueError(f"concurrency is {concurrency}; give 1 to 1000")
        if not 0 <= poll_wait <= 60:
            raise ValueError(f"poll_wait is {poll_wait} s; a server allows 0 to 60 s")
        if grace < 0:
            raise ValueError(f"grace is {grace} s; give 0 s or more")
        if worker_id is not None and not worker_id:
            raise ValueError("the worker id is empty; give it a name")
        self.worker_id = worker_id or f"{socket.gethostname()}-{os.getpid()}"
        self._transport = Transport(servers, token, ssl_context)
        self._concurrency = concurrency
        self._poll_wait = poll_wait
        self._grace = grace
        self._handlers: dict[tuple[str, str], Callable[..., Any]] = {}
        self._engine: Engine | None = None
        self._over = threading.Event()

    def task(self, name: str, contract_version: str = "1") -> Callable[[_F], _F]:
        """Makes a function the one that runs this task.

        The function is called with a `Context` and the task's input, and returns its output: what JSON can say. It may
        be `async`: then it runs on an event loop that all `async` tasks share, and must not block. What is not `async`
        runs on a thread of its own.

        It fails by raising `TaskFailure`; any other exception is a failure with code `EXCEPTION`, which the step's
        `retry` may repeat.
        """
        if not isinstance(name, str) or not name:
            raise TypeError('a task has a name: @worker.task("payments.charge")')
        if not isinstance(contract_version, str) or not contract_version:
            raise TypeError(f'a contract version is a text: contract_version="1", not {contract_version!r}')
        # No definition could name it: the function would never be called, and nobody would say why.
        if not _TASK_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a task: {_TASK_NAME_RULE}")
        if not _VERSION.fullmatch(contract_version):
            raise ValueError(f"{contract_version!r} is no contract version: {_VERSION_RULE}")

        def add(function: _F) -> _F:
            if self._engine is not None:
                raise RuntimeError(f"the worker runs already; add the task {name} before it starts")
            if (name, contract_version) in self._handlers:
                raise ValueError(f"the task {name} with contract version {contract_version} has a function already")
            try:
                inspect.signature(function).bind(None, None)
            except TypeError:
                raise TypeError(f"the function of task {name} takes two arguments: (ctx, input)") from None
            except ValueError:
                pass  # Some functions that are written in C do not say what they take.
            self._handlers[name, contract_version] = function
            return function

        return add

    def run(self) -> None:
        """Works until SIGTERM or SIGINT; then takes nothing new, lets running functions end for the grace time, reports
        and unregisters. A second signal ends the wait for them.

        Servers that are away are waited for, for as long as it takes. `OrbitError` means that no wait would help: the
        credentials are wrong, or the registration is refused. Outside the main thread no signal is heeded.
        """
        # `put` of this queue may be called wherever a signal finds the main thread.
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        restore: list[tuple[signal.Signals, Any]] = []

        def on_signal(number: int, frame: FrameType | None) -> None:
            told.put("signal")

        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGTERM, signal.SIGINT):
                restore.append((one, signal.signal(one, on_signal)))
        try:
            engine = self._start(lambda: told.put("over"))
            grace = self._grace
            while told.get() == "signal":
                engine.stop(grace)
                grace = 0.0
        finally:
            for one, before in restore:
                # Python does not know a handler that something else than Python set.
                signal.signal(one, signal.SIG_DFL if before is None else before)
        if engine.error is not None:
            raise engine.error

    def start(self) -> None:
        """Begins to work on threads of its own, and returns at once. `stop` must follow before the program ends."""
        self._start(lambda: None)

    def stop(self, grace: float | None = None) -> None:
        """Takes nothing new, lets running functions end for the grace time, reports and unregisters; then returns.

        `grace`: seconds, instead of the worker's.
        """
        if self._engine is not None:
            self._engine.stop(self._grace if grace is None else grace)
            self._over.wait()

    @property
    def error(self) -> OrbitError | None:
        """Why the worker ended by itself, if it did: its credentials are wrong, or its registration is refused."""
        return self._engine.error if self._engine is not None else None

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self, also: Callable[[], None]) -> Engine:
        if self._engine is not None:
            raise RuntimeError("the worker has been started already; make another one")
        if not self._handlers:
            raise ValueError('the worker has no task; add one with @worker.task("its name")')

        def ended() -> None:
            self._over.set()
            also()

        setup = Setup(self._transport, self.worker_id, dict(self._handlers), self._concurrency, self._poll_wait)
        self._engine = Engine(setup, ended)
        self._engine.start()
        return self._engine
