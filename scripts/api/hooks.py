"""What Schemathesis is told about this API beside its description.

Nothing is left out; a few values are replaced, so that the run does not wait for what it does not test.
"""

import atexit
import collections
import json
import os

import schemathesis

# How often each operation gave each status.
reached = collections.Counter()

MAX_U64 = 2**64 - 1
MIN_I64 = -(2**63)


def clamp(value):
    """Whole numbers that 64 bits do not hold are refused by rule, which `scripts/api/reach.py` tries; a schema of any
    JSON value cannot say it."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return max(MIN_I64, min(MAX_U64, value))
    if isinstance(value, list):
        return [clamp(item) for item in value]
    if isinstance(value, dict):
        return {key: clamp(item) for key, item in value.items()}
    return value


def shorten(value):
    """Names and other texts are bounded in bytes, and a schema counts characters: what is not ASCII and longer than the
    closest bound (64 bytes) is cut to as many characters as are within it."""
    if isinstance(value, str):
        return value[:16] if len(value.encode("utf-8", "surrogatepass")) > max(64, len(value)) else value
    if isinstance(value, list):
        return [shorten(item) for item in value]
    if isinstance(value, dict):
        # Payloads are bounded as a whole, far above what is made up here.
        return {key: item if key in ("input", "output", "payload", "details") else shorten(item) for key, item in value.items()}
    return value


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    # Long polls and waits end soon. A value that is refused stays as it is.
    if label == "POST /v1/workers/poll" and isinstance(case.body, dict):
        wait = case.body.get("wait_ms")
        # JSON Schema counts 12301.0 among the whole numbers, and so does the server.
        whole = type(wait) is int or (type(wait) is float and wait.is_integer())
        if wait is None or (whole and 0 <= wait <= 60_000):
            case.body["wait_ms"] = 50
    if label == "GET /v1/executions/{id}/wait":
        query = dict(case.query or {})
        if str(query.get("timeout_ms", "0")).isdigit() and int(query.get("timeout_ms", 0)) <= 300_000:
            query["timeout_ms"] = 50
            case.query = query
    # A cursor is what the server gave; a text that only looks like one is refused.
    if label == "GET /v1/executions" and generated(case) == "positive" and "cursor" in (case.query or {}):
        case.query["cursor"] = "1795976235814.greeting-1"
    # Two contracts with the same name and version are refused, and one may leave its version out.
    if label == "POST /v1/workers/register" and generated(case) == "positive":
        contracts = {}
        for contract in case.body["contracts"]:
            contracts[contract["task_name"], contract.get("contract_version") or "1"] = contract
        case.body["contracts"] = list(contracts.values())
    # No execution has two values of one label, so that is refused too.
    if label == "GET /v1/executions" and generated(case) == "positive" and "label" in (case.query or {}):
        labels = case.query["label"]
        if isinstance(labels, list):
            case.query["label"] = list({text.split("=")[0]: text for text in labels}.values())
    if generated(case) == "positive" and isinstance(case.body, (dict, list)):
        case.body = shorten(clamp(case.body))
    if generated(case) == "positive" and case.query:
        case.query = {name: shorten(value) for name, value in case.query.items()}


def generated(case):
    """Whether a request is to be `positive` or `negative`."""
    return case.meta.generation.mode.value if case.meta else "positive"


@schemathesis.hook
def after_call(context, case, response):
    reached[case.operation.label, response.status_code] += 1


@atexit.register
def write():
    path = os.environ.get("ORBIT_REACHED")
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump([[label, status, count] for (label, status), count in sorted(reached.items())], file)
