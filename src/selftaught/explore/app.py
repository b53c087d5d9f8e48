"""The page's requests and their answers. Requests name photos by number, and never become part of a path."""

import io
import json
import threading
from collections.abc import Awaitable, Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from selftaught.data import FORMATS, NO_IMAGE, to_rgb
from selftaught.errors import ImageError, SelftaughtError
from selftaught.explore.colors import KINDS, color_by
from selftaught.explore.exhibit import Exhibit
from selftaught.explore.guard import guard
from selftaught.explore.maps import Maps
from selftaught.files import plain_path, read_static
from selftaught.index import Scale, scale_of
from selftaught.report import EARLY, LATE
from selftaught.retrieval import nearest

UPLOAD_BYTES = 25 * 2**20
UPLOAD_PIXELS = 60_000_000
MOST_NEIGHBORS = 100
SCRIPTS = ("page.js", "map.js", "panel.js", "colors.js", "parts.js")
ASSETS = {"": "text/html", "page.css": "text/css", **dict.fromkeys(SCRIPTS, "text/javascript")}
KEEP = {"cache-control": "private, max-age=3600"}

Answer = Callable[[Request], Awaitable[Response]]


def make_app(exhibit: Exhibit, maps: Maps, token: str, selections: Path) -> ASGIApp:
    """An ASGI app that shows an exhibit; ``selections`` is where folders of links are made."""
    lock = threading.Lock()
    # JSON holds text only: other bytes of a name become question marks.
    names = [name.encode("utf-8", "replace").decode("utf-8") for name in exhibit.names]
    about = {"names": names, "versions": [one.name for one in exhibit.versions], "colors": KINDS}

    @cache
    def colors(kind: str, version: int) -> dict[str, Any]:
        return color_by(exhibit, kind, version)

    @cache
    def scale(version: int) -> Scale:
        return scale_of(exhibit.versions[version].vectors)

    small = lru_cache(maxsize=4096)(exhibit.thumbnail)

    def neighbors(version: int, vector: torch.Tensor, k: int) -> list[dict[str, Any]]:
        vectors = exhibit.versions[version].vectors
        with lock:  # searches at the same time would only slow each other down
            distances, numbers = nearest(vector[None], vectors, min(k, len(vectors)))
            ratings = scale(version)
        pairs = zip(numbers[0].tolist(), distances[0].tolist(), strict=True)
        return [{"photo": n, "distance": d, "closer_than": ratings.closer_than(d)} for n, d in pairs]

    async def collection(_: Request) -> Response:
        return JSONResponse(about)

    async def state(_: Request) -> Response:
        return JSONResponse({"steps": maps.steps, "of": EARLY + LATE})

    async def places(request: Request) -> Response:
        found = maps.maps[_version(request, exhibit)]
        return Response(found.astype("<f4").tobytes(), media_type="application/octet-stream")

    async def color(request: Request) -> Response:
        kind = request.path_params["kind"]
        if kind not in KINDS:
            raise HTTPException(404, "there is no such color")
        return JSONResponse(await run_in_threadpool(colors, kind, _version(request, exhibit)))

    async def near(request: Request) -> Response:
        version, photo = _version(request, exhibit), _photo(request, exhibit)
        vector = exhibit.versions[version].vectors[photo]
        found = await run_in_threadpool(neighbors, version, vector, _count(request) + 1)
        return JSONResponse([one for one in found if one["photo"] != photo][: _count(request)])

    async def search(request: Request) -> Response:
        version = _version(request, exhibit)
        body = await _body(request)

        def find() -> list[dict[str, Any]]:
            vector = exhibit.versions[version].embedder.encode([decode(body)])[0]
            return neighbors(version, vector, _count(request))

        return JSONResponse(await run_in_threadpool(find))

    async def thumbnail(request: Request) -> Response:
        return Response(await run_in_threadpool(small, _photo(request, exhibit)), media_type="image/jpeg", headers=KEEP)

    async def photo(request: Request) -> Response:
        content = await run_in_threadpool(exhibit.photo, _photo(request, exhibit))
        return Response(content, media_type="image/jpeg", headers=KEEP)

    async def links(request: Request) -> Response:
        try:
            asked = json.loads(await _body(request))
            name, numbers = str(asked["name"]), [int(number) for number in asked["photos"]]
            if not numbers or not all(0 <= number < len(exhibit) for number in numbers):
                raise ValueError
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            raise HTTPException(400, "a selection is a name and numbers of photos") from None
        place = await run_in_threadpool(exhibit.link, numbers, selections, name)
        return JSONResponse({"folder": str(plain_path(place))})

    routes = [
        *(Route(f"/{name}", _asset(name or "page.html", kind)) for name, kind in ASSETS.items()),
        Route("/api/collection", collection),
        Route("/api/state", state),
        Route("/api/map/{version}", places),
        Route("/api/colors/{kind}/{version}", color),
        Route("/api/neighbors/{version}/{photo}", near),
        Route("/api/search/{version}", search, methods=["POST"]),
        Route("/api/links", links, methods=["POST"]),
        Route("/thumbnail/{photo}", thumbnail),
        Route("/photo/{photo}", photo),
    ]
    handlers: dict[Any, Any] = {HTTPException: _say, SelftaughtError: _say}
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.router.redirect_slashes = False
    return guard(app, token)


def decode(body: bytes) -> Image.Image:
    """An uploaded image as RGB; raises an error if it is no image or too large."""
    try:
        with Image.open(io.BytesIO(body), formats=FORMATS) as image:
            if image.width * image.height > UPLOAD_PIXELS:
                raise ImageError(f"an image may have {UPLOAD_PIXELS // 10**6} megapixels")
            image.load()
            return to_rgb(image)
    except ImageError:
        raise
    except Exception:  # decoders can raise anything
        raise ImageError(NO_IMAGE) from None


async def _body(request: Request) -> bytes:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > UPLOAD_BYTES:
            raise HTTPException(413, f"at most {UPLOAD_BYTES // 2**20} MB can be sent")
    return bytes(content)


async def _say(_: Request, error: Exception) -> Response:
    """Errors as one sentence for the page to show."""
    if isinstance(error, HTTPException):
        return JSONResponse({"error": error.detail}, error.status_code)
    return JSONResponse({"error": str(error)}, 415 if isinstance(error, ImageError) else 400)


def _asset(name: str, kind: str) -> Answer:
    content = read_static("explore", name)

    async def answer(_: Request) -> Response:
        return Response(content, media_type=kind)

    return answer


def _version(request: Request, exhibit: Exhibit) -> int:
    return _number(request.path_params["version"], len(exhibit.versions), "model")


def _photo(request: Request, exhibit: Exhibit) -> int:
    return _number(request.path_params["photo"], len(exhibit), "photo")


def _number(text: str, limit: int, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) < limit):
        raise HTTPException(404, f"there is no such {what}")
    return int(text)


def _count(request: Request) -> int:
    try:
        return min(MOST_NEIGHBORS, max(1, int(request.query_params.get("k", 24))))
    except ValueError:
        raise HTTPException(400, "k must be a number") from None
