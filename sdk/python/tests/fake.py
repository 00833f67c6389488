"""A server of which the test plays every part: it takes each request out by its path and answers it as it likes."""

from __future__ import annotations

import contextlib
import http.server
import json
import queue
import select
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

#: No step of a test takes longer, in seconds.
PATIENCE = 60.0
#: A certificate for 127.0.0.1 and its key, made for these tests.
CERTIFICATE = Path(__file__).parent / "tls" / "localhost.pem"
#: How long a test looks for what must not come.
GLANCE = 0.15


class Exchange:
    """A request that waits for the test's answer."""

    def __init__(self, handler: http.server.BaseHTTPRequestHandler, text: bytes) -> None:
        self.method = handler.command
        self.path = handler.path
        self.headers = handler.headers
        self.text = text
        is_json = handler.headers.get("content-type") == "application/json"
        self.body: Any = json.loads(text) if text and is_json else None
        self._connection = handler.connection
        self._answer: queue.SimpleQueue[tuple[int, dict[str, str], bytes] | None] = queue.SimpleQueue()

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        self.answer_bytes(status, json.dumps(body).encode(), headers)

    def answer_bytes(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._answer.put((status, headers or {}, body))

    def error(self, status: int, code: str, retryable: bool = False, headers: dict[str, str] | None = None) -> None:
        error = {"code": code, "message": "scripted", "hint": "none", "retryable": retryable, "details": {}}
        self.answer(status, {"error": {**error, "request_id": "1"}}, headers)

    def drop(self) -> None:
        """Closes the connection without an answer."""
        self._answer.put(None)

    def is_wanted(self) -> bool:
        """Whether the client still waits for the answer."""
        try:
            readable, _, _ = select.select([self._connection], [], [], 0)
            # Not the method of TLS sockets, which cannot peek.
            return not (readable and socket.socket.recv(self._connection, 1, socket.MSG_PEEK) == b"")
        except (OSError, ValueError):
            return False

    def given_up(self) -> None:
        """Returns once the client has gone."""
        end = time.monotonic() + PATIENCE
        while self.is_wanted():
            assert time.monotonic() < end, "the client gives the request up"
            time.sleep(0.002)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def _serve(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length") or 0))
        exchange = Exchange(self, text)
        self.server.arriving.put(exchange)
        answer = exchange._answer.get()
        if answer is None:
            self.close_connection = True
            return
        status, headers, body = answer
        # The client may have gone; then the test shows it elsewhere.
        with contextlib.suppress(OSError):
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_POST = _serve

    def handle(self) -> None:
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, tls: bool) -> None:
        self.arriving: queue.Queue[Exchange] = queue.Queue()
        self.connections: list[socket.socket] = []
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH) if tls else None
        if self._tls:
            self._tls.load_cert_chain(CERTIFICATE)
        super().__init__(("127.0.0.1", port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        # The handshake belongs to the connection's own thread.
        wrap = self._tls and self._tls.wrap_socket
        return wrap(connection, server_side=True, do_handshake_on_connect=False) if wrap else connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)


class Fake:
    """The server. `kill` ends it with every connection."""

    def __init__(self, port: int = 0, tls: bool = False) -> None:
        self._listener = _Listener(port, tls)
        self.port: int = self._listener.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        #: Requests that came while the test waited for another path.
        self._set_aside: list[Exchange] = []
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def expect(self, path: str) -> Exchange:
        """The next request with this path (its query apart) whose client still waits."""
        found = self.within(PATIENCE, path)
        assert found is not None, f"no request for {path} came; there are {[one.path for one in self._set_aside]}"
        return found

    def within(self, wait: float, path: str) -> Exchange | None:
        """The next request with this path, if one comes in time."""
        self._set_aside = [exchange for exchange in self._set_aside if exchange.is_wanted()]
        for exchange in self._set_aside:
            if exchange.path.split("?")[0] == path:
                self._set_aside.remove(exchange)
                return exchange
        end = time.monotonic() + wait
        while True:
            try:
                exchange = self._listener.arriving.get(timeout=max(end - time.monotonic(), 0.001))
            except queue.Empty:
                return None
            if exchange.path.split("?")[0] != path:
                self._set_aside.append(exchange)
            elif exchange.is_wanted():
                return exchange

    def register(self, session: str, heartbeat_interval_ms: int = 60_000, session_timeout_ms: int = 120_000) -> None:
        """Answers a registration."""
        intervals = {"heartbeat_interval_ms": heartbeat_interval_ms, "session_timeout_ms": session_timeout_ms}
        self.expect("/v1/workers/register").answer(200, {"session_id": session, **intervals})

    def kill(self) -> int:
        """Ends the server and closes every connection, as a kill would; its port."""
        self._listener.shutdown()
        self._listener.server_close()
        for connection in self._listener.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        return self.port


def task(token: str, **more: Any) -> dict[str, Any]:
    """A task as a poll's answer brings it."""
    return {
        "token": token,
        "execution_id": token.split("/")[0],
        "workflow": "W",
        "workflow_version": "1.0.0",
        "step_id": "charge",
        "task_name": "payments.charge",
        "contract_version": "1",
        "input": {"amount": 5},
        "idempotency_key": "cluster/x/1/charge",
        "attempt": 1,
        "redelivery": False,
        "timeout_ms": 30_000,
        **more,
    }


def outcomes(**by_token: str) -> dict[str, Any]:
    """The answer to a report; `x1` stands for the token `x/1`."""
    return {"outcomes": [{"token": f"{token[0]}/{token[1:]}", "outcome": one} for token, one in by_token.items()]}


def polled(*tasks: dict[str, Any], cancel: tuple[str, ...] = (), **by_token: str) -> dict[str, Any]:
    """What a poll's answer may hold."""
    return {"tasks": list(tasks), "cancel": list(cancel), **outcomes(**by_token)}
