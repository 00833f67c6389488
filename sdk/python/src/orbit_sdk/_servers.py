"""Addresses of servers: `http://host:port`, several by comma or as a list."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_FORM = re.compile(
    r"(?:(?P<scheme>https?)://)?(?P<host>\[[0-9A-Fa-f:.]+\]|[^\s/@?#:\[\]]+)(?::(?P<port>[0-9]{1,5}))?/?"
)


@dataclass(frozen=True)
class Address:
    """One server."""

    scheme: str
    #: Without the brackets of an IPv6 address.
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """One address. Raises `ValueError`."""
    found = _FORM.fullmatch(text)
    port = int(found["port"]) if found and found["port"] else None
    if not found or (port is not None and not 1 <= port <= 65535):
        raise ValueError(f"{text!r} is no server address; write http://HOST:PORT, several separated by commas")
    scheme = found["scheme"] or "http"
    return Address(scheme, found["host"].strip("[]"), port or (443 if scheme == "https" else 80))


def parse_servers(servers: str | Iterable[str]) -> tuple[Address, ...]:
    """The servers, in the order in which they are tried. Raises `ValueError`."""
    texts = [servers] if isinstance(servers, str) else list(servers)
    parts = [part.strip() for text in texts for part in text.split(",")]
    addresses = tuple(parse_address(part) for part in parts if part)
    if not addresses:
        raise ValueError("no server is named; give an address such as http://127.0.0.1:7233")
    return addresses
