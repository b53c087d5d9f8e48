"""Copies of an index on a Qdrant server, for collections that outgrow one machine."""

import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from selftaught.data import Advance
from selftaught.errors import SelftaughtError, UsageError, one_line, printable
from selftaught.index.table import ImageTable

KEY = "QDRANT_API_KEY"
SCHEMES = {"qdrant": "http", "qdrants": "https"}
BATCH = 256


@dataclass(frozen=True)
class Destination:
    """The server and the name of a collection."""

    url: str
    collection: str


def parse_target(text: str) -> Destination:
    """The parts of ``qdrant://HOST:PORT/COLLECTION``; ``qdrants://`` is encrypted.

    Example:
        >>> parse_target("qdrant://localhost/photos")
        Destination(url='http://localhost:6333', collection='photos')
    """
    try:
        parts = urlsplit(text)
        host, port, name = parts.hostname, parts.port or 6333, parts.path.strip("/")
    except ValueError:
        host = None
    if host is None or parts.scheme not in SCHEMES or not name or "/" in name:
        raise UsageError(f"{printable(text)} is no address of a collection: give qdrant://HOST:6333/COLLECTION")
    return Destination(f"{SCHEMES[parts.scheme]}://{f'[{host}]' if ':' in host else host}:{port}", name)


def push_index(table: ImageTable, target: Destination, advance: Advance = lambda _: None) -> int:
    """Make a collection hold exactly what the index holds; returns the number of images.

    Each point has the image's path, its folder and the model's identity; a key is taken from QDRANT_API_KEY.
    """
    client = open_client(target.url)
    try:
        return _push(client, table, target.collection, advance)
    except SelftaughtError:
        raise
    except Exception as error:  # errors of transport, server and client share no class
        where = printable(target.url)
        raise SelftaughtError(f"cannot push to {where}: {one_line(error)}; give the command again") from None
    finally:
        client.close()


def open_client(url: str) -> Any:
    try:
        from qdrant_client import QdrantClient
    except ImportError:
        raise UsageError("pushing to Qdrant needs its client: pip install 'selftaught[qdrant]'") from None
    return QdrantClient(url=url, api_key=os.environ.get(KEY), timeout=60, check_compatibility=False)


def _push(client: Any, table: ImageTable, collection: str, advance: Advance) -> int:
    from qdrant_client import models

    about = table.about
    if not client.collection_exists(collection):
        size = models.VectorParams(size=about.dim, distance=models.Distance.EUCLID)
        client.create_collection(collection, vectors_config=size)
    some, _ = client.scroll(collection, limit=1, with_payload=True)
    if some and (some[0].payload or {}).get("model") != about.model:
        raise UsageError(f"the collection {printable(collection)} holds other vectors: give another name")
    version = table.version

    def points() -> Iterator[Any]:
        count = len(table)
        for start in range(0, count, BATCH):
            part = range(start, min(start + BATCH, count))
            found = table.take(part, "path", "root", "vector").to_pydict()
            for path, root, vector in zip(found["path"], found["root"], found["vector"], strict=True):
                payload = {"path": path, "root": root, "model": about.model, "version": version}
                yield models.PointStruct(id=str(uuid.uuid5(uuid.NAMESPACE_URL, path)), vector=vector, payload=payload)
            advance(len(part))

    client.upload_points(collection, points(), batch_size=BATCH, wait=True)
    now = models.FieldCondition(key="version", match=models.MatchValue(value=version))
    client.delete(collection, points_selector=models.Filter(must_not=[now]), wait=True)
    return len(table)
