"""A worker with one task. It runs until it is interrupted.

    pip install ./sdk/python
    python3 sdk/python/examples/greeter.py

`ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token.
"""

import logging
import os
from typing import Any

from orbit_sdk import Context, TaskFailure, Worker

worker = Worker(
    os.environ.get("ORBIT_SERVER", "http://127.0.0.1:7233"),
    worker_id="greeter-python",
    token=os.environ.get("ORBIT_TOKEN"),
)


@worker.task("greetings.greet")
def greet(ctx: Context, input: Any) -> str:
    guest = input.get("guest")
    if not isinstance(guest, str):
        # Another attempt would find the same input: this failure is final.
        raise TaskFailure("GUEST_MISSING", "the input has no `guest`", retryable=False)
    print(f"{ctx.execution_id} (attempt {ctx.attempt}, key {ctx.idempotency_key})")
    return f"Hello, {guest}!"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    worker.run()
