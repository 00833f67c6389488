"""The worker of the `OrderSaga` example (`docs/examples/order-saga.yaml`). It ships nothing to Antarctica.

    PYTHONPATH=sdk/python/src python3 sdk/python/examples/order_saga.py

`ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C lets running tasks end first.
"""

import logging
import os
from typing import Any

from orbit_sdk import Context, TaskFailure, Worker

log = logging.getLogger("saga")
worker = Worker(
    os.environ.get("ORBIT_SERVER", "http://127.0.0.1:7233"),
    worker_id="saga-python",
    token=os.environ.get("ORBIT_TOKEN"),
)


@worker.task("inventory.reserve")
def reserve(ctx: Context, input: Any) -> Any:
    return {"reservation": f"R-{ctx.execution_id}", "sku": input["sku"]}


@worker.task("inventory.release")
def release(ctx: Context, input: Any) -> Any:
    return {"released": input["reservation"]}


@worker.task("payments.charge")
def charge(ctx: Context, input: Any) -> Any:
    # A payment provider that is handed `ctx.idempotency_key` charges once, however often the task is delivered.
    return {"charge": f"C-{ctx.execution_id}", "amount": input["amount"]}


@worker.task("payments.refund")
def refund(ctx: Context, input: Any) -> Any:
    # What undoes a step is delivered at least once like any other task, and has a key of its own.
    return {"refunded": input["charge"]}


@worker.task("shipping.ship")
def ship(ctx: Context, input: Any) -> Any:
    if input["country"] == "AQ":
        # Another attempt would find the same address: this failure is final, and the order is undone.
        raise TaskFailure("NO_CARRIER", "nobody carries parcels to AQ", retryable=False)
    return {"tracking": f"T-{ctx.execution_id}"}


@worker.task("customers.notify")
def notify(ctx: Context, input: Any) -> Any:
    log.info("to the customer of %s: %s", input["order_id"], input["text"])
    return None


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    worker.run()
