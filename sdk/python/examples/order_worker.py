"""The worker of the `OrderProcessing` example (`docs/examples/order-processing.yaml`).

    orbit dev docs/examples/order-processing.yaml
    python3 sdk/python/examples/order_worker.py
    orbit start OrderProcessing --wait --input '{"order_id": "o-1", "customer": "ada", "amount": 25,
                                                 "items": [{"sku": "book", "quantity": 1}]}'

`ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C lets running tasks end first.
"""

import asyncio
import logging
import os
from typing import Any

from orbit_sdk import Context, TaskFailure, Worker

log = logging.getLogger("orders")
worker = Worker(
    os.environ.get("ORBIT_SERVER", "http://127.0.0.1:7233"),
    worker_id="orders-python",
    concurrency=8,
    token=os.environ.get("ORBIT_TOKEN"),
)


@worker.task("orders.validate")
def validate(ctx: Context, input: Any) -> Any:
    if not input["items"]:
        # Another attempt would find the same order: this failure is final.
        raise TaskFailure("EMPTY_ORDER", "the order has no items", retryable=False)
    return {"valid": True, "items": len(input["items"])}


@worker.task("fraud.check")
def check_fraud(ctx: Context, input: Any) -> Any:
    score = 87 if input["amount"] > 10_000 else 12
    if score > 80:
        raise TaskFailure("FRAUD_SUSPECTED", f"the score is {score}", retryable=False, details={"score": score})
    return {"score": score}


@worker.task("inventory.reserve")
def reserve(ctx: Context, input: Any) -> Any:
    return {"reservation_id": f"R-{short(ctx.execution_id)}", "items": input["items"]}


@worker.task("payments.charge")
def charge(ctx: Context, input: Any) -> Any:
    # A payment provider that is handed this key charges once, however often the task is delivered.
    key = ctx.idempotency_key
    if ctx.redelivery:
        log.warning("an earlier delivery may have charged already; asking the provider with key %s", key)
    return {"charge_id": f"C-{short(ctx.execution_id)}", "amount": input["amount"]}


@worker.task("shipping.ship")
async def ship(ctx: Context, input: Any) -> Any:
    # Tasks may be `async`: many of them wait on one thread.
    await asyncio.sleep(0.01)
    return {"tracking": f"T-{short(ctx.execution_id)}"}


@worker.task("customers.notify")
async def notify(ctx: Context, input: Any) -> Any:
    return {"sent_to": input["customer"]}


def short(execution_id: str) -> str:
    """The last characters of an id, enough to tell a few orders apart."""
    return execution_id[-8:]


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    worker.run()
