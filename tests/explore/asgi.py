"""Requests straight to an ASGI app, without a network."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOKEN = "the-token"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


async def ask(
    app: Any,
    path: str,
    *,
    method: str = "GET",
    body: list[bytes] | None = None,
    headers: Mapping[str, str] | None = None,
    token: str | None = TOKEN,
    kind: str = "http",
) -> Answer:
    """One request; ``path`` is as a server hands it on, with percent signs decoded."""
    path, _, query = path.partition("?")
    whole = path if token is None else f"/{token}{path}"
    given = {"host": "127.0.0.1:8000", **(headers or {})}
    scope: dict[str, Any] = {
        "type": kind,
        "method": method,
        "path": whole,
        "root_path": "",
        "scheme": "http",
        "http_version": "1.1",
    }
    scope |= {"query_string": query.encode("utf-8", "replace"), "raw_path": b"/"}
    scope |= {"headers": [(n.encode(), v.encode()) for n, v in given.items()], "server": ("127.0.0.1", 8000)}
    parts = list(body or [b""])
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        if not parts:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": parts.pop(0), "more_body": bool(parts)}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    if kind != "http":
        return Answer(sent[0]["code"], {}, b"")
    start, *rest = sent
    names = {name.decode().lower(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], names, b"".join(message.get("body", b"") for message in rest))
