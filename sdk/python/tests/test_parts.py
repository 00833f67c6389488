"""The parts that need no server."""

from __future__ import annotations

import json
import pickle
import re
import unittest
from pathlib import Path
from typing import Any

import orbit_sdk
from orbit_sdk import Context, NotJson
from orbit_sdk._backoff import FIRST, LEAST, LONGEST, Backoff
from orbit_sdk._desk import BATCH_RESULTS, Desk, Outcome, failure_result, output_result
from orbit_sdk._json import encode
from orbit_sdk._servers import parse_servers
from orbit_sdk._transport import query_value, segment

from .fake import task
from .processes import HERE, REPOSITORY


class Addresses(unittest.TestCase):
    def test_several_servers_are_separated_by_commas_or_come_as_a_list(self) -> None:
        expected = ["http://a:1", "http://b:2", "http://[::1]:3", "http://c:80", "https://d:443"]
        servers = parse_servers("http://a:1, b:2 ,http://[::1]:3/,c,https://d")
        self.assertEqual([str(one) for one in servers], expected)
        self.assertEqual(
            [str(one) for one in parse_servers(["a:1,b:2", "http://[::1]:3", "c", "https://d/"])], expected
        )
        self.assertEqual(servers[2].host, "::1")

    def test_what_is_no_address_is_refused(self) -> None:
        bad = (
            "ftp://a:1",
            "http://",
            "http://a:b",
            "http://a:0",
            "http://a:99999",
            "a:1/v1",
            "http://u@a:1",
            "::1",
            "a b",
        )
        for text in bad:
            with self.subTest(text), self.assertRaisesRegex(ValueError, "write http://HOST:PORT"):
                parse_servers(text)
        with self.assertRaisesRegex(ValueError, "no server is named"):
            parse_servers(" , ")

    def test_what_has_a_meaning_in_addresses_is_escaped(self) -> None:
        self.assertEqual(segment("order-1:a@b+c~d/é?"), "order-1:a@b+c~d%2F%C3%A9%3F")
        self.assertEqual(query_value("a+b=c d"), "a%2Bb%3Dc%20d")


class Waits(unittest.TestCase):
    def test_waits_stay_between_the_least_and_a_bound_that_grows_to_five_seconds(self) -> None:
        backoff = Backoff()
        waits = [backoff.next() for _ in range(60)]
        for failures, wait in enumerate(waits):
            self.assertTrue(LEAST <= wait <= min(FIRST * 2**failures, LONGEST), (failures, wait))
        self.assertGreater(max(waits), LONGEST / 2)
        backoff.reset()
        self.assertLessEqual(backoff.next(), FIRST)

    def test_waits_differ(self) -> None:
        self.assertGreater(len({Backoff().next() for _ in range(20)}), 1)


class Json(unittest.TestCase):
    def test_values_are_written_exactly(self) -> None:
        value = {"n": 2**64 - 1, "m": -(2**63), "f": 1e22, "t": "é\0", "l": (1, [])}
        self.assertEqual(json.loads(encode(value, "value")), {**value, "l": [1, []]})

    def test_lists_may_lie_in_each_other_as_deep_as_a_server_takes_them(self) -> None:
        value: Any = 1
        for _ in range(120):
            value = [value]
        encode(value, "value")
        with self.assertRaisesRegex(NotJson, "nested deeper than 120 levels"):
            encode([value], "value")
        endless: list[Any] = []
        endless.append(endless)
        with self.assertRaisesRegex(NotJson, "nested deeper"):
            encode(endless, "value")


class OnTheDesk(unittest.TestCase):
    def setUp(self) -> None:
        self.desk = Desk()
        self.cancelled: list[str] = []

    def deliver(self, token: str) -> bool:
        return self.desk.accept(Context(task(token)), lambda: self.cancelled.append(token), "s1")

    def finish(self, token: str, output: Any = None) -> None:
        self.desk.finish(token, output_result(token, output))

    def take(self) -> list[str]:
        return self.desk.take_results()[0]

    def test_a_token_that_is_here_or_was_here_is_not_taken_again(self) -> None:
        self.assertTrue(self.deliver("x/1"))
        self.assertFalse(self.deliver("x/1"))
        self.finish("x/1")
        self.assertFalse(self.deliver("x/1"))
        self.take()
        self.assertTrue(self.desk.settle(["x/1"], [Outcome("x/1", "accepted")], "s1"))
        self.assertFalse(self.deliver("x/1"))
        self.assertTrue(self.deliver("x/2"))

    def test_a_result_is_sent_again_until_it_is_answered(self) -> None:
        self.deliver("x/1")
        self.finish("x/1")
        self.assertEqual(self.take(), ["x/1"])
        self.assertFalse(self.desk.has_results_to_send(), "it is under way")
        self.desk.unsent(["x/1"])
        self.assertEqual(self.take(), ["x/1"])
        self.assertFalse(self.desk.settle(["x/1"], [Outcome("x/1", "refused", "STORAGE_ERROR")], "s1"))
        self.assertEqual(self.take(), ["x/1"])
        self.assertFalse(self.desk.settle(["x/1"], [], "s1"), "an answer that does not speak of it settles nothing")
        self.assertEqual((self.take(), self.desk.holding()), (["x/1"], ["x/1"]))
        self.assertTrue(self.desk.settle(["x/1"], [Outcome("x/1", "stale")], "s1"))
        self.assertEqual((self.desk.unanswered(), self.desk.holding()), (0, []))

    def test_a_cancelled_task_is_named_no_more_and_its_result_is_dropped(self) -> None:
        self.deliver("x/1")
        self.desk.cancel(["x/1", "x/unknown", "x/1"])
        self.assertEqual((self.cancelled, self.desk.holding()), (["x/1"], []))
        self.assertEqual(self.desk.running(), 1, "its function still runs")
        self.finish("x/1")
        self.assertEqual((self.desk.running(), self.desk.unanswered()), (0, 0))

    def test_a_result_that_is_there_already_outlives_a_cancel(self) -> None:
        self.deliver("x/1")
        self.finish("x/1")
        self.desk.cancel(["x/1"])
        self.assertEqual((self.take(), self.cancelled), (["x/1"], []))

    def test_an_output_that_is_refused_becomes_a_failure_that_says_so_once(self) -> None:
        self.deliver("x/1")
        self.finish("x/1")
        self.take()
        self.desk.settle(["x/1"], [Outcome("x/1", "refused", "PAYLOAD_TOO_LARGE", "too large")], "s1")
        error = json.loads(self.desk.take_results()[1][0])["error"]
        self.assertEqual((error["code"], error["retryable"]), ("PAYLOAD_TOO_LARGE", False))
        self.assertIn("too large", error["message"])
        self.desk.settle(["x/1"], [Outcome("x/1", "refused", "PAYLOAD_TOO_LARGE")], "s1")
        self.assertEqual(self.desk.unanswered(), 0, "there is nothing smaller to say")

    def test_a_batch_that_is_refused_as_a_whole_goes_one_by_one(self) -> None:
        for token in ("x/1", "x/2", "x/3"):
            self.deliver(token)
            self.finish(token)
        self.assertEqual(len(tokens := self.take()), 3)
        self.desk.refused_together(tokens, "INVALID_REQUEST", "no")
        self.assertEqual(self.take(), ["x/1"])
        # What other requests bring meanwhile, a poll without results for one, changes nothing about that.
        self.desk.settle([], [], "s1")
        self.desk.unsent(["x/1"])
        self.assertEqual(self.take(), ["x/1"])
        self.desk.refused_together(["x/1"], "INVALID_REQUEST", "no")
        tokens, results = self.desk.take_results()
        self.assertEqual(tokens, ["x/1"], "the others are suspects still")
        self.assertEqual(json.loads(results[0])["error"]["code"], "INVALID_REQUEST")

    def test_answers_about_other_things_do_not_bring_a_refused_batch_together_again(self) -> None:
        for token in ("x/1", "x/2", "x/3"):
            self.deliver(token)
            self.finish(token)
        self.desk.refused_together(self.take(), "INVALID_REQUEST", "no")
        # Other work goes on meanwhile.
        for token in ("x/4", "x/5"):
            self.deliver(token)
            self.finish(token)
        self.assertEqual(self.take(), ["x/1"])
        self.assertFalse(self.desk.settle(["x/1"], [Outcome("x/1", "refused", "STORAGE_ERROR")], "s1"))
        self.assertEqual(self.take(), ["x/1"], "alone again")
        self.assertTrue(self.desk.settle(["x/1"], [Outcome("x/1", "accepted")], "s1"))
        self.assertEqual(self.take(), ["x/2"])
        self.desk.refused_together(["x/2"], "INVALID_REQUEST", "no")
        self.assertEqual(self.take(), ["x/2"], "what is wrong with it is known: it is said")
        self.assertTrue(self.desk.settle(["x/2"], [Outcome("x/2", "accepted")], "s1"))
        self.assertEqual(self.take(), ["x/3"])
        self.assertTrue(self.desk.settle(["x/3"], [Outcome("x/3", "accepted")], "s1"))
        self.assertEqual(self.take(), ["x/4", "x/5"], "these were in no refused batch")

    def test_one_request_carries_about_a_mebibyte_of_results_and_not_too_many(self) -> None:
        for token in ("x/1", "x/2"):
            self.deliver(token)
            self.finish(token, "x" * 600_000)
        self.assertEqual((self.take(), self.take()), (["x/1"], ["x/2"]))
        for number in range(BATCH_RESULTS + 1):
            self.deliver(f"y/{number}")
            self.finish(f"y/{number}")
        self.assertEqual((len(self.take()), len(self.take())), (BATCH_RESULTS, 1))

    def test_a_failure_can_always_be_told(self) -> None:
        failure = orbit_sdk.TaskFailure("A\ud800", "x" * 20_000 + "\ud800", details={"at": object()})
        error = json.loads(failure_result("x/1", failure))["error"]
        self.assertEqual((error["code"], len(error["message"])), ("A?", 8000))
        self.assertIn("details.at is of type object", error["details"]["unreadable"])


class Documents(unittest.TestCase):
    def test_their_programs_are_those_that_are_there_and_the_others_are_python(self) -> None:
        chapters = [HERE.parent / "README.md", REPOSITORY / "docs" / "src" / "sdk" / "python.md"]
        named = compiled = 0
        for chapter in chapters:
            for name, code in re.findall(r"(?:<!-- (\S+) -->\n)?```python\n(.*?)```", chapter.read_text(), re.DOTALL):
                if name:
                    self.assertEqual(code, (REPOSITORY / name).read_text(), f"{chapter.name}: {name}")
                    named += 1
                for line in code.splitlines():
                    if line.startswith(("import ", "from ")):
                        exec(line, {})
                compile(code, f"{chapter.name}: {code[:40]}", "exec")
                compiled += 1
        self.assertEqual((named, compiled >= 8), (1, True))


class ThePackage(unittest.TestCase):
    def test_its_version_is_that_of_its_metadata(self) -> None:
        text = (HERE.parent / "pyproject.toml").read_text()
        found = re.search(r'^version = "(.*)"$', text, re.MULTILINE)
        self.assertEqual(found and found[1], orbit_sdk.__version__)

    def test_its_errors_survive_being_sent_to_another_process(self) -> None:
        errors = (
            orbit_sdk.OrbitError("UNKNOWN_WORKFLOW", "no", "deploy it", 404, details={"a": 1}),
            orbit_sdk.Unreachable(["http://a:1: Connection refused"]),
            orbit_sdk.Unexpected("http://a:1", "it answered with status 404", 404),
            orbit_sdk.TaskFailure("DECLINED", "no", retryable=False, details=1),
        )
        for error in errors:
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), str(again), vars(again)), (type(error), str(error), vars(error)))

    def test_what_it_offers_is_there_and_typed(self) -> None:
        for name in orbit_sdk.__all__:
            self.assertTrue(hasattr(orbit_sdk, name), name)
        self.assertTrue((Path(orbit_sdk.__file__).parent / "py.typed").exists())


if __name__ == "__main__":
    unittest.main()
