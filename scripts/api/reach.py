"""Asks a server for every answer that its description promises, and tells which ones came.

    reach.py prepare URL TOKEN      begins what a server that is killed and started again finds held, or cannot read
    reach.py damage DB              makes it unreadable, while no server runs
    reach.py try URL TOKEN FILE DB  sends the requests, and writes what was reached
    reach.py report URL TOKEN FILE… adds up what several runs reached, and fails where an answer never came

Statuses of a server in trouble are not expected here: `io/tests/http_front` brings them about on each route, with a
node that says so and clients that misbehave.
"""

import collections
import http.client
import json
import sqlite3
import sys
import urllib.parse

TROUBLE = {408, 429, 500, 503, 504}
# Of a cluster: server/tests/nodes.rs brings it about.
ELSEWHERE = {"POST /v1/cluster/step-down 200"}
SESSION = "00000000-0000-0000-0000-000000000000"
TOKEN = f"nobody/{SESSION}"


class Server:
    def __init__(self, url, token):
        self.address = urllib.parse.urlsplit(url).netloc
        self.token = token
        self.reached = collections.Counter()
        self.document = self.send("GET", "/v1/openapi.json", "/v1/openapi.json")[1]

    def send(self, method, template, target, body=None, media="application/json", authorized=True):
        """One request; its status and its answer in JSON (else None)."""
        headers = {"authorization": f"Bearer {self.token}"} if authorized else {}
        if body is not None:
            headers["content-type"] = media
            if not isinstance(body, bytes):
                body = json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            connection.request(method, target, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        self.reached[f"{method} {template}", answer.status] += 1
        is_json = (answer.headers.get("content-type") or "").startswith("application/json")
        return answer.status, json.loads(text) if is_json else None

    def expect(self, status, method, template, body=None, query="", **names):
        target = template
        for name, value in names.items():
            target = target.replace("{" + name + "}", urllib.parse.quote(value, safe=""))
        got, answer = self.send(method, template, target + query, body)
        if got != status:
            sys.exit(f"error: {method} {target}{query} gave {got}, not {status}: {answer}")
        return answer

    def operations(self):
        for path, item in self.document["paths"].items():
            for method in ("get", "post"):
                if method in item:
                    yield method.upper(), path, item[method]


def refusals(server):
    """What every route refuses in the same way."""
    for method, path, operation in server.operations():
        target = path.replace("{", "").replace("}", "")
        documented = operation["responses"]
        if "401" in documented:
            server.send(method, path, target, authorized=False)
        if method == "GET" and "400" in documented:
            server.send(method, path, f"{target}?zebra=1")
        if method == "POST":
            server.send(method, path, target, b'{"a": 1, "a": 2}')
            server.send(method, path, target, b"{}", media="text/plain")
            server.send(method, path, target, b" " * (5 << 20))


def life(server):
    """The life of some executions, with every answer on the way."""
    definition = {
        "name": "Reach",
        "version": "1",
        "input": {"type": "object", "required": ["name"]},
        "steps": [
            {"id": "greet", "task": "reach.greet", "input": "${ input.name }", "timeout": "1h"},
            {"id": "once", "task": "reach.greet"},
        ],
        "result": "${ steps.greet.output }",
    }
    workflows, executions = "/v1/workflows", "/v1/executions"
    server.expect(201, "POST", workflows, definition)
    server.expect(200, "POST", workflows, definition)
    server.expect(409, "POST", workflows, {**definition, "result": 1})
    server.expect(422, "POST", workflows, {**definition, "version": "2", "result": "${ steps.gret.output }"})
    server.expect(200, "GET", workflows)
    server.expect(200, "GET", workflows + "/{name}", name="Reach")
    server.expect(404, "GET", workflows + "/{name}", name="Nobody")
    server.expect(200, "GET", workflows + "/{name}/versions/{version}", name="Reach", version="1")
    server.expect(404, "GET", workflows + "/{name}/versions/{version}", name="Reach", version="2")

    start = {"workflow": "Reach", "execution_id": "reach-1", "input": {"name": "Ada"}, "labels": {"team": "x"}}
    server.expect(201, "POST", executions, start)
    server.expect(200, "POST", executions, start)
    server.expect(409, "POST", executions, {**start, "input": {"name": "Bob"}})
    server.expect(422, "POST", executions, {**start, "execution_id": "reach-2", "input": {}})
    server.expect(404, "POST", executions, {**start, "workflow": "Nobody"})
    server.expect(400, "POST", executions, {**start, "input": 2**64})
    server.expect(400, "GET", executions, query="?cursor=nobody")
    server.expect(200, "GET", executions, query="?status=running&label=team%3Dx&limit=1")
    one = executions + "/{id}"
    for path in (one, one + "/history", one + "/wait"):
        server.expect(200, "GET", path, query="?timeout_ms=0" if path.endswith("wait") else "", id="reach-1")
        server.expect(404, "GET", path, id="nobody")

    contracts = [{"task_name": "reach.greet"}]
    worker = {"worker_id": "reach", "runtime": "python", "contracts": contracts}
    server.expect(400, "POST", "/v1/workers/register", {**worker, "contracts": contracts * 2})
    session = server.expect(200, "POST", "/v1/workers/register", worker)["session_id"]
    poll = {"session_id": session, "wait_ms": 30_000, "holding": []}
    first = server.expect(200, "POST", "/v1/workers/poll", poll)["tasks"][0]
    heartbeat = {"session_id": session, "holding": [first["token"], TOKEN]}
    cancel = server.expect(200, "POST", "/v1/workers/heartbeat", heartbeat)["cancel"]
    assert cancel == [TOKEN], cancel
    done = {"session_id": session, "token": first["token"], "output": "Hello Ada"}
    assert server.expect(200, "POST", "/v1/tasks/complete", done)["outcome"] == "accepted"
    assert server.expect(200, "POST", "/v1/tasks/complete", done)["outcome"] == "duplicate"
    second = server.expect(200, "POST", "/v1/workers/poll", poll)["tasks"][0]
    failed = {"session_id": session, "token": second["token"], "error": {"code": "X", "retryable": False}}
    assert server.expect(200, "POST", "/v1/tasks/fail", failed)["outcome"] == "accepted"
    results = [{"token": TOKEN, "output": 1}, {"token": first["token"], "output": "Hello Ada"}]
    server.expect(200, "POST", "/v1/tasks/complete", {"session_id": session, "results": results})
    server.expect(200, "POST", "/v1/tasks/fail", {"session_id": session, "results": results})
    for path, report in (("/v1/tasks/complete", {"output": 1}), ("/v1/tasks/fail", {"error": {"code": "X"}})):
        server.expect(404, "POST", path, {"session_id": session, "token": TOKEN, **report})
    server.expect(200, "GET", one + "/wait", id="reach-1")
    server.expect(409, "POST", one + "/cancel", {}, id="reach-1")
    server.expect(404, "POST", one + "/cancel", {}, id="nobody")
    server.expect(201, "POST", executions, {**start, "execution_id": "reach-3"})
    server.expect(200, "POST", one + "/cancel", {"reason": "enough"}, id="reach-3")
    server.expect(409, "POST", one + "/terminate", {}, id="reach-1")
    server.expect(404, "POST", one + "/terminate", {}, id="nobody")
    server.expect(201, "POST", executions, {**start, "execution_id": "reach-4"})
    assert server.expect(200, "POST", one + "/terminate", {"reason": "it hangs"}, id="reach-4")["status"] == "terminated"
    asks(server)
    server.expect(200, "GET", "/v1/workers")
    server.expect(200, "POST", "/v1/workers/unregister", {"session_id": session})
    for path in ("poll", "heartbeat", "unregister"):
        server.expect(404, "POST", f"/v1/workers/{path}", {"session_id": session})
    server.expect(409, "POST", "/v1/cluster/step-down", {})
    for path in ("/v1/nodes", "/v1/health", "/v1/ready", "/v1/metrics", "/livez", "/readyz", "/leaderz"):
        server.expect(200, "GET", path)
    server.expect(200, "GET", "/v1/schemas/orbit-def-1.json")


def prepare(server):
    """An execution of which a worker has a task, and one that waits."""
    task = {"name": "ReachHeld", "version": "1", "steps": [{"id": "a", "task": "reach.hold"}]}
    waits = {
        "name": "ReachBroken",
        "version": "1",
        "signals": {"go": {}},
        "queries": {"state": 1},
        "steps": [{"id": "a", "await": "go"}],
    }
    for definition, execution in ((task, "held-1"), (waits, "broken-1")):
        server.expect(201, "POST", "/v1/workflows", definition)
        server.expect(201, "POST", "/v1/executions", {"workflow": definition["name"], "execution_id": execution})
    worker = {"worker_id": "holder", "runtime": "python", "contracts": [{"task_name": "reach.hold"}]}
    session = server.expect(200, "POST", "/v1/workers/register", worker)["session_id"]
    poll = {"session_id": session, "wait_ms": 30_000, "holding": []}
    assert len(server.expect(200, "POST", "/v1/workers/poll", poll)["tasks"]) == 1


def first_event(database, change):
    """Changes the first event of the execution that cannot be read for a while."""
    with sqlite3.connect(database, timeout=30) as connection:
        where = "WHERE execution_id = 'broken-1' AND seq = 1"
        event = connection.execute(f"SELECT payload FROM execution_events {where}").fetchone()[0]
        connection.execute(f"UPDATE execution_events SET payload = ? {where}", (change(event),))
    connection.close()


def damage(database):
    first_event(database, lambda event: b"!" + event)


def set_aside(server, database):
    """What an earlier server left: one is held, and one is quarantined until its history can be read again."""
    one = "/v1/executions/{id}"
    assert server.expect(200, "GET", one, id="held-1")["status"] == "held"
    assert server.expect(200, "POST", one + "/recover", {"reason": "it may"}, id="held-1")["status"] == "running"
    server.expect(409, "POST", one + "/recover", {}, id="held-1")
    server.expect(404, "POST", one + "/recover", {}, id="nobody")
    server.expect(404, "POST", one + "/release", {}, id="nobody")
    server.expect(409, "GET", one + "/queries/{name}", id="broken-1", name="state")
    server.expect(409, "POST", one + "/release", {}, id="broken-1")
    first_event(database, lambda event: event[1:])
    assert server.expect(200, "POST", one + "/release", {}, id="broken-1")["status"] == "running"
    assert server.expect(200, "GET", one + "/queries/{name}", id="broken-1", name="state") == {"result": 1}


def asks(server):
    """What is sent to an execution that waits for a signal, and asked of it."""
    definition = {
        "name": "ReachSignals",
        "version": "1",
        "signals": {"go": {"payload": {"type": "object"}}},
        "updates": {"raise": {"payload": {"type": "integer"}, "when": "${ event < 10 }", "result": "${ event + 1 }"}},
        "queries": {"state": {"paid": "${ steps.pay.output }"}, "broken": "${ input + 1 }"},
        "steps": [{"id": "pay", "await": "go"}],
    }
    one = "/v1/executions/{id}"
    signals, updates, queries = one + "/signals/{name}", one + "/updates/{name}", one + "/queries/{name}"
    server.expect(201, "POST", "/v1/workflows", definition)
    server.expect(201, "POST", "/v1/executions", {"workflow": "ReachSignals", "execution_id": "reach-5"})
    asked = server.expect(200, "GET", queries, id="reach-5", name="state")
    assert asked == {"result": {"paid": None}}, asked
    server.expect(404, "GET", queries, id="reach-5", name="nobody")
    server.expect(404, "GET", queries, id="nobody", name="state")
    server.expect(422, "GET", queries, id="reach-5", name="broken")
    raised = {"payload": 3, "update_id": "r-1"}
    taken = server.expect(200, "POST", updates, raised, id="reach-5", name="raise")
    assert taken["result"] == 4, taken
    assert server.expect(200, "POST", updates, raised, id="reach-5", name="raise") == taken
    server.expect(404, "POST", updates, {"payload": 3}, id="reach-5", name="nobody")
    server.expect(404, "POST", updates, raised, id="nobody", name="raise")
    server.expect(409, "POST", updates, {"payload": 20}, id="reach-5", name="raise")
    server.expect(422, "POST", updates, {"payload": "three"}, id="reach-5", name="raise")
    paid = {"payload": {"by": "card"}, "signal_id": "p-1"}
    server.expect(404, "POST", signals, paid, id="reach-5", name="nobody")
    server.expect(404, "POST", signals, paid, id="nobody", name="go")
    server.expect(422, "POST", signals, {"payload": 1}, id="reach-5", name="go")
    sent = server.expect(200, "POST", signals, paid, id="reach-5", name="go")
    assert server.expect(200, "GET", one + "/wait", id="reach-5")["status"] == "completed"
    assert server.expect(200, "POST", signals, paid, id="reach-5", name="go") == sent
    server.expect(409, "POST", signals, {**paid, "signal_id": "p-2"}, id="reach-5", name="go")
    server.expect(409, "POST", updates, {"payload": 3}, id="reach-5", name="raise")
    asked = server.expect(200, "GET", queries, id="reach-5", name="state")
    assert asked == {"result": {"paid": {"by": "card"}}}, asked


def report(server, files):
    reached = collections.Counter()
    for file in files:
        with open(file, encoding="utf-8") as lines:
            for label, status, count in json.load(lines):
                reached[label, status] += count
    missing = []
    for method, path, operation in server.operations():
        label = f"{method} {path}"
        documented = {int(status) for status in operation["responses"]}
        counts = " ".join(f"{status}:{reached[label, status]}" for status in sorted(documented) if reached[label, status])
        trouble = " ".join(str(status) for status in sorted(documented & TROUBLE) if not reached[label, status])
        print(f"{label:48} {counts}{f' ({trouble})' if trouble else ''}")
        missing += [f"{label} {status}" for status in sorted(documented - TROUBLE) if not reached[label, status]]
        missing = [answer for answer in missing if answer not in ELSEWHERE]
        wrong = [status for (name, status) in reached if name == label and status not in documented | {404, 405}]
        missing += [f"{label} {status}, which is not described" for status in wrong]
    if missing:
        sys.exit("error: never reached, or not described:\n  " + "\n  ".join(missing))
    routes, total = len(list(server.operations())), sum(reached.values())
    print(f"{routes} routes, {total} requests: every status that is described came, as `status:times`. Those in brackets")
    print("are of a server in trouble; io/tests/http_front brings them about.")


def main():
    command, url, *rest = sys.argv[1:]
    if command == "damage":
        return damage(url)
    token, *files = rest
    server = Server(url, token)
    if command == "prepare":
        return prepare(server)
    if command == "report":
        return report(server, files)
    refusals(server)
    life(server)
    set_aside(server, files[1])
    with open(files[0], "w", encoding="utf-8") as file:
        json.dump([[label, status, count] for (label, status), count in sorted(server.reached.items())], file)


if __name__ == "__main__":
    main()
