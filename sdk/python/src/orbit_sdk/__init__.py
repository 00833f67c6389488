"""Workers and a client for Orbit, the durable workflow server.

* `Worker` runs tasks: it polls a server over HTTP, gives each task to the function of its name, and reports what the
  function returned until the server has answered.
* `Client` deploys definitions, starts executions, waits for them and reads what there is to see.

    import orbit_sdk

    worker = orbit_sdk.Worker("http://127.0.0.1:7233", worker_id="payments-1")

    @worker.task("payments.charge", contract_version="1")
    def charge(ctx, input):
        # The key is the same at every delivery of this step: a provider that is given it charges once.
        return {"charge": ctx.idempotency_key, "amount": input["amount"]}

    worker.run()
"""

from ._client import Client
from ._context import Cancelled, Context, TaskFailure
from ._errors import OrbitError, Unexpected, Unreachable
from ._json import NotJson
from ._models import (
    Contract,
    Deployed,
    Event,
    Execution,
    ExecutionSummary,
    Failure,
    Parent,
    Problem,
    SessionInfo,
    Signalled,
    Started,
    Updated,
    Waiting,
    WorkerInfo,
    WorkflowSummary,
)
from ._version import VERSION as __version__
from ._worker import Worker

__all__ = [
    "Cancelled",
    "Client",
    "Context",
    "Contract",
    "Deployed",
    "Event",
    "Execution",
    "ExecutionSummary",
    "Failure",
    "NotJson",
    "OrbitError",
    "Parent",
    "Problem",
    "SessionInfo",
    "Signalled",
    "Started",
    "TaskFailure",
    "Unexpected",
    "Unreachable",
    "Updated",
    "Waiting",
    "Worker",
    "WorkerInfo",
    "WorkflowSummary",
    "__version__",
]
