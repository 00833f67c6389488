"""Makes a server have something to show: orders that went well, failed, wait, were retried and handed out again,
children with several runs, and names that are markup.

    scene.py URL        prints the id of each execution, and goes on holding the task of the last until it is ended
"""

import json
import sys
import time
import urllib.request

MARKUP = "<script>document.title='taken over'</script><img src=x onerror='document.title=1'>"

ORDER = {
    "name": "OrderProcessing",
    "version": "1.0.0",
    "description": "Validates an order, charges it and ships it",
    "steps": [
        {"id": "validate", "task": "orders.validate"},
        {"id": "fraud_check", "task": "fraud.check"},
        {"id": "reserve", "task": "inventory.reserve"},
        {
            "id": "charge",
            "task": "payments.charge",
            "retry": {"max_attempts": 4, "initial": "300ms", "factor": 2, "jitter": "none", "non_retryable": ["CARD_DECLINED"]},
        },
        {"id": "cool_off", "sleep": "400ms"},
        {"id": "gift", "when": "${ input.gift }", "task": "gifts.wrap"},
        {"id": "total", "compute": "${ input.amount * 1.2 }"},
        {"id": "ship", "task": "shipping.ship"},
        {"id": "notify", "after": ["ship"], "task": "customers.notify"},
        {"id": "survey", "after": ["ship"], "sleep": "${ input.survey }"},
    ],
    "result": {"order": "${ input.order_id }", "total": "${ steps.total.output }"},
}

HOSTILE = {
    "name": "Hostile",
    "version": "1",
    "description": MARKUP,
    "steps": [{"id": "only", "compute": {MARKUP: "${ input }"}}],
    "result": "${ steps.only.output }",
}

# A child for each item of a list; each of them begins anew, and carries on what it was sent.
METER = {
    "name": "Meter",
    "version": "1",
    "signals": {"reading": {"payload": {"type": "integer"}}},
    "steps": [
        {"id": "reading", "await": "reading"},
        {"id": "next", "when": "${ input.count < 3 }", "continue_as_new": {"count": "${ input.count + 1 }"}},
    ],
    "result": {"last": "${ steps.reading.output }"},
}

METERS = {
    "name": "Meters",
    "version": "1",
    "steps": [
        {"id": "read", "for": "${ input.names }", "do": {"workflow": "Meter", "input": {"count": 1}}},
    ],
}

TASKS = ["orders.validate", "fraud.check", "inventory.reserve", "payments.charge", "gifts.wrap", "shipping.ship", "customers.notify"]


class Server:
    def __init__(self, url):
        self.url = url

    def post(self, path, body):
        data = json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return json.load(answer)

    def start(self, execution, workflow="OrderProcessing", labels=None, **given):
        order = {"order_id": execution, "customer": "ada", "amount": 42.5, "gift": False, "survey": "200ms", **given}
        body = {"workflow": workflow, "execution_id": execution, "input": order, "labels": labels or {}}
        self.post("/v1/executions", body)


class Worker:
    """Runs tasks, one at a time, until nothing has come for a while."""

    def __init__(self, server, name, tasks=TASKS):
        self.server = server
        contracts = [{"task_name": task} for task in tasks]
        worker = {"worker_id": name, "runtime": "python", "sdk": "scene", "contracts": contracts}
        self.session = server.post("/v1/workers/register", worker)["session_id"]
        self.failures = {}

    def take(self, wait_ms=1500):
        poll = {"session_id": self.session, "wait_ms": wait_ms, "max_tasks": 1, "holding": []}
        tasks = self.server.post("/v1/workers/poll", poll)["tasks"]
        return tasks[0] if tasks else None

    def run(self, until=None):
        while task := self.take():
            if until and (task["execution_id"], task["step_id"]) == until:
                return task
            time.sleep(0.02 + len(task["step_id"]) % 5 * 0.04)
            report = {"session_id": self.session, "token": task["token"]}
            error = self.failures.get((task["execution_id"], task["step_id"]), [])
            if error:
                self.server.post("/v1/tasks/fail", {**report, "error": error.pop(0)})
            else:
                output = {"id": f"{task['step_id']}-{task['attempt']}"}
                self.server.post("/v1/tasks/complete", {**report, "output": output})
        return None


def main():
    server = Server(sys.argv[1])
    server.post("/v1/workflows", ORDER)
    for workflow in (HOSTILE, METER, METERS):
        server.post("/v1/workflows", workflow)
    for number in range(60):
        server.start(f"bulk-{number:02}", workflow="Hostile", labels={"batch": "1"})
    hostile = {MARKUP: MARKUP}
    server.post("/v1/executions", {"workflow": "Hostile", "execution_id": "hostile", "input": hostile, "labels": {"x": MARKUP}})

    def done(name):
        deadline = time.monotonic() + 30
        while server.get(f"/v1/executions/{name}")["status"] == "running":
            assert time.monotonic() < deadline, f"{name} has not ended"
            time.sleep(0.02)
        print(name)

    server.post("/v1/executions", {"workflow": "Meters", "execution_id": "meters", "input": {"names": ["gas", "water"]}})
    for reading in (7, 11, 13):
        server.post("/v1/executions/meters~read%5B0%5D/signals/reading", {"payload": reading})
    done("meters~read%5B0%5D")

    def order(name, **given):
        server.start(name, labels={"shop": "berlin", "channel": "web"}, **given)

    busy = {"code": "GATEWAY_BUSY", "message": "the gateway takes no more", "retryable": True}
    declined = {"code": "CARD_DECLINED", "message": "the bank says no", "retryable": False}
    Worker(server, f"worker-{MARKUP}", ["nothing.to.do"])
    # The first two charges fail, and shipping goes to a worker that falls silent.
    order("order-retried")
    worker = Worker(server, "worker-1", [task for task in TASKS if task != "shipping.ship"])
    worker.failures["order-retried", "charge"] = [dict(busy), dict(busy)]
    worker.run()
    silent = Worker(server, "worker-silent", ["shipping.ship"])
    assert silent.take(), "shipping waits for its worker"
    everything = Worker(server, "worker-2")
    while not (task := everything.take(500)):
        pass
    assert task["redelivery"], task
    server.post("/v1/tasks/complete", {"session_id": everything.session, "token": task["token"], "output": {"id": "ship-1"}})
    everything.run()
    done("order-retried")
    order("order-failed")
    everything.failures["order-failed", "charge"] = [dict(busy), declined]
    everything.run()
    done("order-failed")
    order("order-good", gift=True)
    everything.run()
    done("order-good")
    order("order-cancelled", survey="1h")
    everything.run()
    server.post("/v1/executions/order-cancelled/cancel", {"reason": "the customer called"})
    done("order-cancelled")
    order("order-sleeping", survey="3d")
    everything.run()
    print("order-sleeping")
    order("order-running")
    task = everything.run(until=("order-running", "reserve"))
    print("order-running", flush=True)
    # It runs for as long as somebody looks.
    while True:
        heartbeat = {"session_id": everything.session, "holding": [task["token"]]}
        server.post("/v1/workers/heartbeat", heartbeat)
        time.sleep(0.3)


if __name__ == "__main__":
    main()
