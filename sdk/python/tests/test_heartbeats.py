"""The worker against a server that the test plays: heartbeats, cancels, the end, and how it is set up."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from orbit_sdk import Context, TaskFailure, Worker

from .bench import BEAT, GOODBYE, POLL, REPORT, Bench
from .fake import GLANCE, PATIENCE, outcomes, polled, task


class HeartbeatsAndCancels(Bench):
    def test_heartbeats_name_what_is_held_and_bring_cancels(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=3)
        fake.register("s1", 30)
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2")))
        running = {one.context.token: one for one in [self.next_running(), self.next_running()]}
        waiting = fake.expect(POLL)
        beat = fake.expect(BEAT)
        while not beat.body["holding"]:
            # It was sent before the tasks came.
            beat.answer(200, {"cancel": []})
            beat = fake.expect(BEAT)
        self.assertEqual(beat.body, {"session_id": "s1", "holding": ["x/1", "x/2"]})
        beat.answer(200, {"cancel": ["x/1", "x/unknown"]})
        self.assertTrue(running["x/1"].context.cancelled.wait(PATIENCE), "its function is told")
        self.assertFalse(running["x/2"].context.cancelled.is_set())
        beat = fake.expect(BEAT)
        self.assertEqual(beat.body["holding"], ["x/2"])
        beat.answer(200, {"cancel": []})
        running["x/1"].end("too late")
        self.assertIsNone(fake.within(GLANCE, REPORT), "its result is dropped")
        self.assertTrue(waiting.is_wanted())

    def test_a_function_learns_of_its_cancel_by_asking(self) -> None:
        fake = self.fake()
        worker = self.make(fake.url, concurrency=2)
        told = threading.Event()

        @worker.task("asks")
        def asks(ctx: Context, input: Any) -> None:
            try:
                while True:
                    ctx.check()
                    time.sleep(0.001)
            except Exception:
                self.fail("a cancel is no error")
            finally:
                told.set()

        worker.start()
        fake.register("s1", 30)
        fake.expect(POLL).answer(200, polled(task("x/1", task_name="asks")))
        poll = fake.expect(POLL)
        self.assertEqual(poll.body["max_tasks"], 1)
        poll.answer(200, polled(cancel=("x/1",)))
        self.assertTrue(told.wait(PATIENCE))
        end = time.monotonic() + PATIENCE
        poll = fake.expect(POLL)
        while poll.body["max_tasks"] == 1 and time.monotonic() < end:
            poll.answer(200, polled())
            poll = fake.expect(POLL)
        self.assertEqual((poll.body["max_tasks"], poll.body["holding"]), (2, []), "its slot is free again")
        self.assertNotIn("results", poll.body)

    def test_an_async_function_is_cancelled_where_it_waits(self) -> None:
        fake = self.fake()
        worker = self.make(fake.url, concurrency=2)
        begun, told = threading.Event(), threading.Event()

        @worker.task("sleeps")
        async def sleeps(ctx: Context, input: Any) -> None:
            try:
                begun.set()
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                self.assertTrue(ctx.cancelled.is_set())
                told.set()
                raise

        worker.start()
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1", task_name="sleeps")))
        self.assertTrue(begun.wait(PATIENCE))
        fake.expect(POLL).answer(200, polled(cancel=("x/1",)))
        self.assertTrue(told.wait(PATIENCE))
        self.assertIsNone(fake.within(GLANCE, REPORT))

    def test_async_functions_wait_beside_each_other_and_fail_like_others(self) -> None:
        fake = self.fake()
        worker = self.make(fake.url, concurrency=3)
        met: list[asyncio.Event] = []

        @worker.task("meets")
        async def meets(ctx: Context, input: Any) -> Any:
            event = asyncio.Event()
            met.append(event)
            if len(met) == 2:
                for one in met:
                    one.set()
            await event.wait()
            return ctx.token

        @worker.task("fails")
        async def fails(ctx: Context, input: Any) -> Any:
            raise TaskFailure("DECLINED", retryable=False)

        worker.start()
        fake.register("s1")
        tasks = [task("x/1", task_name="meets"), task("x/2", task_name="meets"), task("x/3", task_name="fails")]
        fake.expect(POLL).answer(200, polled(*tasks))
        results: dict[str, Any] = {}
        end = time.monotonic() + PATIENCE
        while len(results) < 3 and time.monotonic() < end:
            for path in (POLL, REPORT):
                if (request := fake.within(0.02, path)) is not None:
                    new = request.body.get("results", [])
                    results.update((one["token"], one) for one in new)
                    answered = {"outcomes": [{"token": one["token"], "outcome": "accepted"} for one in new]}
                    request.answer(200, {"tasks": [], "cancel": [], **answered})
        self.assertEqual(results["x/1"], {"token": "x/1", "output": "x/1"})
        self.assertEqual(results["x/2"], {"token": "x/2", "output": "x/2"})
        failure = {"code": "DECLINED", "message": "", "retryable": False}
        self.assertEqual(results["x/3"], {"token": "x/3", "error": failure})

    def test_heartbeats_go_on_while_functions_block_and_compute(self) -> None:
        fake = self.fake()
        worker = self.make(fake.url, concurrency=3)
        over = threading.Event()
        self.addCleanup(over.set)

        @worker.task("computes")
        def computes(ctx: Context, input: Any) -> None:
            while not over.is_set():
                sum(range(1000))

        @worker.task("blocks.the.loop")
        async def blocks(ctx: Context, input: Any) -> None:
            over.wait()

        worker.start()
        fake.register("s1", 20)
        names = ("computes", "blocks.the.loop", "payments.charge")
        fake.expect(POLL).answer(200, polled(*(task(f"x/{n}", task_name=name) for n, name in enumerate(names))))
        self.next_running()
        with_all = 0
        while with_all < 5:
            beat = fake.expect(BEAT)
            with_all += beat.body["holding"] == ["x/0", "x/1", "x/2"]
            beat.answer(200, {"cancel": []})


class TheEnd(Bench):
    def test_a_stop_takes_nothing_new_lets_functions_end_reports_and_unregisters(self) -> None:
        fake = self.fake()
        worker = self.work(fake.url, concurrency=2)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        running = self.next_running()
        waiting = fake.expect(POLL)
        stopping = threading.Thread(target=worker.stop, daemon=True)
        stopping.start()
        waiting.given_up()
        self.assertFalse(running.context.cancelled.is_set())
        running.end(1)
        report = fake.expect(REPORT)
        self.assertEqual(report.body["results"], [{"token": "x/1", "output": 1}])
        # Even now the result stays until it is answered.
        report.drop()
        fake.expect(REPORT).answer(200, outcomes(x1="accepted"))
        goodbye = fake.expect(GOODBYE)
        self.assertEqual(goodbye.body, {"session_id": "s1"})
        goodbye.answer(200, {})
        self.assertIsNone(fake.within(0.05, POLL))
        stopping.join(PATIENCE)
        self.assertFalse(stopping.is_alive())

    def test_a_stop_does_not_wait_longer_than_the_grace_time(self) -> None:
        fake = self.fake()
        worker = self.make(fake.url, grace=0.1)
        told = threading.Event()

        @worker.task("sleeps")
        async def sleeps(ctx: Context, input: Any) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0.1)
                told.set()

        worker.start()
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2", task_name="sleeps")))
        running = self.next_running()
        fake.expect(POLL)
        stopping = threading.Thread(target=worker.stop, daemon=True)
        stopping.start()
        fake.expect(GOODBYE).answer(200, {})
        stopping.join(PATIENCE)
        self.assertFalse(stopping.is_alive())
        self.assertTrue(running.context.cancelled.is_set(), "its function is told")
        self.assertTrue(told.is_set(), "the async function has had its last words")

    def test_a_second_stop_ends_the_wait_of_the_first(self) -> None:
        fake = self.fake()
        worker = self.work(fake.url)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running()
        stopping = threading.Thread(target=worker.stop, daemon=True)
        stopping.start()
        self.assertIsNone(fake.within(GLANCE, GOODBYE))
        threading.Thread(target=worker.stop, args=(0,), daemon=True).start()
        fake.expect(GOODBYE).answer(200, {})
        stopping.join(PATIENCE)
        self.assertFalse(stopping.is_alive())

    def test_a_program_ends_on_sigterm_and_on_sigint(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                fake = self.fake()
                here = Path(__file__).parent
                program = subprocess.Popen(
                    [sys.executable, here.parent / "examples" / "greeter.py"],
                    env={**os.environ, "ORBIT_SERVER": fake.url, "PYTHONPATH": str(here.parent / "src")},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
                self.addCleanup(program.kill)
                fake.register("s1")
                fake.expect(POLL)
                program.send_signal(number)
                fake.expect(GOODBYE).answer(200, {})
                _, text = program.communicate(timeout=PATIENCE)
                self.assertEqual(program.returncode, 0)
                self.assertIn(b"INFO orbit stopped", text)


class SetUps(unittest.TestCase):
    def test_a_worker_that_cannot_work_is_refused_with_what_it_lacks(self) -> None:
        with self.assertRaisesRegex(ValueError, "has no task"):
            Worker().start()
        for options, message in (
            ({"concurrency": 0}, "1 to 1000"),
            ({"poll_wait": 61}, "0 to 60 s"),
            ({"grace": -1}, "0 s or more"),
            ({"worker_id": ""}, "worker id is empty"),
            ({"servers": "ftp://a:1"}, "write http://HOST:PORT"),
            ({"token": "a\nb"}, "printable ASCII"),
        ):
            with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                Worker(**options)  # type: ignore[arg-type]

    def test_a_task_that_cannot_be_one_is_refused(self) -> None:
        worker = Worker()

        def good(ctx: Context, input: Any) -> None: ...

        with self.assertRaisesRegex(TypeError, "a task has a name"):
            worker.task(good)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, 'contract_version="1", not 1'):
            worker.task("t", contract_version=1)  # type: ignore[arg-type]
        with self.assertRaisesRegex(TypeError, r"takes two arguments: \(ctx, input\)"):
            worker.task("t")(lambda input: None)
        for name in ("blocks the loop", "9lives", "größe", "x" * 129, "a\n"):
            with self.subTest(name), self.assertRaisesRegex(ValueError, "is no name of a task: it begins with a letter"):
                worker.task(name)
        for version in ("v 1", "-1", "1" * 65):
            with self.subTest(version), self.assertRaisesRegex(ValueError, "is no contract version: it begins with"):
                worker.task("t", contract_version=version)
        worker.task("x" * 128, contract_version="2.0-rc+1")(good)
        worker.task("team/payments.charge:v1_x-y")(good)
        self.assertIs(worker.task("t")(good), good)
        with self.assertRaisesRegex(ValueError, "has a function already"):
            worker.task("t")(good)
        worker.task("t", contract_version="2")(good)

    def test_a_failure_has_a_code_that_a_server_takes(self) -> None:
        for code in ("", "x" * 129, 5):
            with self.subTest(code), self.assertRaisesRegex(ValueError, "1 to 128 bytes"):
                TaskFailure(code)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
