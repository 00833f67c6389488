"""The worker of the `Payroll` example and of its children (`docs/examples/payroll.yaml`, `payslip.yaml`).

    PYTHONPATH=sdk/python/src python3 sdk/python/examples/payroll.py

`ORBIT_SERVER` and `ORBIT_TOKEN` name another server and its token. Ctrl-C lets running tasks end first.
"""

import logging
import os
from typing import Any

from orbit_sdk import Context, TaskFailure, Worker

worker = Worker(
    os.environ.get("ORBIT_SERVER", "http://127.0.0.1:7233"),
    worker_id="payroll-python",
    token=os.environ.get("ORBIT_TOKEN"),
)


@worker.task("payroll.net")
def net(ctx: Context, input: Any) -> int:
    return int(input["gross"]) * 7 // 10


@worker.task("bank.transfer")
def transfer(ctx: Context, input: Any) -> str:
    if input["account"] is None:
        raise TaskFailure("NO_ACCOUNT", "there is no account to pay to", retryable=False)
    # Every child is an execution: its id tells whose salary this is.
    return f"T-{ctx.execution_id}"


@worker.task("bank.recall")
def recall(ctx: Context, input: Any) -> str:
    return f"recalled {input['transfer']}"


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    worker.run()
