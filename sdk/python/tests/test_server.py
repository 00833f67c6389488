"""The worker and the client together with a real server."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
import unittest
from pathlib import Path
from typing import Any

from orbit_sdk import Client, Context, OrbitError, TaskFailure, Worker

from .fake import Fake
from .processes import REPOSITORY, WithServers, count, has_event

ORDER: dict[str, Any] = {
    "order_id": "o-1",
    "customer": "ada",
    "amount": 25,
    "items": [{"sku": "book", "quantity": 1}],
}


def one_step(task: str, **more: Any) -> dict[str, Any]:
    """A workflow of one step, named like its task."""
    step = {"id": "only", "task": task, "input": "${ input }", **more}
    return {"name": task, "version": "1", "steps": [step], "result": "${ steps.only.output }"}


class WithServer(WithServers):
    def setUp(self) -> None:
        super().setUp()
        self.here = self.server("--session-timeout", "10", "--heartbeat-interval", "0.1")
        self.asks = self.client(self.here.url)

    def works(self, servers: str = "", **options: Any) -> Worker:
        """A worker that starts with the first `run` and ends with the test."""
        return Worker(servers or self.here.url, "w", poll_wait=5, **options)

    def start(self, worker: Worker) -> None:
        worker.start()
        self.addCleanup(worker.stop, 0)

    def run_one(self, workflow: dict[str, Any], id: str, input: Any = None) -> Any:
        """Deploys a workflow, starts it, and waits for its end."""
        self.asks.deploy(workflow)
        self.asks.start(workflow["name"], input, execution_id=id)
        execution = self.asks.wait(id, 30)
        self.assertTrue(execution.finished)
        return execution


class Orders(WithServer):
    def test_an_order_goes_through_the_six_tasks_of_the_example(self) -> None:
        self.asks.deploy((REPOSITORY / "docs" / "examples" / "order-processing.yaml").read_text())
        script = Path(__file__).parents[1] / "examples" / "order_worker.py"
        worker = self.worker("orders", self.here.url, script=script)
        started = self.asks.start("OrderProcessing", ORDER, execution_id="order-1")
        self.assertTrue(started.created)
        execution = self.asks.wait("order-1", 30)
        self.assertEqual(execution.status, "completed")
        self.assertEqual(execution.output, {"order_id": "o-1", "charge": "C-order-1", "tracking": "T-order-1"})
        self.assertEqual(count(self.asks, "order-1")["StepSucceeded"], 6)
        line = '"step": "charge", "attempt": 1, "task": "payments.charge", "redelivery": false}'
        self.assertIn(f'INFO orbit executing {{"execution_id": "order-1", {line}', worker.log())

        # What a task finds wrong for good ends the order at once.
        self.asks.start("OrderProcessing", {**ORDER, "amount": 20_000}, execution_id="order-2")
        execution = self.asks.wait("order-2", 30)
        assert execution.error is not None
        self.assertEqual((execution.status, execution.error.code), ("failed", "FRAUD_SUSPECTED"))
        self.assertEqual(execution.error.details, {"score": 87})
        self.assertEqual(count(self.asks, "order-2")["StepAttemptFailed"], 1)

    def test_the_greeter_greets(self) -> None:
        script = Path(__file__).parents[1] / "examples" / "greeter.py"
        self.worker("greeter", self.here.url, script=script)
        workflow = {**one_step("greetings.greet"), "name": "Hello"}
        self.assertEqual(self.run_one(workflow, "hello", {"guest": "Ada"}).output, "Hello, Ada!")
        execution = self.run_one(workflow, "nobody", {})
        self.assertEqual((execution.error.code, execution.error.retryable), ("GUEST_MISSING", False))


TALK: dict[str, Any] = {
    "name": "Talk",
    "version": "1",
    "signals": {"go": {"payload": {"type": "object"}}},
    "updates": {"raise": {"payload": {"type": "integer"}, "when": "${ event < 10 }", "result": "${ event + 1 }"}},
    "queries": {"state": {"went": "${ steps.wait.output }"}},
    "steps": [{"id": "wait", "await": "go"}, {"id": "more", "await": "raise"}],
    "result": {"went": "${ steps.wait.output }", "raised": "${ steps.more.output }"},
}

TRIP: dict[str, Any] = {
    "name": "Trip",
    "version": "1",
    "steps": [
        {
            "id": "seats",
            "for": "${ input }",
            "do": {"task": "trip.seat", "input": "${ item }"},
            "compensate": {"task": "trip.free", "input": "${ output }"},
        },
        {"id": "leave", "task": "trip.leave"},
    ],
}


class Asks(WithServer):
    def refused(self, ask: Any) -> str | None:
        with self.assertRaises(OrbitError) as caught:
            ask()
        return caught.exception.code

    def test_signals_updates_and_queries_reach_an_execution(self) -> None:
        self.asks.deploy(TALK)
        self.asks.start("Talk", execution_id="t")
        self.assertEqual(self.asks.query("t", "state"), {"went": None})
        raised = self.asks.update("t", "raise", 3, update_id="u-1")
        self.assertEqual(raised.result, 4)
        self.assertEqual(self.asks.update("t", "raise", 3, update_id="u-1"), raised)
        self.assertEqual(self.refused(lambda: self.asks.update("t", "raise", 10)), "UPDATE_REJECTED")
        self.assertEqual(self.refused(lambda: self.asks.signal("t", "og")), "UNKNOWN_SIGNAL")
        self.assertEqual(self.refused(lambda: self.asks.signal("t", "go", 1)), "SIGNAL_PAYLOAD_INVALID")
        signalled = self.asks.signal("t", "go", {"by": "ada"}, signal_id="s-1")
        execution = self.asks.wait("t", 30)
        self.assertEqual(execution.output, {"went": {"by": "ada"}, "raised": 3})
        self.assertEqual(self.asks.signal("t", "go", {"by": "ada"}, signal_id="s-1"), signalled)
        self.assertEqual(self.refused(lambda: self.asks.signal("t", "go", {})), "EXECUTION_FINISHED")
        self.assertEqual(self.asks.query("t", "state"), {"went": {"by": "ada"}})
        self.assertEqual(count(self.asks, "t")["SignalReceived"], 1)

    def test_an_execution_is_terminated_at_once(self) -> None:
        self.asks.deploy(TALK)
        self.asks.start("Talk", execution_id="t")
        execution = self.asks.terminate("t", "it hangs")
        self.assertEqual((execution.status, execution.finished), ("terminated", True))
        self.assertEqual(self.asks.get("t").cancel_reason, "it hangs")
        self.assertEqual([row.execution_id for row in self.asks.list(status="terminated")], ["t"])

    def test_a_worker_runs_items_and_what_undoes_them(self) -> None:
        worker = self.works(concurrency=1)
        ran: list[tuple[str, str, Any]] = []

        @worker.task("trip.seat")
        @worker.task("trip.free")
        def seat(ctx: Context, input: Any) -> Any:
            ran.append((ctx.task_name, ctx.step_id, input))
            return input

        @worker.task("trip.leave")
        def leave(ctx: Context, input: Any) -> None:
            raise TaskFailure("RAIN", "it rains", retryable=False)

        self.start(worker)
        self.asks.deploy(TRIP)
        self.asks.start("Trip", ["1a", "1b"], execution_id="trip")
        execution = self.asks.wait("trip", 30)
        assert execution.error is not None
        self.assertEqual((execution.status, execution.error.code), ("failed", "RAIN"))
        self.assertEqual(sorted(ran[:2]), [("trip.seat", "seats[0]", "1a"), ("trip.seat", "seats[1]", "1b")])
        undone = [("trip.free", "compensate:seats[1]", "1b"), ("trip.free", "compensate:seats[0]", "1a")]
        self.assertEqual(ran[2:], undone)


class Tasks(WithServer):
    def test_a_failing_task_is_tried_again_with_the_same_key(self) -> None:
        worker = self.works()
        keys: list[str] = []

        @worker.task("flaky")
        def flaky(ctx: Context, input: Any) -> Any:
            keys.append(ctx.idempotency_key)
            if ctx.attempt == 1:
                raise KeyError("amount")
            if ctx.attempt == 2:
                raise TaskFailure("BUSY", "try again")
            return ctx.attempt

        self.start(worker)
        retry = {"max_attempts": 5, "initial": "10ms", "max": "20ms"}
        self.assertEqual(self.run_one(one_step("flaky", retry=retry), "flaky").output, 3)
        self.assertEqual((len(keys), len(set(keys))), (3, 1))
        errors = [e.fields["error"] for e in self.asks.history("flaky") if e.type == "StepAttemptFailed"]
        self.assertEqual([error["code"] for error in errors], ["EXCEPTION", "BUSY"])
        self.assertEqual(errors[0]["details"]["traceback"], "KeyError: 'amount'")

    def test_a_failure_that_is_final_is_not_tried_again(self) -> None:
        worker = self.works()

        @worker.task("declined")
        async def declined(ctx: Context, input: Any) -> Any:
            raise TaskFailure("CARD_DECLINED", "no funds", retryable=False, details={"left": 3})

        self.start(worker)
        execution = self.run_one(one_step("declined", retry={"max_attempts": 5, "initial": "10ms"}), "declined")
        self.assertEqual((execution.status, execution.error.code), ("failed", "CARD_DECLINED"))
        self.assertEqual((execution.error.message, execution.error.details), ("no funds", {"left": 3}))
        self.assertEqual(count(self.asks, "declined")["StepAttemptFailed"], 1)

    def test_a_cancel_reaches_functions_of_both_kinds(self) -> None:
        worker = self.works()
        told: queue.Queue[str] = queue.Queue()

        @worker.task("blocks")
        def blocks(ctx: Context, input: Any) -> None:
            told.put("blocks begun")
            ctx.cancelled.wait()
            told.put("blocks cancelled")
            ctx.check()

        @worker.task("sleeps")
        async def sleeps(ctx: Context, input: Any) -> None:
            told.put("sleeps begun")
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                told.put("sleeps cancelled")
                raise

        self.start(worker)
        for task in ("blocks", "sleeps"):
            self.asks.deploy(one_step(task))
            self.asks.start(task, execution_id=task)
            self.assertEqual(told.get(timeout=30), f"{task} begun")
            self.asks.cancel(task, "changed my mind")
            self.assertEqual(told.get(timeout=30), f"{task} cancelled")
            self.assertEqual(self.asks.wait(task, 30).status, "cancelled")
            self.assertNotIn("StaleResultIgnored", count(self.asks, task))

    def test_an_attempt_that_times_out_is_cancelled_and_tried_again(self) -> None:
        worker = self.works()
        cancelled = threading.Event()

        @worker.task("slow")
        def slow(ctx: Context, input: Any) -> Any:
            remaining = ctx.remaining()
            if ctx.attempt == 1:
                ctx.cancelled.wait()
                cancelled.set()
            return remaining is not None and remaining <= 0.3

        self.start(worker)
        workflow = one_step("slow", timeout="300ms", retry={"max_attempts": 2, "initial": "10ms"})
        self.assertEqual(self.run_one(workflow, "slow").output, True)
        self.assertTrue(cancelled.wait(30))
        failed = has_event(self.asks, "slow", "StepAttemptFailed")
        self.assertEqual(failed.fields["error"]["code"], "TIMEOUT")

    def test_values_come_back_as_they_were_sent(self) -> None:
        worker = self.works()

        @worker.task("echo")
        def echo(ctx: Context, input: Any) -> Any:
            return input

        self.start(worker)
        value = {"n": 2**53 + 1, "least": -(2**63), "most": 2**64 - 1, "f": 0.1, "t": "é 🐍\0", "l": [None, True, {}]}
        execution = self.run_one(one_step("echo"), "echo", value)
        self.assertEqual((execution.input, execution.output), (value, value))
        self.assertIs(type(execution.output["n"]), int)

    def test_outputs_that_cannot_be_sent_fail_the_step_with_the_reason(self) -> None:
        worker = self.works()

        @worker.task("too-large")
        def too_large(ctx: Context, input: Any) -> Any:
            return "x" * (2 << 20)

        @worker.task("infinite")
        def infinite(ctx: Context, input: Any) -> Any:
            return {"rate": float("1e400")}

        self.start(worker)
        error = self.run_one(one_step("too-large"), "too-large").error
        self.assertEqual(error.code, "PAYLOAD_TOO_LARGE")
        error = self.run_one(one_step("infinite"), "infinite").error
        self.assertEqual(error.code, "OUTPUT_INVALID")
        self.assertEqual(error.message, "output.rate is inf, which JSON cannot say; send null or a text")

    def test_many_tasks_run_beside_each_other(self) -> None:
        worker = self.works(concurrency=16)

        @worker.task("quick")
        def quick(ctx: Context, input: Any) -> Any:
            return input

        @worker.task("quick-async")
        async def quick_async(ctx: Context, input: Any) -> Any:
            await asyncio.sleep(0)
            return input

        self.start(worker)
        for task in ("quick", "quick-async"):
            self.asks.deploy(one_step(task))
            for number in range(40):
                self.asks.start(task, number, execution_id=f"{task}-{number}")
        for task in ("quick", "quick-async"):
            for number in range(40):
                self.assertEqual(self.asks.wait(f"{task}-{number}", 30).output, number)

    def test_addresses_where_nothing_answers_are_passed_over(self) -> None:
        gone = Fake()
        gone.kill()
        servers = f"{gone.url},{self.here.url}"
        worker = self.works(servers)

        @worker.task("echo")
        def echo(ctx: Context, input: Any) -> Any:
            return input

        self.start(worker)
        client = self.client(gone.url, self.here.url)
        client.deploy(one_step("echo"))
        client.start("echo", 5, execution_id="echo")
        self.assertEqual(client.wait("echo", 30).output, 5)
        self.assertEqual([(one.worker_id, one.runtime) for one in client.workers()], [("w", "python")])


class Asking(WithServer):
    def test_a_start_that_is_repeated_starts_once(self) -> None:
        self.asks.deploy(one_step("nobody"))
        first = self.asks.start("nobody", 1, execution_id="once", labels={"team": "a"})
        again = self.asks.start("nobody", 1, execution_id="once", labels={"team": "a"})
        self.assertEqual((first.created, again.created, again.status), (True, False, "running"))
        with self.assertRaises(OrbitError) as caught:
            self.asks.start("nobody", 2, execution_id="once")
        self.assertEqual((caught.exception.code, caught.exception.status), ("EXECUTION_ID_CONFLICT", 409))
        drawn = self.asks.start("nobody")
        self.assertTrue(drawn.created)
        self.assertEqual(self.asks.get(drawn.execution_id).input, None)

    def test_a_list_is_filtered_and_goes_over_the_pages(self) -> None:
        self.asks.deploy(one_step("nobody"))
        for number in range(3):
            self.asks.start("nobody", execution_id=f"a-{number}", labels={"team": "a b=c", "n": str(number)})
        self.asks.start("nobody", execution_id="b")
        self.assertEqual([one.execution_id for one in self.asks.list()], ["b", "a-2", "a-1", "a-0"])
        found = list(self.asks.list(labels={"team": "a b=c"}, status="running", workflow="nobody", limit=2))
        self.assertEqual([one.execution_id for one in found], ["a-2", "a-1"])
        self.assertEqual(found[0].labels, {"team": "a b=c", "n": "2"})
        self.assertEqual(list(self.asks.list(status="completed")), [])
        with self.assertRaises(OrbitError) as caught:
            list(self.asks.list(status="finished"))
        self.assertEqual(caught.exception.code, "INVALID_REQUEST")

    def test_a_definition_that_is_wrong_says_what_is_wrong_with_it(self) -> None:
        with self.assertRaises(OrbitError) as caught:
            self.asks.deploy("name: W\nversion: '1'\nsteps:\n  - id: a\n    tusk: t\n")
        error = caught.exception
        self.assertEqual((error.code, error.status, error.retryable), ("DEFINITION_INVALID", 422, False))
        self.assertEqual(error.details["problems"][0]["line"], 5)
        self.assertIn("tusk", str(error))
        self.assertTrue(error.hint and error.request_id)

    def test_a_deployment_is_repeated_harmlessly(self) -> None:
        workflow = one_step("nobody")
        self.assertEqual(self.asks.deploy(workflow).result, "created")
        self.assertEqual(self.asks.deploy(workflow).result, "unchanged")
        deployed = [(one.name, one.version, one.latest) for one in self.asks.workflows()]
        self.assertEqual(deployed, [("nobody", "1", True)])

    def test_a_wait_ends_in_its_time(self) -> None:
        self.asks.deploy(one_step("nobody"))
        self.asks.start("nobody", execution_id="long")
        begun = time.monotonic()
        execution = self.asks.wait("long", 0.2)
        self.assertFalse(execution.finished)
        self.assertGreaterEqual(time.monotonic() - begun, 0.2)

    def test_what_is_not_there_is_said_to_be_unknown(self) -> None:
        for ask in (
            lambda: self.asks.get("é/?#%"),
            lambda: list(self.asks.history("nobody")),
            lambda: self.asks.wait("nobody", 5),
            lambda: self.asks.cancel("nobody"),
        ):
            with self.assertRaises(OrbitError) as caught:
                ask()
            self.assertIn(caught.exception.code, ("UNKNOWN_EXECUTION", "INVALID_REQUEST"))

    def test_a_server_that_wants_a_token_gets_it(self) -> None:
        self.here.kill()
        locked = self.server("--token", "secret")
        with self.assertRaises(OrbitError) as caught:
            self.client(locked.url).workers()
        self.assertEqual(caught.exception.code, "UNAUTHORIZED")
        with Client(locked.url, token="secret") as client:
            self.assertEqual(list(client.workers()), [])
        self.assertEqual(self.client(locked.url).health()["status"], "ok")


if __name__ == "__main__":
    unittest.main()
