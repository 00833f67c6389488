"""Workers and servers that are killed, paused and resumed in the middle of a task; what histories and logs tell."""

from __future__ import annotations

import json
import re
import signal
import unittest
from typing import Any

from orbit_sdk import Client

from .processes import Process, Proxy, WithServers, count, has_event

#: Seconds after which a silent worker is lost.
SESSION = "1.5"
#: What a worker says when it is a stranger.
AGAIN = "the server does not know this session any more; registering again"
GATE = {
    "name": "Gate",
    "version": "1",
    "steps": [{"id": "work", "task": "test.gate"}],
    "result": "${ steps.work.output }",
}
#: The same, and a step that no worker runs: so the execution waits after the first.
GATE_AND_WAIT = {
    "name": "GateAndWait",
    "version": "1",
    "steps": [{"id": "work", "task": "test.gate"}, {"id": "wait", "task": "test.nobody", "after": ["work"]}],
}


def executing(process: Process, execution: str) -> list[dict[str, Any]]:
    """What a worker's log says of the executions of a task, in the form of the reference's example."""
    form = r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO orbit executing (\{.*\})$"
    lines = [json.loads(found[1]) for line in process.log().splitlines() if (found := re.match(form, line))]
    return [line for line in lines if line["execution_id"] == execution]


class Killed(WithServers):
    def test_a_task_whose_worker_is_killed_runs_again_with_the_same_key_and_a_flag(self) -> None:
        server = self.server("--session-timeout", SESSION)
        client = self.client(server.url)
        client.deploy(GATE)
        first = self.worker("first", server.url)
        client.start("Gate", execution_id="killed")
        self.journals("begun")
        first.kill()
        second = self.worker("second", server.url)
        self.journals("begun", 2)
        self.open_gate("killed")
        execution = client.wait("killed", 30)

        self.assertEqual((execution.status, execution.output), ("completed", {"worker": "second", "redelivery": True}))
        before, after = self.journal("begun")
        self.assertEqual((before["worker"], before["redelivery"]), ("first", False))
        self.assertEqual((after["worker"], after["redelivery"]), ("second", True))
        self.assertEqual(before["key"], after["key"])
        self.assertEqual(before["attempt"], after["attempt"], "a redelivery is no attempt of its own")
        events = count(client, "killed")
        self.assertEqual((events["StepDispatched"], events["StepAttemptUncertain"], events["StepSucceeded"]), (2, 1, 1))
        # The logs tell it.
        server.says(r"WARN .*worker lost worker_id=first session=\S+ holding=1")
        uncertain = "attempt outcome uncertain; redelivering execution_id=killed step=work attempt=1"
        server.says(rf"WARN .*{uncertain} reason=worker `first` stopped responding")
        self.assertEqual(
            executing(second, "killed"),
            [{"execution_id": "killed", "step": "work", "attempt": 1, "task": "test.gate", "redelivery": True}],
        )

    def test_a_server_that_is_killed_and_started_again_takes_the_result_of_the_task_that_ran_meanwhile(self) -> None:
        server = self.server()
        client = self.client(server.url, patience=30)
        client.deploy(GATE)
        worker = self.worker("w", server.url)
        client.start("Gate", execution_id="restarted")
        self.journals("begun")
        server.kill()
        self.open_gate("restarted")
        self.journals("returned")
        reason = rf"cannot reach an Orbit server at {server.url}: .*"
        worker.says(rf"WARNING orbit (poll|report|heartbeat) failed: {reason}; retrying in \d\.\ds")
        server = self.server(port=server.port)
        execution = client.wait("restarted", 30)

        self.assertEqual((execution.status, execution.output), ("completed", {"worker": "w", "redelivery": False}))
        self.assertEqual(len(self.journal("begun")), 1, "it ran once")
        events = count(client, "restarted")
        self.assertEqual((events["StepDispatched"], events["StepSucceeded"]), (1, 1))
        self.assertNotIn("StepAttemptUncertain", events)
        worker.says(rf'WARNING orbit {AGAIN} {{"holding": \["restarted/')
        server.says("worker registered worker_id=w runtime=python tasks=1")

    def test_a_worker_that_is_told_to_end_finishes_what_it_runs(self) -> None:
        server = self.server("--session-timeout", SESSION)
        client = self.client(server.url)
        client.deploy(GATE)
        worker = self.worker("w", server.url)
        client.start("Gate", execution_id="stopped")
        self.journals("begun")
        worker.signal(signal.SIGTERM)
        worker.says(r'orbit stopping \{"running": 1\}')
        self.open_gate("stopped")
        self.assertEqual(worker.ended(), 0)
        execution = client.wait("stopped", 30)
        self.assertEqual(execution.output, {"worker": "w", "redelivery": False})
        self.assertEqual(count(client, "stopped")["StepDispatched"], 1)
        server.says("worker unregistered worker_id=w")

    def test_what_a_worker_holds_when_it_gives_up_is_delivered_again_at_once(self) -> None:
        # With a session of an hour: it is the goodbye that the server goes by.
        server = self.server("--session-timeout", "3600")
        client = self.client(server.url)
        client.deploy(GATE)
        worker = self.worker("first", server.url)
        client.start("Gate", execution_id="given-up")
        self.journals("begun")
        worker.signal(signal.SIGTERM)
        worker.says(r'orbit stopping \{"running": 1\}')
        worker.signal(signal.SIGTERM)
        self.assertEqual(worker.ended(), 0)
        worker.says(r'WARNING orbit stopped before everything was done; it will be delivered again \{"running": 1')
        self.worker("second", server.url)
        self.open_gate("given-up")
        self.assertEqual(client.wait("given-up", 30).output, {"worker": "second", "redelivery": True})


class Paused(WithServers):
    def test_a_paused_worker_resumes_under_a_new_session_and_runs_the_task_again(self) -> None:
        server = self.server("--session-timeout", SESSION)
        client = self.client(server.url)
        client.deploy(GATE)
        worker = self.worker("w", server.url)
        client.start("Gate", execution_id="paused")
        self.journals("begun")
        worker.signal(signal.SIGSTOP)
        has_event(client, "paused", "StepAttemptUncertain")
        worker.signal(signal.SIGCONT)
        # The first run is told that nobody waits for it; the second comes flagged, with the same key.
        self.journals("cancelled")
        self.journals("begun", 2)
        self.open_gate("paused")
        execution = client.wait("paused", 30)

        self.assertEqual((execution.status, execution.output), ("completed", {"worker": "w", "redelivery": True}))
        before, after = self.journal("begun")
        self.assertEqual((before["redelivery"], after["redelivery"]), (False, True))
        self.assertEqual(before["key"], after["key"])
        events = count(client, "paused")
        self.assertEqual((events["StepDispatched"], events["StepAttemptUncertain"], events["StepSucceeded"]), (2, 1, 1))
        server.says(r"WARN .*worker lost worker_id=w session=\S+ holding=1")
        server.says(r"WARN .*attempt outcome uncertain; redelivering execution_id=paused step=work attempt=1")
        worker.says(r"WARNING orbit this process stood still for about \d+\.\ds, and its session lives 1\.5s")
        worker.says(rf'WARNING orbit {AGAIN} {{"holding": \["paused/')
        worker.says(r'INFO orbit cancelled \{"execution_id": "paused", "step": "work"')
        self.assertEqual([line["redelivery"] for line in executing(worker, "paused")], [False, True])

    def test_a_result_that_a_paused_worker_brings_late_is_accepted_while_the_step_waits(self) -> None:
        server, client, worker, proxy = self.pause("Gate", "late")
        self.resume_with_a_result(worker, proxy, "late")
        execution = client.wait("late", 30)
        self.assertEqual((execution.status, execution.output), ("completed", {"worker": "w", "redelivery": False}))
        self.assertEqual(len(self.journal("begun")), 1, "it ran once")
        events = count(client, "late")
        self.assertEqual((events["StepDispatched"], events["StepAttemptUncertain"], events["StepSucceeded"]), (1, 1, 1))
        worker.says(r'INFO orbit a result of an earlier session was accepted \{"execution_id": "late"')
        server.says(r"execution completed execution_id=late")

    def test_a_result_that_comes_after_another_workers_is_stale(self) -> None:
        server, client, worker, proxy = self.pause("GateAndWait", "stale")
        other = self.worker("other", server.url)
        self.journals("begun", 2)
        self.open_gate("stale")
        has_event(client, "stale", "StepSucceeded")
        self.resume_with_a_result(worker, proxy, "stale")
        ignored = has_event(client, "stale", "StaleResultIgnored")

        self.assertEqual((ignored.step, ignored.fields["outcome"]), ("work", "succeeded"))
        succeeded = [event for event in client.history("stale") if event.type == "StepSucceeded"]
        self.assertEqual([event.fields["output"] for event in succeeded], [{"worker": "other", "redelivery": True}])
        keys = {entry["key"] for entry in self.journal("begun")}
        self.assertEqual(len(keys), 1, "whatever the task did with its key it did once")
        worker.says(r'WARNING orbit the result came too late: nothing waits for it any more \{"execution_id": "stale"')
        self.assertEqual([line["redelivery"] for line in executing(other, "stale")], [True])

    def pause(self, workflow: str, execution: str) -> tuple[Process, Client, Process, Proxy]:
        """A worker that runs a task and is paused until its session is lost."""
        server = self.server("--session-timeout", SESSION)
        proxy = Proxy(server.port)
        self.addCleanup(proxy.end)
        client = self.client(server.url)
        client.deploy(GATE)
        client.deploy(GATE_AND_WAIT)
        worker = self.worker("w", proxy.url)
        client.start(workflow, execution_id=execution)
        self.journals("begun")
        worker.signal(signal.SIGSTOP)
        has_event(client, execution, "StepAttemptUncertain")
        return server, client, worker, proxy

    def resume_with_a_result(self, worker: Process, proxy: Proxy, execution: str) -> None:
        """The worker goes on, and its task ends before it hears of a server."""
        self.open_gate(execution)
        proxy.shut()
        worker.signal(signal.SIGCONT)
        worker.says(rf'DEBUG orbit ended {{"execution_id": "{execution}"')
        proxy.open()


if __name__ == "__main__":
    unittest.main()
