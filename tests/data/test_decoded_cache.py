import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from several import PATIENCE, apart

from selftaught.data import (
    CachedReader,
    DecodedCache,
    FileReader,
    ViewRequest,
    Views,
    cache_space,
    find_images,
    open_image,
)
from selftaught.data.cache_segments import RECORD
from selftaught.data.cache_space import FREE, cache_limit, cache_root, cached_collections, delete_collection
from selftaught.data.decoded_images import DecodedImage, shrink
from selftaught.data.images import stamp
from selftaught.errors import UsageError

VIEWS = Views(size=32, resize=36, squash=36)
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def much_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_space, "free_space", lambda _: 10**12)


@pytest.fixture
def set_limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Limits all caches to so many bytes."""
    return lambda limit: monkeypatch.setenv("SELFTAUGHT_CACHE_GB", f"{limit / 1e9:.9f}")


def reader(root: Path, side: int = 48, workers: int = 0, collection: str = "photos") -> CachedReader:
    return CachedReader(VIEWS, side, workers, CPU, DecodedCache(collection, root))


def kind(source: CachedReader) -> str:
    return source._decoder.kind("random")


def requests(photos: Path, view: str = "random") -> list[list[ViewRequest]]:
    images = find_images(photos)
    rows = [ViewRequest(images.path(i), view, i) for i in range(len(images))]  # type: ignore[arg-type]
    return [rows[start : start + 5] for start in range(0, len(rows), 5)]


def read(source: CachedReader | FileReader, batches: list[list[ViewRequest]]) -> torch.Tensor:
    return torch.cat([batch.images for batch in source.read(batches)])


def picture(folder: Path, name: str = "a.png", color: str = "red", size: tuple[int, int] = (40, 30)) -> str:
    Image.new("RGB", size, color).save(folder / name)
    return str(folder / name)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("view", ["random", "squash", "center"])
def test_cached_views_are_those_of_the_files(photos: Path, tmp_path: Path, view: str, workers: int) -> None:
    """With images stored at their own size: the first time, from the cache, and from the cache of another process."""
    plain, batches = read(FileReader(VIEWS), requests(photos, view)), requests(photos, view)
    source = reader(tmp_path, side=100, workers=workers)
    again = reader(tmp_path, side=100)
    try:
        for views in (read(source, batches), read(source, batches), read(again, batches)):
            apart = (views.int() - plain.int()).abs()
            assert apart.max() <= (0 if view == "center" else 1)
            assert apart.float().mean() < 0.1
    finally:
        source.close()
        again.close()


def test_images_stored_smaller_give_nearly_the_same_views(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for i in range(6):
        Image.fromarray(rng.integers(0, 255, (9, 12, 3), np.uint8)).resize((400, 300)).save(tmp_path / f"{i}.png")
    batches = requests(tmp_path)
    plain, ours = read(FileReader(VIEWS), batches), read(reader(tmp_path / "cache", side=150), batches)
    assert (plain.int() - ours.int()).abs().float().mean() < 2


def test_a_file_is_decoded_once(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    plain = open_image

    def counted(path: str, *options: int | None) -> Image.Image:
        opened.append(path)
        return plain(path, *options)

    monkeypatch.setattr("selftaught.data.decoded_images.open_image", counted)
    source = reader(tmp_path)
    for _ in range(3):
        read(source, requests(photos))
        read(source, requests(photos, "squash"))
    source.close()
    read(reader(tmp_path), requests(photos))
    assert len(opened) == len(set(opened)) == 24


def test_a_changed_file_is_decoded_again(tmp_path: Path) -> None:
    path = picture(tmp_path)
    batch = [[ViewRequest(path, "squash")]]
    first = read(reader(tmp_path / "cache"), batch)
    picture(tmp_path, color="blue")
    os.utime(path, ns=(1, 1))
    changed = read(reader(tmp_path / "cache"), batch)
    assert first[0, 0, :, 0, 0].tolist() == [255, 0, 0]
    assert changed[0, 0, :, 0, 0].tolist() == [0, 0, 255]
    assert torch.equal(read(reader(tmp_path / "cache"), batch), changed)


def test_unreadable_files_are_named_every_time(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_text("no")
    good = find_images(photos).path(0)
    batch = [ViewRequest(good, "squash"), ViewRequest(str(tmp_path / "bad.jpg"), "squash"), ViewRequest(good, "squash")]
    source = reader(tmp_path / "cache")
    for _ in range(2):
        (got,) = source.read([batch])
        assert (got.positions, [position for position, _ in got.failures], len(got.images)) == ([0, 2], [1], 2)
    (got,) = source.read([batch[1:2]])
    assert (got.positions, len(got.images)) == ([], 0)


def test_a_full_cache_stores_no_more_and_images_are_read_all_the_same(
    photos: Path, tmp_path: Path, set_limit: Callable[[int], None]
) -> None:
    plain = read(reader(tmp_path / "other"), requests(photos))
    room = 5 * 48 * 62 * 3
    set_limit(room)
    source = reader(tmp_path / "cache")
    for _ in range(2):
        assert torch.equal(read(source, requests(photos)), plain)
    assert source.cache.closed_because is not None
    assert "limit" in source.cache.closed_because
    source.close()
    assert 0 < cached_collections(tmp_path / "cache")[0].bytes < room + 5000


def test_no_other_limit_is_advised_where_the_disk_is_full(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("cache_space", "decoded_cache"):
        monkeypatch.setattr(f"selftaught.data.{module}.free_space", lambda _: FREE)
    source = reader(tmp_path)
    read(source, requests(photos))
    assert source.cache.closed_because == f"{tmp_path} is on a disk that is nearly full"
    source.close()


def test_what_was_not_used_for_longest_makes_room(
    photos: Path, tmp_path: Path, set_limit: Callable[[int], None]
) -> None:
    for name in ("old", "new"):
        source = reader(tmp_path, collection=name)
        read(source, requests(photos))
        source.close()
    (old,) = [held for held in cached_collections(tmp_path) if held.name == "old"]
    os.utime(old.folder / "about.json", (1, 1))
    total = sum(held.bytes for held in cached_collections(tmp_path))
    set_limit(total - 1000)
    DecodedCache("third", tmp_path).close()
    assert {held.name for held in cached_collections(tmp_path)} == {"new", "third"}


def test_what_is_in_use_is_not_deleted(tmp_path: Path) -> None:
    cache = DecodedCache("photos", tmp_path)
    (held,) = cached_collections(tmp_path)
    assert not delete_collection(held)
    cache.close()
    assert delete_collection(held)
    assert cached_collections(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_is_no_hindrance(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    source = reader(tmp_path / "file")
    assert source.cache.closed_because is not None
    assert len(read(source, requests(photos))) == 24


def filled(root: Path, photos: Path) -> tuple[torch.Tensor, Path, Path]:
    """Views of all photos, and the two files that the cache has of them."""
    source = reader(root)
    plain = read(source, requests(photos))
    source.close()
    (index,) = root.glob("*/*.index")
    return plain, index, index.with_suffix(".pixels")


DAMAGES = ["torn record", "lost pixels", "no pixels", "empty index", "folder"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_cache_loses_only_what_is_damaged(photos: Path, tmp_path: Path, damage: str) -> None:
    plain, index, pixels = filled(tmp_path, photos)
    if damage == "torn record":
        index.write_bytes(index.read_bytes()[: 10 * RECORD.itemsize + 7])
    elif damage == "lost pixels":
        os.truncate(pixels, pixels.stat().st_size // 2)
    elif damage == "no pixels":
        pixels.unlink()
    elif damage == "empty index":
        index.write_bytes(b"")
    else:
        index.unlink()
        index.mkdir()
    assert torch.equal(read(reader(tmp_path), requests(photos)), plain)


@pytest.mark.parametrize("file", ["index", "pixels"])
def test_flipped_bits_are_never_trained_on(photos: Path, tmp_path: Path, file: str) -> None:
    """Wherever they are: the image is decoded again, once."""
    plain, index, pixels = filled(tmp_path, photos)
    path = index if file == "index" else pixels
    content = path.read_bytes()
    rng = np.random.default_rng(0)
    places = np.arange(0, RECORD.itemsize, 2) if file == "index" else rng.integers(0, len(content), 12)
    for place in places.tolist():
        bad = bytearray(content)
        bad[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(bad)
        source = reader(tmp_path)
        assert torch.equal(read(source, requests(photos)), plain)
        source.close()
        again = reader(tmp_path)
        assert torch.equal(read(again, requests(photos)), plain)
        again.close()
        for extra in set(tmp_path.glob("*/0001-*")):
            extra.unlink()


def test_a_whole_page_of_other_pixels_is_noticed_on_first_use_in_every_process(photos: Path, tmp_path: Path) -> None:
    plain, _, pixels = filled(tmp_path, photos)
    first, second = reader(tmp_path), reader(tmp_path)
    pixels.write_bytes(bytes(pixels.stat().st_size))
    for source in (first, second):
        assert torch.equal(read(source, requests(photos)), plain)


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("harm", ["cut pixels", "cut index", "removed files", "removed folder"])
def test_a_cache_that_is_harmed_while_it_is_used_is_filled_again(
    photos: Path, tmp_path: Path, harm: str, workers: int, prepared: bool
) -> None:
    plain, index, pixels = filled(tmp_path, photos)
    source = reader(tmp_path, workers=workers)
    if prepared:
        source.prepare(find_images(photos), None)
    batches = source.read(requests(photos))
    views = [next(batches).images]
    if harm == "cut pixels":
        os.truncate(pixels, 1000)
    elif harm == "cut index":
        os.truncate(index, 7)
    elif harm == "removed files":
        index.unlink()
        pixels.unlink()
    else:
        shutil.rmtree(index.parent)
    views += [batch.images for batch in batches]
    assert torch.equal(torch.cat(views), plain)
    for _ in range(2):
        assert torch.equal(read(source, requests(photos)), plain)
    source.close()
    assert read_only(tmp_path, photos) == plain.tolist()


def test_pixels_that_are_cut_while_more_are_added_are_never_used(tmp_path: Path) -> None:
    cache = DecodedCache("photos", tmp_path)
    images = {color: picture(tmp_path, f"{color}.png", color) for color in ("red", "lime", "blue")}
    decoded = {color: DecodedImage(np.array(open_image(path)), (40, 30), stamp(path)) for color, path in images.items()}
    for color in ("red", "lime"):
        cache.add("", images[color], decoded[color])
    cache.refresh()
    for color in ("red", "lime"):
        (slot,) = cache.find("", [images[color]])
        assert np.array_equal(cache.load(slot).pixels, decoded[color].pixels)  # type: ignore[union-attr]
    (pixels,) = tmp_path.glob("*/*.pixels")
    os.truncate(pixels, 100)
    cache.add("", images["blue"], decoded["blue"])
    cache.refresh()
    for color, path in images.items():
        (slot,) = cache.find("", [path])
        found = cache.load(slot) if slot >= 0 else None
        assert found is None or np.array_equal(found.pixels, decoded[color].pixels)
    assert found is not None, "what was added later is kept"
    cache.close()


def read_only(root: Path, photos: Path) -> list[object]:
    """The views from the cache alone."""
    source = reader(root)
    source.cache.refresh()
    images = find_images(photos)
    slots = source.cache.find(kind(source), [images.path(i) for i in range(len(images))])
    assert min(slots) >= 0
    return read(source, requests(photos)).tolist()


def test_pixels_stored_with_other_settings_of_the_decoder_are_not_used(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = find_images(photos)
    paths = [images.path(i) for i in range(len(images))]
    source = reader(tmp_path)
    read(source, requests(photos))
    source.cache.refresh()
    assert min(source.cache.find(kind(source), paths)) >= 0
    for setting in ("DRAFT", "LONGEST"):
        with monkeypatch.context() as change:
            change.setattr(f"selftaught.data.decoded_images.{setting}", 7)
            assert max(source.cache.find(kind(reader(tmp_path)), paths)) < 0
    assert max(source.cache.find(kind(reader(tmp_path, side=47)), paths)) < 0
    monkeypatch.setattr("selftaught.data.decoded_cache.FORMAT", 99)
    assert reader(tmp_path).cache.folder != source.cache.folder


def test_all_processes_and_runs_share_one_limit(photos: Path, tmp_path: Path, set_limit: Callable[[int], None]) -> None:
    one = 48 * 62 * 3
    limit = 20 * one
    set_limit(limit)
    sources = [reader(tmp_path, collection=name) for name in ("a", "b", "b", "c")]
    passes = [source.read(requests(photos)) for source in sources]
    for batches in zip(*passes, strict=True):
        assert len(batches) == 4
    for source in sources:
        assert source.cache.closed_because is not None
        source.cache.flush()
    assert sum(held.bytes for held in cached_collections(tmp_path)) < limit + 2 * one


def test_space_on_the_disk_is_measured_again_while_writing(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_limit: Callable[[int], None]
) -> None:
    monkeypatch.setattr("selftaught.data.decoded_cache.MEASURED_EVERY", 6 * 48 * 62 * 3)
    set_limit(10**9)
    source = reader(tmp_path)
    batches = source.read(requests(photos))
    next(batches)
    monkeypatch.setattr(cache_space, "free_space", lambda _: cache_space.FREE)
    assert sum(len(batch.images) for batch in batches) == 19
    assert source.cache.closed_because is not None
    source.close()
    assert cached_collections(tmp_path)[0].bytes < 15 * 48 * 62 * 3


def test_writing_makes_room_by_deleting_what_no_process_uses(
    photos: Path, tmp_path: Path, set_limit: Callable[[int], None]
) -> None:
    filled(tmp_path, photos)
    (old,) = cached_collections(tmp_path)
    set_limit(old.bytes + 10**4)
    source = reader(tmp_path, collection="new")
    read(source, requests(photos))
    assert source.cache.closed_because is None
    assert [held.name for held in cached_collections(tmp_path)] == ["new"]


def test_a_folder_in_the_cache_that_cannot_be_read_hinders_no_other(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refuse(place: Path) -> Any:
        if Path(place).name == "closed":
            raise PermissionError(13, "Permission denied")
        return scandir(place)

    monkeypatch.setattr(os, "scandir", refuse)
    source = reader(tmp_path)
    read(source, requests(photos))
    assert source.cache.closed_because is None
    source.close()


def test_a_collection_without_a_name_is_counted_and_can_be_deleted(photos: Path, tmp_path: Path) -> None:
    _, index, _ = filled(tmp_path, photos)
    (index.parent / "about.json").write_bytes(b"")
    (held,) = cached_collections(tmp_path)
    assert held.name == index.parent.name
    assert held.bytes > 10**5
    assert delete_collection(held)


def test_a_cache_that_can_be_nowhere_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path / ("x" * 300)))
    cache = DecodedCache("photos")
    assert cache.closed_because is not None
    assert cache.find("random", ["a.jpg"]) == [-1]
    cache.close()


def test_a_user_without_a_home_folder_has_a_cache_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("SELFTAUGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert cache_root().parent == Path(tempfile.gettempdir())


def test_two_processes_may_fill_one_cache(photos: Path, tmp_path: Path) -> None:
    one, two, batches = reader(tmp_path), reader(tmp_path), requests(photos)
    first = read(one, batches[:3])
    second = read(two, batches[3:])
    whole = torch.cat([first, second])
    assert torch.equal(read(one, batches), whole)
    assert torch.equal(read(two, batches), whole)
    one.close()
    two.close()
    assert len(DecodedCache("photos", tmp_path)._records) == 24


def read_and_die(photos: Path, folder: Path) -> None:
    """Read with a cache of which three of five batches are written, and be killed."""
    pytest.MonkeyPatch().setattr(cache_space, "free_space", lambda _: 10**12)
    source = reader(folder)
    for number, _ in enumerate(source.read(requests(photos))):
        if number == 2:
            source.cache.flush()
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_leaves_a_cache_that_can_be_used(photos: Path, tmp_path: Path) -> None:
    with apart(read_and_die, photos, tmp_path) as process:
        process.join(PATIENCE)
        assert process.exitcode == -signal.SIGKILL
    cache = DecodedCache("photos", tmp_path)
    assert len(cache._records) == 15
    assert len(read(reader(tmp_path), requests(photos))) == 24


def test_long_strips_are_squeezed_and_small_images_stay() -> None:
    assert shrink(Image.new("RGB", (30000, 20)), 48).size == (192, 20)
    assert shrink(Image.new("RGB", (40, 30)), 48).size == (40, 30)
    assert shrink(Image.new("RGB", (400, 300)), 48).size == (64, 48)


def test_views_of_a_long_strip_have_its_true_proportions(tmp_path: Path) -> None:
    """A crop is as wide as it is high in the image, though that is stored squeezed."""
    stripes = np.zeros((20, 4000, 3), np.uint8)
    stripes[:, ::20] = 255
    Image.fromarray(stripes).save(tmp_path / "a.png")
    batches = [[ViewRequest(str(tmp_path / "a.png"), "random", seed) for seed in range(50)]]
    views = read(reader(tmp_path / "cache"), batches)
    assert views.shape == (50, 2, 3, 32, 32)


def test_the_place_and_the_limit_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SELFTAUGHT_CACHE", str(tmp_path))
    monkeypatch.setenv("SELFTAUGHT_CACHE_GB", "1.5")
    assert cache_root() == tmp_path
    assert cache_limit(tmp_path) == 1_500_000_000
    for wrong in ("much", "nan", "-1", "inf", "1e308"):
        monkeypatch.setenv("SELFTAUGHT_CACHE_GB", wrong)
        with pytest.raises(UsageError, match="SELFTAUGHT_CACHE_GB must be a number of gigabytes"):
            cache_limit(tmp_path)
    monkeypatch.delenv("SELFTAUGHT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_root() == tmp_path / "x" / "selftaught"


@pytest.mark.gpu
def test_a_gpu_holds_the_images_or_gets_them_in_time(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = requests(photos)
    plain = read(reader(tmp_path), batches)
    source = CachedReader(VIEWS, 48, 0, torch.device("cuda"), DecodedCache("photos", tmp_path))
    streamed = read(source, batches)
    resident = read(source, batches)
    assert source._resident
    monkeypatch.setattr("selftaught.data.device_images.DEVICE_SHARE", 0.0)
    again = CachedReader(VIEWS, 48, 0, torch.device("cuda"), DecodedCache("photos", tmp_path))
    read(again, batches)
    late = read(again, batches)
    assert not again._resident
    for views in (streamed, resident, late):
        apart = (views.cpu().int() - plain.int()).abs()
        assert apart.max() <= 2
        assert torch.equal(views, streamed)
