"""Runs the functions of tasks: plain ones on threads, `async` ones on an event loop in a thread of its own.

All threads are daemons: a function that never ends does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any

from ._context import Cancelled, Context, TaskFailure
from ._desk import failure_result, line, output_result
from ._json import NotJson

log = logging.getLogger("orbit")

#: How long cancelled `async` functions have to end when the worker stops, in seconds.
LAST_WORDS = 1.0

Handler = Callable[[Context, Any], Any]
#: Takes the result of a task's function; empty where it ended without one because nobody wants it any more.
Done = Callable[[str, bytes], None]


class Runner:
    """Runs functions, at most as many plain ones at a time as it has threads."""

    def __init__(self, threads: int, done: Done) -> None:
        self._most = threads
        self._done = done
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        #: Functions that wait for a thread or have one.
        self._jobs = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None
        self._tasks: dict[str, asyncio.Task[bytes]] = {}

    def start(self, handler: Handler, context: Context, input: Any) -> None:
        """Runs the function; `done` is called from another thread when it has ended."""
        if is_async(handler):
            loop = self._running_loop()
            loop.call_soon_threadsafe(self._begin_task, loop, handler, context, input)
            return
        with self._lock:
            self._jobs += 1
            if len(self._threads) < min(self._jobs, self._most):
                name = f"orbit-task-{len(self._threads) + 1}"
                thread = threading.Thread(target=self._work, name=name, daemon=True)
                self._threads.append(thread)
                thread.start()
        self._waiting.put(lambda: self._done(context.token, _call(handler, context, input)))

    def cancel(self, context: Context) -> None:
        """Tells the function that nobody wants its result any more."""
        context.cancelled.set()
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(self._cancel_task, context.token)

    def close(self) -> None:
        """Ends the threads that have nothing to do. `async` functions, cancelled by now, may say their last words."""
        for _ in self._threads:
            self._waiting.put(None)
        loop, thread = self._loop, self._loop_thread
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(self._end_loop, loop)
            thread.join(2 * LAST_WORDS)

    def _work(self) -> None:
        while (job := self._waiting.get()) is not None:
            job()
            with self._lock:
                self._jobs -= 1

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._loop_thread = threading.Thread(target=self._run_loop, args=(self._loop,), daemon=True)
            self._loop_thread.name = "orbit-async"
            self._loop_thread.start()
        return self._loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        try:
            loop.run_forever()
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()

    def _begin_task(self, loop: asyncio.AbstractEventLoop, handler: Handler, context: Context, input: Any) -> None:
        task = loop.create_task(_call_async(handler, context, input))
        self._tasks[context.token] = task
        task.add_done_callback(lambda task: self._end_task(context.token, task))

    def _end_task(self, token: str, task: asyncio.Task[bytes]) -> None:
        self._tasks.pop(token, None)
        self._done(token, b"" if task.cancelled() else task.result())

    def _cancel_task(self, token: str) -> None:
        task = self._tasks.get(token)
        if task is not None:
            task.cancel()

    def _end_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        # They have been cancelled; a second cancel would interrupt what they do about the first.
        tasks = list(self._tasks.values())

        async def last_words() -> None:
            if tasks:
                await asyncio.wait(tasks, timeout=LAST_WORDS)
            loop.stop()

        self._ending = loop.create_task(last_words())


def is_async(handler: Handler) -> bool:
    """Whether a function is a coroutine function, or an object that is called as one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(type(handler), "__call__", None))


def _call(handler: Handler, context: Context, input: Any) -> bytes:
    try:
        context.check()
        return _result(context, handler(context, input))
    except Cancelled as error:
        return b"" if context.cancelled.is_set() else _failed(context, error)
    except BaseException as error:  # `SystemExit` too: it would end the thread without a result.
        return _failed(context, error)


async def _call_async(handler: Handler, context: Context, input: Any) -> bytes:
    try:
        context.check()
        return _result(context, await handler(context, input))
    except (Cancelled, asyncio.CancelledError) as error:
        return b"" if context.cancelled.is_set() else _failed(context, error)
    except BaseException as error:  # `SystemExit` too: it would end the loop.
        return _failed(context, error)


def _result(context: Context, output: Any) -> bytes:
    try:
        return output_result(context.token, output)
    except NotJson as problem:
        if inspect.iscoroutine(output):
            output.close()
        log.error(line("the output cannot be sent", context, problem=str(problem)), extra=context.fields())
        return failure_result(context.token, TaskFailure("OUTPUT_INVALID", str(problem), retryable=False))


def _failed(context: Context, error: BaseException) -> bytes:
    try:
        return failure_result(context.token, _failure(context, error))
    except Exception:  # The error is one whose text cannot be had.
        failure = TaskFailure("EXCEPTION", f"a {type(error).__name__} that cannot be described")
        return failure_result(context.token, failure)


def _failure(context: Context, error: BaseException) -> TaskFailure:
    if isinstance(error, TaskFailure):
        more = {"code": error.code, "message": error.message, "retryable": error.retryable}
        log.warning(line("failed", context, **more), extra=context.fields())
        return error
    if not context.cancelled.is_set():
        log.warning(line("failed", context, code="EXCEPTION"), exc_info=error, extra=context.fields())
    name = type(error).__name__
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    details = {"traceback": lines[-1][:1000] if lines else name}
    if frames := traceback.extract_tb(error.__traceback__):
        # Without the folder, which is this machine's own.
        details["at"] = f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno} in {frames[-1].name}"
    text = str(error)
    return TaskFailure("EXCEPTION", f"{name}: {text}" if text else name, details=details)
