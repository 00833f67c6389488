"""Real servers and workers for the tests: processes that are ended by their own id, and always reaped."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from orbit_sdk import Client, Event, OrbitError

#: No step of a test takes longer, in seconds.
PATIENCE = 90.0
HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]

T = TypeVar("T")


def orbit() -> Path:
    """The server's program: `ORBIT_BIN`, or what `cargo build` makes."""
    path = Path(os.environ.get("ORBIT_BIN") or REPOSITORY / "target" / "debug" / "orbit")
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there; run `cargo build -p server`, or set ORBIT_BIN")
    return path


def wait_for(what: str, look: Callable[[], T | None]) -> T:
    """Waits until there is something, or fails with what was waited for."""
    end = time.monotonic() + PATIENCE
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"no {what} within {PATIENCE} s")
        time.sleep(0.005)


class Process:
    """A process whose stderr goes to a file."""

    def __init__(self, arguments: list[str], log: Path, environment: dict[str, str] | None = None) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("ORBIT_")}
        self._log = log
        with open(log, "wb") as stderr:
            self._child = subprocess.Popen(
                arguments,
                env={**inherited, **(environment or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
            )

    @property
    def pid(self) -> int:
        return self._child.pid

    def log(self) -> str:
        """What it wrote to stderr so far."""
        return self._log.read_text(errors="replace")

    def says(self, pattern: str) -> str:
        """Waits until its log has a line in which this is found; the line."""
        return wait_for(f"{pattern!r} in {self._log.name}", lambda: self._line(pattern))

    def _line(self, pattern: str) -> str | None:
        found = next((line for line in self.log().splitlines() if re.search(pattern, line)), None)
        if found is None and not self.is_running():
            raise AssertionError(f"the process ended without saying {pattern!r}: {self.log()}")
        return found

    def is_running(self) -> bool:
        return self._child.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def ended(self) -> int:
        """Waits for the end; the exit code."""
        return self._child.wait(PATIENCE)

    def kill(self) -> None:
        """SIGKILL, and waits for the end. Harmless where it has ended."""
        self._child.kill()
        self._child.wait(PATIENCE)


class Server(Process):
    """`orbit server`, ready to serve."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        number = len(list(folder.glob("server-*.log")))
        command = [str(orbit()), "server", "--db", str(folder / "orbit.db"), "--addr", f"127.0.0.1:{port}", *options]
        super().__init__(command, folder / f"server-{number}.log")
        found = re.search(r"addr=127\.0\.0\.1:(\d+)", self.says(r"runtime listening"))
        assert found is not None, "the line names the address"
        self.port = int(found[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self.says("recovered active executions from history")


class Proxy:
    """Passes connections on to a server, as long as it is open."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open = True
        self._pairs: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def shut(self) -> None:
        """Closes every connection; new ones are closed at once."""
        with self._lock:
            self._open = False
            for one in self._pairs:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        with self._lock:
            self._open = True

    def end(self) -> None:
        self.shut()
        for one in self._pairs:
            one.close()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    if not self._open:
                        client.close()
                        continue
                    server = socket.create_connection(("127.0.0.1", self._to))
                    self._pairs += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                target.sendall(piece)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class WithServers(unittest.TestCase):
    """A test with a folder of its own, whose processes end with it. After a failure it shows what they said."""

    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory(prefix="orbit-python-")
        self.addCleanup(temporary.cleanup)
        self.folder = Path(temporary.name)
        self.processes: list[Process] = []
        self.addCleanup(self.end_processes)

    def end_processes(self) -> None:
        outcome = self._outcome.result if self._outcome is not None else None  # type: ignore[attr-defined]
        failed = outcome is not None and any(test is self for test, _ in outcome.failures + outcome.errors)
        for process in self.processes:
            process.kill()
            if failed:
                print(f"--- {process._log.name}\n{process.log()}", file=sys.stderr)

    def server(self, *options: str, port: int = 0) -> Server:
        server = Server(self.folder, *options, port=port)
        self.processes.append(server)
        return server

    def client(self, *servers: str, **options: Any) -> Client:
        client = Client(servers, **options)
        self.addCleanup(client.close)
        return client

    def worker(self, name: str, *servers: str, script: Path = HERE / "gate_worker.py") -> Process:
        """A worker in a process of its own; `gate_worker.py` says what it does."""
        environment = {
            "ORBIT_SERVER": ",".join(servers),
            "PYTHONPATH": str(HERE.parent / "src"),
            "GATES": str(self.folder),
            "WORKER_ID": name,
        }
        worker = Process([sys.executable, str(script)], self.folder / f"{name}.log", environment)
        self.processes.append(worker)
        worker.says("orbit registered")
        return worker

    def open_gate(self, execution: str) -> None:
        (self.folder / f"{execution}.open").touch()

    def journal(self, what: str | None = None) -> list[dict[str, Any]]:
        """What the workers' functions wrote down."""
        path = self.folder / "journal"
        lines = path.read_text().splitlines() if path.exists() else []
        entries = [json.loads(line) for line in lines]
        return [entry for entry in entries if what is None or entry["what"] == what]

    def journals(self, what: str, count: int = 1) -> list[dict[str, Any]]:
        """Waits until the workers' functions have written so many entries of a kind."""
        return wait_for(
            f"{count} entries {what!r} in the journal",
            lambda: found if len(found := self.journal(what)) >= count else None,
        )


def has_event(client: Client, execution: str, kind: str) -> Event:
    """Waits until the history has an event of this type; the first."""

    def look() -> Event | None:
        try:
            return next((event for event in client.history(execution) if event.type == kind), None)
        except OrbitError:
            return None

    return wait_for(f"{kind} in the history of {execution}", look)


def count(client: Client, execution: str) -> dict[str, int]:
    """How many events of each type a history has."""
    counts: dict[str, int] = {}
    for event in client.history(execution):
        counts[event.type] = counts.get(event.type, 0) + 1
    return counts
