"""A small HTTP/1.1 client: several servers, kept connections, a deadline on everything, used by many threads.

Every call of Orbit's API may be sent twice (starts carry an id, results a token), so a call that failed on a connection
that had been idle is sent again on a new one, and a call that found one server gone goes to the next.
"""

from __future__ import annotations

import contextlib
import http.client
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ._errors import OrbitError, Unexpected, Unreachable
from ._json import decode
from ._servers import Address, parse_address, parse_servers
from ._version import VERSION

#: How long connecting to one server may take, in seconds.
CONNECT_DEADLINE = 5.0
#: A connection that was idle for longer is not used again: the server may be about to close it.
IDLE_LIMIT = 20.0
#: No answer of the API is larger, in bytes.
LARGEST_ANSWER = 256 << 20
#: Idle connections that are kept.
KEPT_CONNECTIONS = 16
#: How many times one call follows a server that names another one as the leader.
LEADERS_FOLLOWED = 2
#: Refusals of a server that does not serve (just now), where another one of the list may.
NOT_SERVING = frozenset({"NOT_LEADER", "NOT_READY", "FENCED"})

_T = TypeVar("_T")


class Aborted(Exception):
    """Another thread ended the request."""


class _Failed(Exception):
    """One server did not answer. `final` where asking it again on another connection would not help."""

    def __init__(self, reason: str, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class Abort:
    """Ends a request from another thread; made for one request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._aborted = False

    def abort(self) -> None:
        """Ends the request, which then raises `Aborted`. Harmless where it has ended."""
        with self._lock:
            self._aborted = True
            if self._socket is not None:
                # Not the method of TLS sockets, which changes state that the reading thread uses.
                with contextlib.suppress(OSError):
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def check(self) -> None:
        with self._lock:
            if self._aborted:
                raise Aborted

    def attach(self, connection_socket: socket.socket) -> None:
        with self._lock:
            if self._aborted:
                raise Aborted
            self._socket = connection_socket

    def detach(self) -> None:
        with self._lock:
            self._socket = None


class Call(NamedTuple):
    """A request, independent of the server that it goes to."""

    method: str
    #: Path and query.
    path: str
    #: How long each server has for its whole answer, in seconds.
    deadline: float
    body: bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Answer:
    """A server's answer."""

    status: int
    body: bytes
    #: Seconds that the server asks to wait, 0 where it says nothing.
    retry_after: float
    leader: str | None
    server: str

    def json(self) -> Any:
        """The body of a success. Raises the error that the server told."""
        if not 200 <= self.status < 300:
            raise self.error()
        try:
            return decode(self.body)
        except (ValueError, RecursionError) as error:
            raise Unexpected(self.server, f"its answer is unreadable: {error}", self.status) from None

    def read(self, parse: Callable[[Any], _T]) -> _T:
        """What the body of a success says, taken out of it by `parse`.

        Raises the error that the server told, and `Unexpected` for what the API does not say.
        """
        body = self.json()
        try:
            return parse(body)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            message = f"its answer lacks something: {type(error).__name__} {error}"
            raise Unexpected(self.server, message, self.status) from None

    def error(self) -> OrbitError:
        """The error that a server told with this answer."""
        error = self._error_body()
        if not isinstance(error.get("code"), str):
            return Unexpected(self.server, f"it answered with status {self.status}", self.status)
        details = error.get("details")
        retryable = error.get("retryable")
        return OrbitError(
            error["code"],
            str(error.get("message") or ""),
            hint=str(error.get("hint") or ""),
            status=self.status,
            retryable=retryable if isinstance(retryable, bool) else self.status >= 500 or self.status == 429,
            details=details if isinstance(details, dict) else {},
            request_id=str(error.get("request_id") or ""),
            retry_after=self.retry_after,
        )

    def code(self) -> str | None:
        """The code of the error that a server told, if it told one."""
        code = self._error_body().get("code") if self.status >= 400 else None
        return code if isinstance(code, str) else None

    def other_leader(self) -> str | None:
        """The address of the leader, where a server refused because it is another one."""
        if self.status != 503:
            return None
        error = self._error_body()
        details = error.get("details")
        told = details.get("leader_addr") if isinstance(details, dict) else None
        leader = self.leader or told or error.get("leader_addr")
        return leader if isinstance(leader, str) else None

    def _error_body(self) -> dict[str, Any]:
        try:
            body = decode(self.body)
        except (ValueError, RecursionError):
            return {}
        error = body.get("error") if isinstance(body, dict) else None
        return error if isinstance(error, dict) else {}


class _Kept(NamedTuple):
    address: Address
    connection: http.client.HTTPConnection
    idle_since: float


class Transport:
    """Who is asked, and the connections to them. May be used by several threads at once."""

    def __init__(
        self,
        servers: str | Iterable[str],
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self.servers = parse_servers(servers)
        self._headers = {"user-agent": f"orbit-sdk-python/{VERSION}", "accept": "application/json"}
        if token:
            if not (token.isascii() and token.isprintable()):
                raise ValueError("the token holds characters that a header cannot carry; use printable ASCII")
            self._headers["authorization"] = f"Bearer {token}"
        self._ssl_context = ssl_context
        self._lock = threading.Lock()
        #: Which server of the list is asked first.
        self._first = 0
        #: A leader that a server named; asked before those of the list.
        self._leader: Address | None = None
        self._idle: list[_Kept] = []

    def call(self, call: Call, abort: Abort | None = None) -> Answer:
        """Asks the servers in turn until one answers; follows a server that names another as the leader.

        The answer may be an error of the API: `Answer.json` tells. Raises `Unreachable` once every server has been
        tried, and `Aborted`.
        """
        abort = abort or Abort()
        tried: list[str] = []
        refusal: Answer | None = None
        followed = failed = 0
        while failed < len(self.servers):
            address, is_hint = self._next_server()
            try:
                answer = self._ask(address, call, abort)
            except _Failed as failure:
                tried.append(f"{address}: {failure}")
            else:
                leader = self._leader_named_by(answer, address)
                if leader is not None:
                    if followed == LEADERS_FOLLOWED:
                        return answer
                    followed += 1
                    with self._lock:
                        self._leader = leader
                    continue
                if answer.status != 503 or answer.code() not in NOT_SERVING:
                    return answer
                refusal = answer
            self._give_up_on(address)
            failed += not is_hint
        if refusal is not None:
            return refusal
        raise Unreachable(tried)

    def close(self) -> None:
        """Closes the connections that nothing is sent on."""
        with self._lock:
            idle, self._idle = self._idle, []
        for kept in idle:
            kept.connection.close()

    def knows_several(self) -> bool:
        """Whether another server may be asked where one does not answer."""
        with self._lock:
            return len(self.servers) > 1 or self._leader is not None

    def _next_server(self) -> tuple[Address, bool]:
        """Whom to ask next, and whether a server named it rather than the list."""
        with self._lock:
            if self._leader is not None:
                return self._leader, True
            return self.servers[self._first], False

    def _give_up_on(self, address: Address) -> None:
        """Another server is asked from now on."""
        with self._lock:
            gone = [kept for kept in self._idle if kept.address == address]
            self._idle = [kept for kept in self._idle if kept.address != address]
            if self._leader == address:
                self._leader = None
            elif self.servers[self._first] == address:
                self._first = (self._first + 1) % len(self.servers)
        for kept in gone:
            kept.connection.close()

    @staticmethod
    def _leader_named_by(answer: Answer, asked: Address) -> Address | None:
        """The leader that a refusal names, if it is not the one that refused."""
        told = answer.other_leader()
        try:
            leader = parse_address(told) if told else None
        except ValueError:
            return None
        return leader if leader != asked else None

    def _ask(self, address: Address, call: Call, abort: Abort) -> Answer:
        kept = self._kept(address)
        if kept is not None:
            try:
                return self._ask_on(address, kept, call, time.monotonic() + call.deadline, abort)
            except _Failed as failure:
                # It may have been closed at the other end in this moment, which says nothing about the server.
                if failure.final:
                    raise
        end = time.monotonic() + call.deadline
        return self._ask_on(address, self._connect(address, end, abort), call, end, abort)

    def _kept(self, address: Address) -> http.client.HTTPConnection | None:
        now = time.monotonic()
        with self._lock:
            stale = [kept for kept in self._idle if now - kept.idle_since >= IDLE_LIMIT]
            self._idle = [kept for kept in self._idle if now - kept.idle_since < IDLE_LIMIT]
            found = next((kept for kept in reversed(self._idle) if kept.address == address), None)
            if found is not None:
                self._idle.remove(found)
        for kept in stale:
            kept.connection.close()
        return found.connection if found else None

    def _connect(self, address: Address, end: float, abort: Abort) -> http.client.HTTPConnection:
        abort.check()
        wait = min(CONNECT_DEADLINE, max(end - time.monotonic(), 0.001))
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            if self._ssl_context is None:
                self._ssl_context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                address.host, address.port, timeout=wait, context=self._ssl_context
            )
        else:
            connection = http.client.HTTPConnection(address.host, address.port, timeout=wait)
        try:
            connection.connect()
        except TimeoutError:
            connection.close()
            raise _Failed(f"no connection within {wait:.0f} s", final=True) from None
        except OSError as error:
            connection.close()
            raise _Failed(_reason(error), final=True) from None
        return connection

    def _ask_on(
        self, address: Address, connection: http.client.HTTPConnection, call: Call, end: float, abort: Abort
    ) -> Answer:
        keep = False
        try:
            assert connection.sock is not None, "connections are made before they are used"
            abort.attach(connection.sock)
            self._limit(connection, end)
            headers = dict(self._headers)
            if call.body is not None:
                headers["content-type"] = call.content_type
            # The server may have refused the request before it had read all of it: then its answer is there.
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.request(call.method, call.path, call.body, headers)
            response = connection.getresponse()
            body = self._read(connection, response, end)
            keep = not response.will_close
            return Answer(
                response.status,
                body,
                _seconds(response.getheader("retry-after")),
                response.getheader("x-orbit-leader"),
                str(address),
            )
        except TimeoutError:
            abort.check()
            raise _Failed(f"no answer within {call.deadline:.0f} s", final=True) from None
        except (OSError, http.client.HTTPException) as error:
            abort.check()
            raise _Failed(_reason(error)) from None
        finally:
            abort.detach()
            if keep:
                self._keep(address, connection)
            else:
                connection.close()

    def _read(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, end: float) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := response.read(1 << 20):
            size += len(part)
            if size > LARGEST_ANSWER:
                raise http.client.HTTPException(f"the answer has more than {LARGEST_ANSWER} bytes")
            parts.append(part)
            self._limit(connection, end)
        return b"".join(parts)

    @staticmethod
    def _limit(connection: http.client.HTTPConnection, end: float) -> None:
        """The next operation on the connection ends at this time."""
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        # An answer that says "close" has taken the socket from the connection.
        if connection.sock is not None:
            connection.sock.settimeout(left)

    def _keep(self, address: Address, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < KEPT_CONNECTIONS:
                self._idle.append(_Kept(address, connection, time.monotonic()))
                return
        connection.close()


def segment(text: str) -> str:
    """A segment of a path, with what has a meaning in addresses escaped."""
    return quote(text, safe="-._~:@+")


def query_value(text: str) -> str:
    """A value of a query."""
    return quote(text, safe="-._~")


def _seconds(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:
        return 0.0  # A date: allowed, but no Orbit server sends one.
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0


#: How OpenSSL calls an answer that is no TLS.
NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})
#: How a TLS server begins to answer one who speaks HTTP: an alert, and the version.
TLS_ALERT = "\x15\x03"


def _reason(error: Exception) -> str:
    """What went wrong, without the number that some errors carry."""
    if isinstance(error, ssl.SSLError) and error.reason in NOT_TLS:
        return "the server there does not speak TLS; write http:// instead of https://"
    if isinstance(error, http.client.BadStatusLine) and error.line.startswith(TLS_ALERT):
        return "the server there speaks TLS; write https:// instead of http://"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
