"""The worker against a server that the test plays: polls, results, and what goes wrong with them."""

from __future__ import annotations

import json
import queue
import re
import threading
import time
from typing import Any
from unittest import mock

from orbit_sdk import OrbitError, TaskFailure, _engine

from .bench import BEAT, POLL, REGISTER, REPORT, Bench
from .fake import GLANCE, PATIENCE, Exchange, Fake, outcomes, polled, task


class PollsAndReports(Bench):
    def test_a_worker_registers_polls_and_brings_the_result_in_the_next_poll(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=1, token="secret")
        request = fake.expect(REGISTER)
        self.assertEqual(request.headers["authorization"], "Bearer secret")
        self.assertEqual(request.headers["content-type"], "application/json")
        self.assertEqual(request.body["contracts"], [{"task_name": "payments.charge", "contract_version": "1"}])
        self.assertEqual((request.body["worker_id"], request.body["runtime"]), ("w", "python"))
        request.answer(200, {"session_id": "s1", "heartbeat_interval_ms": 60000, "session_timeout_ms": 60000})

        poll = fake.expect(POLL)
        self.assertEqual(poll.body, {"session_id": "s1", "max_tasks": 1, "wait_ms": 20000, "holding": []})
        poll.answer(200, polled(task("x/1")))
        running = self.next_running()
        ctx = running.context
        self.assertEqual((ctx.execution_id, ctx.step_id, ctx.attempt, ctx.token), ("x", "charge", 1, "x/1"))
        self.assertEqual((ctx.idempotency_key, ctx.redelivery), ("cluster/x/1/charge", False))
        self.assertFalse(ctx.cancelled.is_set())
        remaining = ctx.remaining()
        self.assertTrue(remaining is not None and 0 < remaining <= 30)
        self.assertEqual(running.input, {"amount": 5})
        self.assertIsNone(fake.within(GLANCE, POLL), "its one slot is taken")

        running.end({"id": 7})
        poll = fake.expect(POLL)
        self.assertEqual(poll.body["results"], [{"token": "x/1", "output": {"id": 7}}])
        self.assertEqual((poll.body["holding"], poll.body["max_tasks"]), (["x/1"], 1))
        poll.answer(200, polled(task("x/2"), x1="accepted"))
        self.next_running().end(TaskFailure("DECLINED", "no", retryable=False, details=1))
        poll = fake.expect(POLL)
        error = {"code": "DECLINED", "message": "no", "retryable": False, "details": 1}
        self.assertEqual(poll.body["results"], [{"token": "x/2", "error": error}])
        self.assertEqual(poll.body["holding"], ["x/2"], "what was accepted is held no more")

    def test_a_result_does_not_wait_for_the_poll_that_waits(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=4)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2"), task("x/3")))
        running = {one.context.token: one for one in [self.next_running() for _ in range(3)]}
        waiting = fake.expect(POLL)
        self.assertEqual(waiting.body["max_tasks"], 1)
        running["x/1"].end(1)
        report = fake.expect(REPORT)
        self.assertEqual(report.body, {"session_id": "s1", "results": [{"token": "x/1", "output": 1}]})
        # What ends while that report is under way goes in one more.
        running["x/2"].end(2)
        running["x/3"].end(2)
        self.assertIsNone(fake.within(GLANCE, REPORT), "one report at a time")
        report.answer(200, outcomes(x1="accepted"))
        report = fake.expect(REPORT)
        self.assertEqual(len(report.body["results"]), 2)
        report.answer(200, outcomes(x2="accepted", x3="accepted"))
        self.assertTrue(waiting.is_wanted(), "the poll that waits was not cut short")

    def test_the_tasks_of_one_poll_bring_their_results_together(self) -> None:
        fake = self.fake()
        with mock.patch.object(_engine, "LINGER", 6 * PATIENCE):
            worker = self.make(fake.url, concurrency=4)
            worker.start()
            fake.register("s1")
            fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2")))
            first, second = self.next_running(), self.next_running()
            first.end(1)
            self.assertIsNone(fake.within(GLANCE, POLL), "it waits for the other's")
            self.assertIsNone(fake.within(GLANCE, REPORT), "and goes in no report of its own")
            second.end(2)
            poll = fake.expect(POLL)
            self.assertEqual((len(poll.body["results"]), poll.body["max_tasks"]), (2, 4))

    def test_whole_numbers_stay_exact_and_text_stays_text(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=1)
        fake.register("s1")
        text = b'{"n":9007199254740993,"big":18446744073709551615,"t":"\\u00e9 \xf0\x9f\x90\x8d"}'
        delivery = json.dumps(polled(task("x/1", input="HERE"))).encode().replace(b'"HERE"', text)
        fake.expect(POLL).answer_bytes(200, delivery)
        running = self.next_running()
        self.assertEqual(running.input, {"n": 2**53 + 1, "big": 2**64 - 1, "t": "é 🐍"})
        running.end(running.input)
        text = fake.expect(POLL).text
        self.assertIn('"output":{"n":9007199254740993,"big":18446744073709551615,"t":"é 🐍"}'.encode(), text)

    def test_an_output_that_json_cannot_say_is_a_failure_that_says_where(self) -> None:
        cases: list[tuple[Any, str]] = [
            ({"rate": float("1e400")}, "output.rate is inf, which JSON cannot say; send null or a text"),
            ([1, {"x": float("nan")}], "output[1].x is nan, which JSON cannot say; send null or a text"),
            ({"n": 2**64}, "output.n is a whole number that 64 bits do not hold; send it as a text"),
            ({"at": object()}, "output.at is of type object; give dict, list, str, int, float, bool or None"),
            ({1: 2}, "output has the key 1; keys are texts"),
            ("\ud800", "output holds half of a surrogate pair, which is no Unicode text"),
        ]
        fake = self.fake()
        self.work(fake.url, concurrency=1)
        fake.register("s1")
        poll = fake.expect(POLL)
        for number, (output, message) in enumerate(cases):
            with self.subTest(message):
                poll.answer(200, polled(task(f"x/{number}"), **({f"x{number - 1}": "accepted"} if number else {})))
                self.next_running().end(output)
                poll = fake.expect(POLL)
                error = {"code": "OUTPUT_INVALID", "message": message, "retryable": False}
                self.assertEqual(poll.body["results"], [{"token": f"x/{number}", "error": error}])

    def test_an_exception_is_a_failure_with_the_last_line_of_its_traceback(self) -> None:
        class Odd(Exception):
            def __str__(self) -> str:
                raise RuntimeError("no text")

        fake = self.fake()
        self.work(fake.url, concurrency=1)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running().end(KeyError("amount"))
        poll = fake.expect(POLL)
        error = poll.body["results"][0]["error"]
        self.assertEqual(
            (error["code"], error["message"], error["retryable"]), ("EXCEPTION", "KeyError: 'amount'", True)
        )
        self.assertEqual(error["details"]["traceback"], "KeyError: 'amount'")
        self.assertRegex(error["details"]["at"], r"^bench\.py:\d+ in wait$")
        for number, exception in ((2, SystemExit(1)), (3, Odd())):
            poll.answer(200, polled(task(f"x/{number}"), **{f"x{number - 1}": "accepted"}))
            self.next_running().end(exception)
            poll = fake.expect(POLL)
            error = poll.body["results"][0]["error"]
            self.assertEqual((error["code"], error["retryable"]), ("EXCEPTION", True))
            self.assertIn(type(exception).__name__, error["message"])

    def test_a_token_that_is_answered_again_runs_once(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=3)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        first = self.next_running()
        fake.expect(POLL).answer(200, polled(task("x/1", redelivery=True), task("x/2")))
        self.assertEqual(self.next_running().context.token, "x/2")
        self.none_starts()
        self.assertFalse(first.context.redelivery)
        waiting = fake.expect(POLL)
        first.end(1)
        report = fake.expect(REPORT)
        self.assertEqual(report.body["results"], [{"token": "x/1", "output": 1}])
        report.answer(200, outcomes(x1="accepted"))
        # Nor does it run when it comes once more after its end.
        waiting.answer(200, polled(task("x/1", redelivery=True)))
        self.none_starts()

    def test_no_more_run_at_a_time_than_the_worker_is_to(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=2)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2")))
        first, _ = self.next_running(), self.next_running()
        self.assertIsNone(fake.within(GLANCE, POLL))
        first.end(1)
        self.assertEqual(fake.expect(POLL).body["max_tasks"], 1)

    def test_an_answer_that_is_none_of_the_api_is_asked_for_again(self) -> None:
        fake = self.fake()
        self.work(fake.url)
        fake.expect(REGISTER).answer_bytes(200, b"<html>")
        fake.expect(REGISTER).answer(200, {"session": "s1"})
        fake.register("s1")
        fake.expect(POLL).answer(200, {"tasks": [{"token": "x/1"}]})
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running()


class Troubles(Bench):
    def test_a_restarted_server_gets_a_new_registration_and_the_results_of_the_old_session(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=2)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2")))
        running = {one.context.token: one for one in [self.next_running(), self.next_running()]}
        port = fake.kill()
        running["x/1"].end(1)

        fake = self.fake(port)
        poll = fake.expect(POLL)
        self.assertEqual(poll.body["session_id"], "s1")
        poll.error(404, "UNKNOWN_SESSION")
        request = fake.expect(REGISTER)
        request.answer(200, {"session_id": "s2", "heartbeat_interval_ms": 60000, "session_timeout_ms": 60000})
        poll = fake.expect(POLL)
        self.assertEqual(poll.body["session_id"], "s2")
        self.assertEqual(poll.body["holding"], ["x/1", "x/2"], "both are held: one runs, one has a result")
        self.assertEqual(poll.body["results"], [{"token": "x/1", "output": 1}])
        self.assertFalse(running["x/2"].context.cancelled.is_set())
        poll.answer(200, polled(x1="accepted"))
        fake.expect(POLL)
        running["x/2"].end(2)
        report = fake.expect(REPORT)
        self.assertEqual(report.body, {"session_id": "s2", "results": [{"token": "x/2", "output": 2}]})

    def test_a_session_that_a_heartbeat_finds_lost_ends_the_poll_that_waits_under_it(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=2)
        fake.register("s1", 30)
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running()
        waiting = fake.expect(POLL)
        fake.expect(BEAT).error(404, "UNKNOWN_SESSION")
        fake.register("s2")
        waiting.given_up()
        self.assertEqual((poll := fake.expect(POLL)).body["session_id"], "s2")
        self.assertEqual(poll.body["holding"], ["x/1"])

    def test_a_result_is_sent_until_a_server_says_what_became_of_it(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=1)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running().end(1)
        waiting: list[Exchange] = []
        # The answer is lost, then the server has trouble, then it cannot take this result just now, then it forgets it.
        self.with_result(fake, waiting).drop()
        self.with_result(fake, waiting).error(503, "STORAGE_ERROR", retryable=True)
        refused = {"token": "x/1", "outcome": "refused", "error": {"code": "STORAGE_ERROR", "message": "later"}}
        self.with_result(fake, waiting).answer(200, {"tasks": [], "cancel": [], "outcomes": [refused]})
        self.with_result(fake, waiting).answer(200, {"tasks": [], "cancel": [], "outcomes": []})
        self.with_result(fake, waiting).answer(200, polled(x1="duplicate"))
        for poll in waiting:
            poll.answer(200, polled())
        poll = fake.expect(POLL)
        while poll.body["holding"]:  # One that was sent before the last answer came.
            self.assertNotIn("results", poll.body)
            poll.answer(200, polled())
            poll = fake.expect(POLL)
        self.assertNotIn("results", poll.body)

    def with_result(self, fake: Fake, waiting: list[Exchange]) -> Exchange:
        """The next poll or report that brings the result of `x/1`. Polls that bring nothing wait meanwhile."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for path in (REPORT, POLL):
                request = fake.within(0.02, path)
                if request is not None and "results" in request.body:
                    self.assertEqual(request.body["results"], [{"token": "x/1", "output": 1}])
                    return request
                if request is not None:
                    waiting.append(request)
        raise AssertionError("the result is sent again")

    def test_an_output_that_the_server_finds_too_large_is_reported_as_a_failure(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=1)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1")))
        self.next_running().end("large")
        fake.expect(POLL).error(413, "PAYLOAD_TOO_LARGE")
        fake.expect(REPORT).error(413, "PAYLOAD_TOO_LARGE")
        report = fake.expect(REPORT)
        error = report.body["results"][0]["error"]
        self.assertEqual((error["code"], error["retryable"]), ("PAYLOAD_TOO_LARGE", False))
        report.answer(200, outcomes(x1="accepted"))
        self.assertNotIn("results", fake.expect(POLL).body)

    def test_one_result_that_is_refused_keeps_none_of_the_others_back(self) -> None:
        fake = self.fake()
        self.work(fake.url, concurrency=3)
        fake.register("s1")
        fake.expect(POLL).answer(200, polled(task("x/1"), task("x/2"), task("x/3")))
        running = {one.context.token: one for one in [self.next_running() for _ in range(3)]}
        for token in sorted(running):
            running[token].end(token)
        # The first result may have gone before the others were there.
        seen: list[str] = []
        end = time.monotonic() + PATIENCE
        while len(seen) < 3 and time.monotonic() < end:
            for path in (POLL, REPORT):
                request = fake.within(0.02, path)
                if request is None:
                    continue
                results = request.body.get("results", [])
                if any("output" in one and one["token"] == "x/2" for one in results):
                    request.error(400, "INVALID_REQUEST")
                    continue
                seen += [one["token"] for one in results]
                answered = {"outcomes": [{"token": one["token"], "outcome": "accepted"} for one in results]}
                request.answer(200, {"tasks": [], "cancel": [], **answered})
        self.assertEqual(sorted(seen), ["x/1", "x/2", "x/3"])

    def test_wrong_credentials_end_the_worker_with_the_servers_error(self) -> None:
        fake = self.fake()
        ended: queue.Queue[OrbitError] = queue.Queue()
        worker = self.make(fake.url)

        def run() -> None:
            try:
                worker.run()
            except OrbitError as error:
                ended.put(error)

        threading.Thread(target=run, daemon=True).start()
        fake.expect(REGISTER).error(401, "UNAUTHORIZED")
        self.assertEqual(ended.get(timeout=PATIENCE).code, "UNAUTHORIZED")
        self.assertEqual(worker.error and worker.error.status, 401)

    def test_a_server_that_is_away_at_first_is_waited_for(self) -> None:
        gone = Fake()
        port = gone.kill()
        with self.assertLogs("orbit", "WARNING") as logs:
            self.work(f"http://127.0.0.1:{port}")
            end = time.monotonic() + PATIENCE
            while not logs.output and time.monotonic() < end:
                time.sleep(0.005)
        reason = r"cannot reach an Orbit server at http://127\.0\.0\.1:\d+: Connection refused"
        self.assertRegex(logs.output[0], rf"^WARNING:orbit:register failed: {reason}; retrying in 0\.[0-2]s$")
        fake = self.fake(port)
        fake.register("s1")
        fake.expect(POLL)

    def test_requests_that_fail_wait_before_they_are_made_again(self) -> None:
        fake = self.fake()
        with self.assertLogs("orbit", "WARNING") as logs:
            self.work(fake.url)
            fake.register("s1", 20)
            begun = time.monotonic()
            for _ in range(3):
                fake.expect(POLL).error(503, "NOT_READY", retryable=True)
                fake.expect(BEAT).error(503, "NOT_READY", retryable=True)
            fake.expect(POLL)
        self.assertGreater(time.monotonic() - begun, 3 * 0.02)
        for name in ("poll", "heartbeat"):
            line = rf"^WARNING:orbit:{name} failed: NOT_READY: scripted \(none\); retrying in \d\.\ds$"
            self.assertGreaterEqual(sum(bool(re.match(line, one)) for one in logs.output), 2, logs.output)

    def test_a_server_that_has_too_much_to_do_is_given_the_time_that_it_asks_for(self) -> None:
        fake = self.fake()
        self.work(fake.url)
        fake.expect(REGISTER).error(429, "RESOURCE_EXHAUSTED", True, {"retry-after": "1"})
        begun = time.monotonic()
        fake.expect(REGISTER)
        self.assertGreater(time.monotonic() - begun, 0.9)

    def test_the_next_address_is_asked_where_one_is_gone(self) -> None:
        first, second = self.fake(), self.fake()
        self.work([first.url, second.url], concurrency=2)
        first.register("s1")
        first.expect(POLL).answer(200, polled(task("x/1")))
        running = self.next_running()
        first.expect(POLL)
        first.kill()
        second.expect(POLL).error(404, "UNKNOWN_SESSION")
        second.register("s2")
        poll = second.expect(POLL)
        self.assertEqual((poll.body["session_id"], poll.body["holding"]), ("s2", ["x/1"]))
        running.end(1)
        self.assertEqual(second.expect(REPORT).body["results"], [{"token": "x/1", "output": 1}])

    def test_a_standby_names_the_leader_and_the_worker_goes_there(self) -> None:
        standby, leader = self.fake(), self.fake()
        self.work(standby.url)
        standby.expect(REGISTER).error(503, "NOT_LEADER", True, {"x-orbit-leader": leader.url, "retry-after": "1"})
        leader.register("s1")
        leader.expect(POLL)
        self.assertIsNone(standby.within(0, POLL))

    def test_a_standby_that_knows_no_leader_is_passed_over(self) -> None:
        standby, leader = self.fake(), self.fake()
        self.work(f"{standby.url},{leader.url}")
        standby.expect(REGISTER).error(503, "NOT_LEADER", retryable=True)
        leader.register("s1")
        leader.expect(POLL)
