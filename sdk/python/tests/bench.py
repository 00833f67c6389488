"""A worker, the servers that it knows, which the test plays, and its functions, which end as the test says."""

from __future__ import annotations

import queue
import unittest
from typing import Any

from orbit_sdk import Context, Worker

from .fake import GLANCE, PATIENCE, Fake

REGISTER = "/v1/workers/register"
POLL = "/v1/workers/poll"
REPORT = "/v1/tasks/complete"
BEAT = "/v1/workers/heartbeat"
GOODBYE = "/v1/workers/unregister"


class Running:
    """A function of the bench that runs: it ends as the test says."""

    def __init__(self, context: Context, input: Any) -> None:
        self.context = context
        self.input = input
        self._ending: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def end(self, with_: Any) -> None:
        """Returns this, or raises it if it is an exception."""
        self._ending.put(with_)

    def wait(self) -> Any:
        ended = self._ending.get()
        if isinstance(ended, BaseException):
            raise ended
        return ended


class Bench(unittest.TestCase):
    def setUp(self) -> None:
        self.fakes: list[Fake] = []
        self.started: queue.Queue[Running] = queue.Queue()
        self.running: list[Running] = []
        self.workers: list[Worker] = []
        self.addCleanup(self.end_everything)

    def end_everything(self) -> None:
        for fake in self.fakes:
            fake.kill()
        for running in self.running:
            running.end(None)
        for worker in self.workers:
            worker.stop(grace=0)

    def fake(self, port: int = 0) -> Fake:
        fake = Fake(port)
        self.fakes.append(fake)
        return fake

    def make(self, servers: Any, **options: Any) -> Worker:
        """A worker whose function waits for the test, not started."""
        worker = Worker(servers, worker_id="w", **options)

        @worker.task("payments.charge")
        def charge(ctx: Context, input: Any) -> Any:
            running = Running(ctx, input)
            self.running.append(running)
            self.started.put(running)
            return running.wait()

        self.workers.append(worker)
        return worker

    def work(self, servers: Any, **options: Any) -> Worker:
        worker = self.make(servers, **options)
        worker.start()
        return worker

    def next_running(self) -> Running:
        return self.started.get(timeout=PATIENCE)

    def none_starts(self) -> None:
        with self.assertRaises(queue.Empty):
            self.started.get(timeout=GLANCE)
