"""What can go wrong between a program and its servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class OrbitError(Exception):
    """A call failed. `code` is what programs decide from; the book's chapter "Errors" lists the codes.

    `message` says what is wrong, `hint` what would help. `retryable` says whether the same call may succeed later.
    `status` is the HTTP status, 0 where no server answered. `retry_after` is how many seconds the server asks to wait,
    0 where it says nothing. The server's log has the call under `request_id`.
    """

    def __init__(
        self,
        code: str,
        message: str,
        hint: str = "",
        status: int = 0,
        retryable: bool = False,
        details: Mapping[str, Any] | None = None,
        request_id: str = "",
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.status = status
        self.retryable = retryable
        self.details: Mapping[str, Any] = details if details is not None else {}
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" ({self.hint})" if self.hint else "")


class Unreachable(OrbitError):
    """No server could be reached, or none answered in time. `tried` says what happened at each."""

    def __init__(self, tried: Sequence[str]) -> None:
        self.tried = tuple(tried)
        super().__init__(
            "UNREACHABLE",
            "cannot reach an Orbit server at " + "; ".join(self.tried),
            hint="is `orbit server` running there?",
            retryable=True,
        )
        self.args = (self.tried,)

    def __str__(self) -> str:
        return self.message


class Unexpected(OrbitError):
    """Something answered that does not speak Orbit's API."""

    def __init__(self, server: str, message: str, status: int = 0) -> None:
        super().__init__(
            "UNEXPECTED_ANSWER",
            f"{server} does not answer like an Orbit server: {message}",
            hint="check the address: something else may be listening there",
            status=status,
        )
        self.args = (server, message, status)
