"""Access control: only pages from this server, with the token in their address, get answers."""

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HERE = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",  # otherwise other sites would see the token in the address
    "x-content-type-options": "nosniff",
}


def guard(app: App, token: str) -> App:
    """The app below ``/TOKEN/``, for requests to this machine from its own pages; others get 403."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        if scope["type"] != "http" or not _is_welcome(scope, token):
            return await _refuse(scope, send)
        inner = dict(scope, path=scope["path"][len(token) + 1 :], root_path="", raw_path=b"")

        async def with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                more = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", []), *more]}
            await send(message)

        return await app(inner, receive, with_headers)

    return guarded


def _is_welcome(scope: Scope, token: str) -> bool:
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
    given, slash, _ = scope["path"].removeprefix("/").partition("/")
    if not slash or not hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode()):
        return False
    host, origin = headers.get("host", ""), headers.get("origin")
    try:
        if urlsplit(f"//{host}").hostname not in HERE:  # DNS rebinding by a foreign page
            return False
    except ValueError:
        return False
    if origin is not None and origin != f"http://{host}":
        return False
    return headers.get("sec-fetch-site", "none") in ("none", "same-origin")


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    body = b"Open the whole address that selftaught explore has printed.\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})
