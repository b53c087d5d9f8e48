"""Access control: only pages from this server, with the token in their address, get answers."""

import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE = ("127.0.0.1", "localhost", "::1")
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",  # otherwise other sites would see the token in the address
    "x-content-type-options": "nosniff",
}
REFUSAL = PlainTextResponse("Open the whole address that selftaught explore has printed.\n", 403)


def guard(app: ASGIApp, token: str) -> ASGIApp:
    """The app below ``/TOKEN/``, for requests to this machine from its own pages; others get 403."""

    async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        if not _is_welcome(scope, token):
            return await REFUSAL(scope, receive, send)
        inner = dict(scope, path=scope["path"][len(token) + 1 :], root_path="", raw_path=b"")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        return await app(inner, receive, with_headers)

    return guarded


def _is_welcome(scope: Scope, token: str) -> bool:
    headers = Headers(scope=scope)
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
