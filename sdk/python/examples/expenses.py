"""The worker of the `ExpenseApproval` example (`docs/examples/expense-approval.yaml`).

    PYTHONPATH=sdk/python/src python3 sdk/python/examples/expenses.py

`ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C lets running tasks end first.
"""

import logging
import os
from typing import Any

from orbit_sdk import Context, Worker

worker = Worker(
    os.environ.get("ORBIT_SERVER", "http://127.0.0.1:7233"),
    worker_id="expenses-python",
    token=os.environ.get("ORBIT_TOKEN"),
)


@worker.task("expenses.pay")
def pay(ctx: Context, input: Any) -> Any:
    return {"to": input["to"], "amount": input["amount"], "receipt": input["receipt"]}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    worker.run()
