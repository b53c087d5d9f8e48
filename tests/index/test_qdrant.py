"""An index in a Qdrant collection, in the client's local mode."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selftaught import Embedder
from selftaught.errors import SelftaughtError, UsageError
from selftaught.index import Index, add_images, make_index, qdrant, remove_images
from selftaught.index.qdrant import Destination, parse_target, push_index

pytest.importorskip("lancedb")
client_of = pytest.importorskip("qdrant_client")
TARGET = Destination("http://localhost:6333", "photos")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A collection in memory that outlives single connections."""
    client = client_of.QdrantClient(":memory:")
    with monkeypatch.context() as patch:
        patch.setattr(client, "close", lambda: None)
        patch.setattr(qdrant, "open_client", lambda _: client)
        yield client


@pytest.fixture
def index(photos: Path, embedder: Embedder, tmp_path: Path) -> Index:
    made = make_index(tmp_path / "index", embedder)
    add_images(made, photos, quiet=True)
    return made


def test_a_pushed_index_is_searched_alike_and_follows_removals(server: Any, index: Index, photos: Path) -> None:
    steps: list[int] = []
    assert push_index(index.table, TARGET, steps.append) == 24
    assert sum(steps) == 24
    query = photos / "class 1" / "0.jpg"
    for _ in range(2):
        (hits,) = index.search([query], k=5)
        vector = index.embedder.encode([query])[0].tolist()
        points = server.query_points("photos", vector, limit=5).points
        assert [point.payload["path"] for point in points] == [str(hit.path) for hit in hits]
        assert [point.score for point in points] == pytest.approx([hit.distance for hit in hits], abs=1e-3)
        remove_images(index.table, [query], quiet=True)
        assert push_index(index.table, TARGET) == server.count("photos").count == len(index)
        query = photos / "class 2" / "0.jpg"


def test_a_collection_of_other_vectors_is_refused(server: Any, index: Index) -> None:
    push_index(index.table, TARGET)
    server.set_payload("photos", {"model": "another"}, points=client_of.models.Filter())
    with pytest.raises(UsageError, match="holds other vectors"):
        push_index(index.table, TARGET)


@pytest.mark.parametrize("address", ["qdrant://", "qdrant://host", "http://host/x", "qdrant://host:no/x", "photos"])
def test_an_address_that_cannot_be_meant_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="give qdrant://HOST:6333/COLLECTION"):
        parse_target(address)


def test_a_server_that_does_not_answer_is_one_sentence(index: Index) -> None:
    with pytest.raises(SelftaughtError, match=r"cannot push to http://127\.0\.0\.1:9: "):
        push_index(index.table, parse_target("qdrant://127.0.0.1:9/photos"))
