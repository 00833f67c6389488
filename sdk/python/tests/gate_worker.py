"""A worker for tests that kill, pause and resume it.

Its task `test.gate` writes into the file `journal` of the folder `GATES` what happens to it, and ends when that folder
has a file `<execution id>.open`.
"""

import json
import logging
import os
import time
from pathlib import Path
from typing import Any

from orbit_sdk import Context, Worker

folder = Path(os.environ["GATES"])
worker = Worker(os.environ["ORBIT_SERVER"], os.environ["WORKER_ID"], concurrency=4, poll_wait=5)


def note(what: str, ctx: Context) -> None:
    entry = {"what": what, "worker": worker.worker_id, "key": ctx.idempotency_key, **ctx.fields()}
    # One write: entries of several processes do not mix.
    with open(folder / "journal", "ab", buffering=0) as journal:
        journal.write(json.dumps(entry).encode() + b"\n")


@worker.task("test.gate")
def gate(ctx: Context, input: Any) -> Any:
    note("begun", ctx)
    while not (folder / f"{ctx.execution_id}.open").exists():
        if ctx.cancelled.is_set():
            note("cancelled", ctx)
            ctx.check()
        time.sleep(0.005)
    note("returned", ctx)
    return {"worker": worker.worker_id, "redelivery": ctx.redelivery}


logging.basicConfig(level=logging.DEBUG, format="%(asctime)s %(levelname)s %(name)s %(message)s")
worker.run()
