"""An index: what is written is found, kept up to date, and never mixed with another model's."""

import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from conftest import TINY, draw_photos
from selftaught import Embedder, train
from selftaught.data import find_images
from selftaught.encoding import Encoding
from selftaught.errors import SelftaughtError, UsageError
from selftaught.files import lock_folder
from selftaught.index import (
    Index,
    add_images,
    changes,
    is_index,
    make_index,
    open_index,
    remove_images,
    sync_images,
    table,
)
from selftaught.index.scale import FILE

pytest.importorskip("lancedb")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """24 images in 6 folders."""
    return draw_photos(tmp_path / "images", classes=6, photos=4)


@pytest.fixture
def index(images: Path, embedder: Embedder, tmp_path: Path) -> Index:
    made = make_index(tmp_path / "index", embedder)
    assert add_images(made, images, quiet=True).written == 24
    return made


def expected(embedder: Embedder, images: Path, query: Path, k: int) -> list[tuple[Path, float]]:
    """The k nearest by a plain loop."""
    paths = [images / file for file in find_images(images).files]
    asked, vectors = embedder.encode([query]), embedder.encode(paths)
    distances = torch.linalg.vector_norm(vectors - asked, dim=1).tolist()
    return sorted(zip(paths, distances, strict=True), key=lambda pair: pair[1])[:k]


def test_an_index_finds_what_a_plain_search_finds_and_needs_nothing_but_its_folder(
    index: Index, images: Path, embedder: Embedder
) -> None:
    query = images / "class 2" / "1.jpg"
    true = expected(embedder, images, query, 5)
    reopened = open_index(index.folder, "cpu")
    for asked in (query, Image.open(query)):
        (hits,) = reopened.search([asked], k=5)
        assert [hit.path for hit in hits] == [path for path, _ in true]
        np.testing.assert_allclose([hit.distance for hit in hits], [d for _, d in true], atol=1e-3)
    assert hits[0].closer_than == 1.0
    assert reopened.table.roots() == [str(images)]
    assert "24 images" in repr(reopened)
    assert [len(near) for near in reopened.search([query, images / "class 0" / "0.jpg"], k=99)] == [24, 24]
    assert reopened.search([], k=3) == []


def test_a_distance_is_rated_among_those_between_neighbors(index: Index, embedder: Embedder, images: Path) -> None:
    paths = [images / file for file in find_images(images).files]
    vectors = embedder.encode(paths)
    distances = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
    near = distances.sort(dim=1).values[:, 1:11].flatten()
    scale = index.scale()
    for asked in near.quantile(torch.tensor([0.1, 0.5, 0.9])).tolist():
        assert scale.closer_than(asked) == pytest.approx((near > asked).float().mean().item(), abs=0.01)
    assert json.loads((index.folder / FILE).read_text())["version"] == index.table.version
    (index.folder / FILE).write_text("{")
    assert open_index(index.folder, "cpu").scale().distances == pytest.approx(scale.distances)
    (index.folder / FILE).unlink()
    os.mkfifo(index.folder / FILE)  # reading it would never end
    assert open_index(index.folder, "cpu").scale().distances == pytest.approx(scale.distances)


def test_thumbnails_are_small_upright_pictures_of_the_whole_photo(index: Index) -> None:
    rows = index.table.column("path", "thumbnail").to_pydict()
    for content in rows["thumbnail"][:3]:
        with Image.open(io.BytesIO(content)) as picture:
            assert (picture.format, picture.size) == ("JPEG", (90, 70))


def test_only_new_and_changed_images_are_embedded_again(
    index: Index, images: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert add_images(index, images, quiet=True) == changes.Change()
    Image.new("RGB", (40, 40), "red").save(images / "class 0" / "0.jpg")
    Image.new("RGB", (40, 40), "red").save(images / "class 0" / "new.png")
    encoded: list[str] = []
    encode = Encoding.encode_batches

    def recorded(self: Encoding, paths: Iterator[str], *rest: Any) -> Iterator[object]:
        kept = list(paths)
        encoded.extend(kept)
        return encode(self, kept, *rest)

    monkeypatch.setattr(Encoding, "encode_batches", recorded)
    assert add_images(index, images, quiet=True).written == 2
    assert [Path(path).name for path in encoded] == ["0.jpg", "new.png"]
    (hits,) = index.search([Image.new("RGB", (40, 40), "red")], k=2)
    assert {hit.path.name for hit in hits} == {"0.jpg", "new.png"}
    assert len(index) == 25


def test_a_folder_is_followed_and_others_stay(index: Index, images: Path, tmp_path: Path) -> None:
    other = draw_photos(tmp_path / "other's", classes=1, photos=3)
    assert add_images(index, other, quiet=True).written == 3
    (images / "class 0" / "0.jpg").unlink()
    shutil.rmtree(images / "class 1")
    Image.new("RGB", (40, 40), "red").save(images / "new.png")
    change = sync_images(index, images, quiet=True)
    assert (change.written, change.removed, len(index)) == (1, 5, 23)
    (other / "class 0" / "2.jpg").unlink()
    assert sync_images(index, quiet=True).removed == 1
    assert index.table.roots() == [str(images), str(other)]
    shutil.rmtree(other)
    with pytest.raises(UsageError, match=r"there is no folder .*; if it is gone for good, .* index remove"):
        sync_images(index, quiet=True)
    assert len(index) == 22, "a folder that is not mounted empties no index"


def test_a_shard_is_followed_and_what_lies_beside_it_stays(embedder: Embedder, photos: Path, tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    draw_photos(shards / "plain", classes=1, photos=3)
    for number in range(2):
        with tarfile.open(shards / f"{number}.tar", "w") as archive:
            archive.add(photos / f"class {number}", f"class {number}")
    index = make_index(tmp_path / "index", embedder)
    for source in ("0.tar", "1.tar", "plain"):
        add_images(index, shards / source, quiet=True)
    with tarfile.open(shards / "1.tar", "w") as archive:
        archive.add(photos / "class 1" / "0.jpg", "class 1/0.jpg")
    (shards / "plain" / "class 0" / "0.jpg").unlink()
    change = sync_images(index, shards / "1.tar", quiet=True)
    assert (change.removed, len(index)) == (3, 8)
    assert (sync_images(index, shards, quiet=True).removed, len(index)) == (1, 7)
    change = sync_images(index, quiet=True)  # every source that it was made from
    assert (change.written, change.removed, len(index)) == (0, 0, 7)
    (shards / "0.tar").unlink()
    with pytest.raises(UsageError, match=r"0\.tar.*take it out with selftaught index remove"):
        sync_images(index, quiet=True)
    assert (sync_images(index, shards / "1.tar", quiet=True).removed, len(index)) == (0, 7)
    assert (sync_images(index, shards / "*.tar", quiet=True).removed, len(index)) == (4, 3)


@pytest.mark.parametrize("pattern", ["a[1].tar", "**/*.tar"])
def test_a_shard_is_followed_by_a_name_with_brackets_and_by_a_pattern_of_folders(
    embedder: Embedder, photos: Path, tmp_path: Path, pattern: str
) -> None:
    shard, index = tmp_path / "shards" / "a[1].tar", make_index(tmp_path / "index", embedder)
    shard.parent.mkdir()
    for names in (("0.jpg", "1.jpg"), ("0.jpg",)):
        with tarfile.open(shard, "w") as archive:
            for name in names:
                archive.add(photos / "class 0" / name, name)
        change = sync_images(index, shard.parent / pattern, quiet=True)
    assert (change.removed, len(index)) == (1, 1)


def test_a_folder_that_is_named_like_a_shard_is_followed(embedder: Embedder, tmp_path: Path) -> None:
    images = draw_photos(tmp_path / "images", classes=2, photos=3).rename(tmp_path / "photos.tar")
    index = make_index(tmp_path / "index", embedder)
    add_images(index, tmp_path, quiet=True)
    (images / "class 0" / "0.jpg").unlink()
    assert (sync_images(index, tmp_path, quiet=True).removed, len(index)) == (1, 5)
    shutil.rmtree(images / "class 1")
    assert (sync_images(index, quiet=True).removed, len(index)) == (3, 2)


def test_what_can_no_longer_be_read_is_not_found_by_what_it_was(index: Index, images: Path) -> None:
    (images / "class 0" / "0.jpg").write_text("no image")
    change = sync_images(index, quiet=True)
    assert (change.written, change.removed, len(change.skipped), len(index)) == (0, 1, 1, 23)


def test_images_and_folders_are_removed_by_name_and_files_stay(index: Index, images: Path) -> None:
    gone = [images / "class 0", images / "class 1" / "2.jpg"]
    assert remove_images(index.table, gone, quiet=True).removed == 5
    assert len(index) == 19
    assert len(find_images(images)) == 24
    with pytest.raises(UsageError, match=r"class 0 is not in the index .*nothing is removed"):
        remove_images(index.table, [images / "class 2", images / "class 0"], quiet=True)
    assert len(index) == 19
    assert not any(
        hit.path.is_relative_to(images / "class 0") for hit in index.search([images / "class 0/0.jpg"], 30)[0]
    )


def test_odd_names_are_found_again(embedder: Embedder, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    names = [
        "it's.jpg",
        "a 'b' \"c\".png",
        "猫 🚙.webp",
        "new\nline.bmp",
        "back\\slash.png",
        "\\udce9.png",
        "semi;--.png",
    ]
    if os.name == "posix":
        names.append(os.fsdecode(b"caf\xe9.png"))
    for number, name in enumerate(names):
        Image.new("RGB", (40, 40), (30 * number, 0, 200)).save(folder / name)
    index = make_index(tmp_path / "index", embedder)
    assert add_images(index, folder, quiet=True).written == len(names)
    assert {hit.path.name for hit in index.search([folder / names[0]], k=20)[0]} == set(names)
    assert add_images(index, folder, quiet=True).written == 0
    assert remove_images(index.table, [folder / name for name in names[:-1]], quiet=True).removed == len(names) - 1
    assert index.table.paths() == [str(folder / names[-1])]


def test_another_model_is_refused(index: Index, photos: Path, tmp_path: Path) -> None:
    other = train(photos, out=tmp_path / "other", epochs=0, quiet=True, **(TINY | {"seed": 5}))
    with pytest.raises(UsageError, match="holds vectors of another model"):
        make_index(index.folder, other)
    with pytest.raises(UsageError, match="holds vectors of another model"):
        open_index(index.folder, embedder=other)
    with pytest.raises(UsageError, match="holds vectors of another model"):
        make_index(index.folder, index.embedder.seeing(mirror=True))


def test_a_large_index_is_searched_approximately_and_says_how_well(
    images: Path,
    embedder: Embedder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(table, "APPROXIMATE_FROM", 24)
    index = make_index(tmp_path / "index", embedder)
    add_images(index, images)
    assert "an IVF_RQ index was built: it finds 100.0% of the 10 nearest" in capsys.readouterr().err
    query = [images / "class 3" / "2.jpg"]
    assert index.table.is_approximate
    assert index.search(query, k=5) == index.search(query, k=5, exact=True)
    Image.new("RGB", (40, 40), "red").save(images / "new.png")
    add_images(index, images)
    assert "was extended" in capsys.readouterr().err
    assert index.search([images / "new.png"], k=1)[0][0].path == images / "new.png"


def test_an_index_killed_before_it_was_tidied_is_tidied_by_the_next_call(
    images: Path, embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(_: object) -> None:
        raise KeyboardInterrupt

    index = make_index(tmp_path / "index", embedder)
    with monkeypatch.context() as patch:
        patch.setattr(table.ImageTable, "tidy", killed)
        with pytest.raises(KeyboardInterrupt):
            add_images(index, images, quiet=True)
    assert add_images(index, images, quiet=True) == changes.Change()
    assert json.loads((index.folder / FILE).read_text())["version"] == index.table.version


def test_an_open_index_sees_what_others_write(index: Index, images: Path) -> None:
    reader = open_index(index.folder, embedder=index.embedder)
    query = Image.new("RGB", (40, 40), "red")
    before = reader.search([query], k=1)[0][0].path
    query.save(images / "new.png")
    add_images(index, images, quiet=True)
    assert reader.search([query], k=1)[0][0].path == images / "new.png" != before


def test_photos_that_have_moved_are_found_below_their_new_folder(index: Index, images: Path, tmp_path: Path) -> None:
    other = draw_photos(tmp_path / "other", classes=1, photos=3)  # of the same names, where they were
    add_images(index, other, quiet=True)
    moved = images.rename(tmp_path / "moved")
    (hits,) = index.search([moved / "class 0" / "0.jpg"], k=99, root=moved)
    places = [folder / file for folder in (moved, other) for file in find_images(folder).files]
    assert sorted(hit.path for hit in hits) == sorted(places)


def test_what_is_no_index_or_is_damaged_is_one_sentence(index: Index, embedder: Embedder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no index in"):
        open_index(tmp_path)
    full = tmp_path / "full"
    full.mkdir()
    (full / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"exists already and is not empty: give another --out"):
        make_index(full, embedder)
    shutil.rmtree(index.folder / "model")
    with pytest.raises(UsageError, match="is not finished"):
        open_index(index.folder)
    assert len(make_index(index.folder, embedder)) == 24
    for file in (index.folder / "images.lance" / "_versions").iterdir():
        file.write_bytes(b"no")
    assert is_index(index.folder)
    with pytest.raises(SelftaughtError, match="cannot be used"):
        open_index(index.folder)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_among_the_files_of_an_index_is_not_waited_for(index: Index) -> None:
    for place in ("_versions", "data"):
        file = next(file for file in (index.folder / "images.lance" / place).iterdir() if file.suffix != ".json")
        file.rename(index.folder / "kept")
        os.mkfifo(file)
        with pytest.raises(SelftaughtError, match=f"{file.name} is not a regular file: the index must be made again"):
            open_index(index.folder)
        (index.folder / "kept").replace(file)
    assert len(open_index(index.folder)) == 24


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            f"LanceError(IO): buffer underflow, {'/home/x' * 30}/src/dataset.rs:19:9",
            r"LanceError\(IO\): buffer underflow",
        ),
        (
            "lance error: LanceError(IO): No space left on device (os error 28), /src/w.rs:191:9",
            "No space left on device",
        ),
    ],
)
def test_of_a_message_of_the_database_only_what_helps_is_told(index: Index, said: str, told: str) -> None:
    class Broken:
        def count_rows(self) -> int:
            raise RuntimeError(said)

    with pytest.raises(SelftaughtError, match=f"cannot be used: {told}$"):
        len(table.ImageTable(index.folder, Broken(), index.table.about))


def test_a_panic_of_the_database_is_one_sentence(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    def panic(*_: object, **__: object) -> None:
        raise type("RustPanic", (Exception,), {})("rust future panicked: unknown error")

    monkeypatch.setattr("lancedb.connect", lambda _folder: SimpleNamespace(open_table=panic))
    with pytest.raises(SelftaughtError, match="cannot be used: rust future panicked"):
        open_index(index.folder)


def test_an_empty_index_finds_nothing(embedder: Embedder, tmp_path: Path) -> None:
    index = make_index(tmp_path / "index", embedder)
    assert index.search([Image.new("RGB", (40, 40))], k=3) == [[]]
    assert index.scale().closer_than(1.0) is None
    assert len(make_index(tmp_path / "index", embedder)) == 0


def test_what_a_kill_leaves_of_a_new_table_is_no_obstacle(embedder: Embedder, tmp_path: Path) -> None:
    (tmp_path / "index" / "images.lance" / "data").mkdir(parents=True)
    (tmp_path / "index" / "images.lance" / "data" / "x.lance").write_bytes(b"half")
    (tmp_path / "index" / ".lock").touch()
    assert len(make_index(tmp_path / "index", embedder)) == 0


def test_a_model_searches_an_index_of_its_own_and_no_other(embedder: Embedder, photos: Path, tmp_path: Path) -> None:
    index = make_index(tmp_path / "index", embedder)
    add_images(index, photos, quiet=True)
    queries = sorted(photos.rglob("*.jpg"))[:3]
    expected = index.search(queries, 4)
    assert embedder.search(queries, 4, index=tmp_path / "index") == expected
    assert embedder.search(queries, 4, index=index) == expected
    (alone,) = embedder.search(queries[0], 4, index=index)
    assert [hit.path for hit in alone] == [hit.path for hit in expected[0]]
    other = embedder.seeing(size=48)
    for place in (tmp_path / "index", index):
        with pytest.raises(
            UsageError, match=r'vectors of another model.*: open_index\(".*index"\) searches it with its own'
        ):
            other.search(queries, index=place)
    with pytest.raises(UsageError, match="there is no index"):
        embedder.search(queries, index=tmp_path / "missing")


def test_two_processes_do_not_make_an_index_at_once(embedder: Embedder, tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(UsageError, match="another process is at work"):
        make_index(tmp_path, embedder)
    assert not is_index(tmp_path)
    assert len(make_index(tmp_path, embedder)) == 0
