"""The client against a server that the test plays: addresses, repetition, pages."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import unittest
from collections.abc import Callable
from typing import Any

from orbit_sdk import Client, NotJson, OrbitError, Signalled, Unexpected, Unreachable, Updated, Worker

from .fake import CERTIFICATE, PATIENCE, Fake

EXECUTION = {
    "execution_id": "e",
    "workflow": "W",
    "version": "1",
    "status": "running",
    "created_at_ms": 1,
    "updated_at_ms": 2,
    "run": 1,
    "last_seq": 3,
    "input": None,
    "a_field_of_tomorrow": 1,
}
STARTED = {"execution_id": "e", "status": "running", "created": True, "workflow": "W", "version": "1"}


class Clients(unittest.TestCase):
    def fake(self, port: int = 0, tls: bool = False) -> Fake:
        fake = Fake(port, tls)
        self.addCleanup(fake.kill)
        return fake

    def client(self, servers: Any, **options: Any) -> Client:
        client = Client(servers, **options)
        self.addCleanup(client.close)
        return client

    def asked(self, ask: Callable[[], Any]) -> queue.Queue[Any]:
        """Asks on another thread; what came of it."""
        came: queue.Queue[Any] = queue.Queue()

        def run() -> None:
            try:
                came.put(ask())
            except OrbitError as error:
                came.put(error)

        threading.Thread(target=run, daemon=True).start()
        return came

    def test_a_connection_is_used_again(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        for _ in range(3):
            came = self.asked(lambda: client.get("e"))
            fake.expect("/v1/executions/e").answer(200, EXECUTION)
            self.assertEqual(came.get(timeout=PATIENCE).status, "running")
        self.assertEqual(len(fake._listener.connections), 1)

    def test_a_kept_connection_that_has_been_closed_is_replaced(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        came = self.asked(lambda: client.get("e"))
        fake.expect("/v1/executions/e").answer(200, EXECUTION)
        came.get(timeout=PATIENCE)
        fake = self.fake(fake.kill())
        came = self.asked(lambda: client.get("e"))
        fake.expect("/v1/executions/e").answer(200, EXECUTION)
        self.assertEqual(came.get(timeout=PATIENCE).status, "running")

    def test_a_start_that_is_sent_twice_carries_the_same_drawn_id_and_counts_as_new(self) -> None:
        fake = self.fake()
        came = self.asked(lambda: self.client(fake.url, patience=30).start("W", {"a": 1}, labels={"k": "v"}))
        first = fake.expect("/v1/executions")
        first.drop()
        second = fake.expect("/v1/executions")
        self.assertEqual(first.body, second.body)
        self.assertEqual((first.body["input"], first.body["labels"]), ({"a": 1}, {"k": "v"}))
        second.answer(200, {**STARTED, "created": False})
        self.assertTrue(came.get(timeout=PATIENCE).created)

    def test_an_unreachable_server_is_named_with_the_reason(self) -> None:
        urls = []
        for _ in range(2):
            gone = Fake()
            gone.kill()
            urls.append(gone.url)
        with self.assertRaises(Unreachable) as caught:
            self.client(urls).get("e")
        error = caught.exception
        self.assertEqual((error.code, error.status, error.retryable), ("UNREACHABLE", 0, True))
        expected = f"cannot reach an Orbit server at {urls[0]}: Connection refused; {urls[1]}: Connection refused"
        self.assertEqual(str(error), expected)

    def test_a_server_that_does_not_answer_in_time_counts_as_gone(self) -> None:
        silent, other = self.fake(), self.fake()
        came = self.asked(lambda: self.client([silent.url, other.url], timeout=0.2).get("e"))
        silent.expect("/v1/executions/e")
        other.expect("/v1/executions/e").answer(200, EXECUTION)
        self.assertEqual(came.get(timeout=PATIENCE).execution_id, "e")

    def test_what_is_no_orbit_server_is_said_to_be_none(self) -> None:
        for answer in (b"<html>", b'{"status": "fine"}', b"[1]", b"NaN"):
            with self.subTest(answer):
                fake = self.fake()
                client = self.client(fake.url)
                came = self.asked(lambda client=client: client.get("e"))  # type: ignore[misc]
                fake.expect("/v1/executions/e").answer_bytes(200, answer)
                self.assertIsInstance(came.get(timeout=PATIENCE), Unexpected)
        fake = self.fake()
        came = self.asked(lambda: self.client(fake.url).get("e"))
        fake.expect("/v1/executions/e").answer_bytes(404, b"no such page")
        error = came.get(timeout=PATIENCE)
        self.assertEqual((type(error), error.status, error.retryable), (Unexpected, 404, False))

    def test_a_leader_that_a_standby_names_is_asked_then_and_later(self) -> None:
        standby, leader = self.fake(), self.fake()
        client = self.client(standby.url)
        came = self.asked(lambda: client.start("W", execution_id="e"))
        standby.expect("/v1/executions").error(503, "NOT_LEADER", True, {"x-orbit-leader": leader.url})
        leader.expect("/v1/executions").answer(201, STARTED)
        self.assertTrue(came.get(timeout=PATIENCE).created)
        came = self.asked(lambda: client.get("e"))
        leader.expect("/v1/executions/e").answer(200, EXECUTION)
        came.get(timeout=PATIENCE)
        # When it is gone the list counts again.
        leader.kill()
        came = self.asked(lambda: client.get("e"))
        standby.expect("/v1/executions/e").answer(200, EXECUTION)
        came.get(timeout=PATIENCE)

    def test_standbys_that_name_each_other_are_not_followed_for_ever(self) -> None:
        one, two = self.fake(), self.fake()
        came = self.asked(lambda: self.client(one.url).start("W"))
        for fake, other in ((one, two), (two, one), (one, two)):
            fake.expect("/v1/executions").error(503, "NOT_LEADER", True, {"x-orbit-leader": other.url})
        self.assertEqual(came.get(timeout=PATIENCE).code, "NOT_LEADER")

    def test_patience_repeats_what_may_succeed_later_and_nothing_else(self) -> None:
        fake = self.fake()
        came = self.asked(lambda: self.client(fake.url, patience=30).get("e"))
        fake.expect("/v1/executions/e").error(503, "NOT_READY", True)
        fake.expect("/v1/executions/e").error(429, "RESOURCE_EXHAUSTED", True, {"retry-after": "0"})
        fake.expect("/v1/executions/e").error(404, "UNKNOWN_EXECUTION")
        self.assertEqual(came.get(timeout=PATIENCE).code, "UNKNOWN_EXECUTION")
        came = self.asked(lambda: self.client(fake.url).get("e"))
        fake.expect("/v1/executions/e").error(503, "NOT_READY", True)
        self.assertEqual(came.get(timeout=PATIENCE).code, "NOT_READY")

    def test_a_history_and_a_list_go_over_the_pages(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        came = self.asked(lambda: list(client.history("e", after=2)))
        for after, seqs, more in ((2, (3, 4), True), (4, (5,), False)):
            request = fake.expect("/v1/executions/e/history")
            self.assertTrue(request.path.endswith(f"after_seq={after}"), request.path)
            events = [{"seq": seq, "at_ms": 1, "type": "StepScheduled", "step": "a", "attempt": 1} for seq in seqs]
            request.answer(200, {"execution_id": "e", "events": events, "more": more})
        events = came.get(timeout=PATIENCE)
        seen = [(event.seq, event.step, event.fields["attempt"]) for event in events]
        self.assertEqual(seen, [(3, "a", 1), (4, "a", 1), (5, "a", 1)])

        came = self.asked(lambda: list(client.list(workflow="W&x", limit=501)))
        first = fake.expect("/v1/executions")
        self.assertEqual(first.path, "/v1/executions?workflow=W%26x&limit=500")
        first.answer(200, {"executions": [EXECUTION] * 500, "next_cursor": "1.e"})
        second = fake.expect("/v1/executions")
        self.assertEqual(second.path, "/v1/executions?workflow=W%26x&limit=1&cursor=1.e")
        second.answer(200, {"executions": [EXECUTION], "next_cursor": "0.e"})
        self.assertEqual(len(came.get(timeout=PATIENCE)), 501)

    def test_an_execution_says_what_it_waits_for_and_why_it_was_cancelled(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        error = {"code": "DECLINED", "message": "no", "retryable": True}
        step = {"step_id": "charge", "kind": "task", "since_ms": 5, "reason": "retry", "task_name": "t", "attempt": 2}
        step.update({"contract_version": "1", "max_attempts": 5, "until_ms": 9, "last_error": error, "novel": 1})
        came = self.asked(lambda: client.get("e"))
        fake.expect("/v1/executions/e").answer(200, {**EXECUTION, "waiting": [step]})
        (waiting,) = came.get(timeout=PATIENCE).waiting
        self.assertEqual((waiting.step_id, waiting.reason, waiting.attempt, waiting.until_ms), ("charge", "retry", 2, 9))
        assert waiting.last_error is not None
        self.assertEqual(waiting.last_error.code, "DECLINED")
        came = self.asked(lambda: client.get("e"))
        fake.expect("/v1/executions/e").answer(200, {**EXECUTION, "status": "cancelled", "cancel_reason": "enough"})
        ended = came.get(timeout=PATIENCE)
        self.assertEqual((ended.cancel_reason, list(ended.waiting)), ("enough", []))

    def test_what_is_sent_always_carries_an_id_and_repeats_under_it(self) -> None:
        fake = self.fake()
        client = self.client(fake.url, patience=PATIENCE)
        came = self.asked(lambda: client.signal("e/1", "go on", {"by": [1]}))
        first = fake.expect("/v1/executions/e%2F1/signals/go%20on")
        self.assertEqual((first.method, first.body["payload"]), ("POST", {"by": [1]}))
        first.error(503, "NOT_READY", True)
        second = fake.expect("/v1/executions/e%2F1/signals/go%20on")
        self.assertEqual(second.body, first.body)
        self.assertRegex(second.body["signal_id"], "^[0-9a-f-]{36}$")
        second.answer(200, {"seq": 4, "run": 2})
        self.assertEqual(came.get(timeout=PATIENCE), Signalled(4, 2))

        came = self.asked(lambda: client.update("e", "raise", 3, update_id="u"))
        exchange = fake.expect("/v1/executions/e/updates/raise")
        self.assertEqual(exchange.body, {"update_id": "u", "payload": 3})
        exchange.answer(200, {"seq": 5, "run": 1, "result": {"n": 4}})
        self.assertEqual(came.get(timeout=PATIENCE), Updated(5, 1, {"n": 4}))

        came = self.asked(lambda: client.query("e", "state"))
        exchange = fake.expect("/v1/executions/e/queries/state")
        self.assertEqual(exchange.method, "GET")
        exchange.answer(200, {"result": None})
        self.assertIsNone(came.get(timeout=PATIENCE))

        came = self.asked(lambda: client.terminate("e", "it hangs"))
        exchange = fake.expect("/v1/executions/e/terminate")
        self.assertEqual(exchange.body, {"reason": "it hangs"})
        exchange.answer(200, {**EXECUTION, "status": "terminated"})
        self.assertTrue(came.get(timeout=PATIENCE).finished)

        came = self.asked(lambda: client.recover("e", "looked at"))
        exchange = fake.expect("/v1/executions/e/recover")
        self.assertEqual(exchange.body, {"reason": "looked at"})
        exchange.answer(200, {**EXECUTION, "status": "held"})
        self.assertFalse(came.get(timeout=PATIENCE).finished)

    def test_a_part_of_a_step_says_what_it_is_and_what_it_awaits(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        part = {"step_id": "ship", "unit": "ship[3]", "kind": "await", "since_ms": 5, "reason": "signal", "signal": "go"}
        came = self.asked(lambda: client.get("e"))
        word = {"step_id": "word", "kind": "await", "since_ms": 5, "reason": "update", "update": "decide"}
        fake.expect("/v1/executions/e").answer(200, {**EXECUTION, "waiting": [part, word]})
        (waiting, other) = came.get(timeout=PATIENCE).waiting
        self.assertEqual((waiting.unit, waiting.signal, waiting.items), ("ship[3]", "go", None))
        self.assertEqual((other.unit, other.signal, other.update), (None, None, "decide"))

    def test_a_worker_is_told_with_its_sessions(self) -> None:
        fake = self.fake()
        came = self.asked(lambda: self.client(fake.url).workers())
        session = {"session_id": "s1", "registered_ms": 1, "last_seen_ms": 2, "holding": 1, "later": True}
        worker = {"worker_id": "w", "runtime": "rust", "contracts": [], "last_seen_ms": 2, "sessions": 1, "holding": 1}
        fake.expect("/v1/workers").answer(200, {"workers": [{**worker, "open_sessions": [session]}, worker]})
        shown, other = came.get(timeout=PATIENCE)
        self.assertEqual([(one.session_id, one.registered_ms, one.holding) for one in shown.open_sessions], [("s1", 1, 1)])
        self.assertEqual(list(other.open_sessions), [])

    def test_an_input_that_json_cannot_say_is_refused_before_anything_is_sent(self) -> None:
        client = self.client("http://127.0.0.1:1")
        with self.assertRaisesRegex(NotJson, r"input\.rate is inf, which JSON cannot say"):
            client.start("W", {"rate": float("1e400")})

    def test_a_definition_goes_as_what_it_is(self) -> None:
        fake = self.fake()
        client = self.client(fake.url)
        deployed = {"name": "W", "version": "1", "definition_hash": "h", "result": "created"}
        yaml, json = "name: W", ' {"name": "W"}'
        for definition, kind in ((yaml, "yaml"), (json, "json"), ({"name": "W"}, "json"), (yaml.encode(), "yaml")):
            came = self.asked(lambda definition=definition: client.deploy(definition))  # type: ignore[misc]
            exchange = fake.expect("/v1/workflows")
            self.assertEqual(exchange.headers["content-type"], f"application/{kind}")
            exchange.answer(201, deployed)
            self.assertEqual(came.get(timeout=PATIENCE).result, "created")
        slip = {"path": "/input/requird", "message": "m", "hint": "h", "line": 3, "column": 9}
        came = self.asked(lambda: client.deploy(yaml))
        fake.expect("/v1/workflows").answer(201, {**deployed, "warnings": [slip]})
        warning = came.get(timeout=PATIENCE).warnings[0]
        self.assertEqual((warning.path, warning.hint, warning.line, warning.column), ("/input/requird", "h", 3, 9))
        came = self.asked(lambda: client.deploy(yaml, strict=True))
        exchange = fake.expect("/v1/workflows")
        self.assertEqual(exchange.path, "/v1/workflows?strict=true")
        exchange.answer(201, deployed)
        self.assertEqual(came.get(timeout=PATIENCE).result, "created")

    def test_https_checks_who_answers(self) -> None:
        fake = self.fake(tls=True)
        with self.assertRaises(Unreachable) as caught:
            self.client(fake.url, timeout=5).get("e")
        self.assertRegex(str(caught.exception), r"https://127\.0\.0\.1:\d+: .*certificate verify failed")
        client = self.client(fake.url, ssl_context=ssl.create_default_context(cafile=str(CERTIFICATE)))
        for _ in range(2):
            came = self.asked(lambda: client.get("e"))
            fake.expect("/v1/executions/e").answer(200, EXECUTION)
            self.assertEqual(came.get(timeout=PATIENCE).status, "running")

    def test_https_where_http_is_spoken_and_the_reverse_say_what_to_write(self) -> None:
        plain = self.fake()
        address = plain.url.removeprefix("http://")
        with self.assertRaises(Unreachable) as caught:
            self.client(f"https://{address}", timeout=5).get("e")
        told = f"https://{address}: the server there does not speak TLS; write http:// instead of https://"
        self.assertTrue(str(caught.exception).endswith(told), caught.exception)
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def alert() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    # What OpenSSL sends: "unexpected message", fatal.
                    connection.sendall(b"\x15\x03\x01\x00\x02\x02\x0a")

            threading.Thread(target=alert, daemon=True).start()
            with self.assertRaises(Unreachable) as caught:
                self.client(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=5).get("e")
            told = "the server there speaks TLS; write https:// instead of http://"
            self.assertTrue(str(caught.exception).endswith(told), caught.exception)

    def test_a_worker_over_https_gives_its_poll_up_when_it_stops(self) -> None:
        fake = self.fake(tls=True)
        worker = Worker(fake.url, ssl_context=ssl.create_default_context(cafile=str(CERTIFICATE)))
        worker.task("t")(lambda ctx, input: None)
        worker.start()
        fake.register("s1")
        poll = fake.expect("/v1/workers/poll")
        stopping = threading.Thread(target=worker.stop, daemon=True)
        stopping.start()
        poll.given_up()
        fake.expect("/v1/workers/unregister").answer(200, {})
        stopping.join(PATIENCE)
        self.assertFalse(stopping.is_alive())

    def test_a_body_that_is_refused_before_it_was_read_gets_its_answer(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:

            def refuse() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1000)
                    body = b'{"error":{"code":"PAYLOAD_TOO_LARGE","message":"too large","retryable":false}}'
                    head = b"HTTP/1.1 413 Payload Too Large\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
                    connection.sendall(head % len(body) + body)
                    # Whoever writes on is told that nobody reads.
                    connection.shutdown(socket.SHUT_RD)

            threading.Thread(target=refuse, daemon=True).start()
            client = self.client(f"http://127.0.0.1:{listener.getsockname()[1]}")
            with self.assertRaises(OrbitError) as caught:
                client.start("W", "x" * (20 << 20))
            self.assertEqual((caught.exception.code, caught.exception.status), ("PAYLOAD_TOO_LARGE", 413))


if __name__ == "__main__":
    unittest.main()
