"""The page's server: photos by number and nothing else, to its own page and nobody else."""

import asyncio
import io
import json
import os
import random
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from asgi import TOKEN, Answer, ask
from PIL import Image

from conftest import draw_photos
from selftaught import Embedder
from selftaught.data import find_images, open_images
from selftaught.errors import SelftaughtError
from selftaught.explore import Exhibit, Version, exhibit_folder, exhibit_index
from selftaught.index import add_images, make_index, open_index, remove_images

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("openTSNE")

from selftaught.explore import app as explore_app
from selftaught.explore.app import UPLOAD_BYTES, make_app
from selftaught.explore.guard import HEADERS
from selftaught.explore.maps import Maps

SECRET = b"the secret of the house"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return draw_photos(tmp_path / "photos", classes=3, photos=4)


@pytest.fixture
def exhibit(folder: Path, embedder: Embedder) -> Exhibit:
    images = find_images(folder)
    vectors = embedder.encode([folder / file for file in images.files])
    plain = Version("before training", embedder, vectors.flip(1))
    return exhibit_folder(images, [plain, Version("after training", embedder, vectors)])


@pytest.fixture
def app(exhibit: Exhibit, tmp_path: Path) -> Any:
    return make_app(exhibit, Maps([one.vectors for one in exhibit.versions]), TOKEN, tmp_path / "selections")


def get(app: Any, path: str, **options: Any) -> Answer:
    return asyncio.run(ask(app, path, **options))


def test_the_page_and_all_it_needs_come_from_here(app: Any) -> None:
    page = get(app, "/")
    assert page.status == 200
    assert "text/html" in page.headers["content-type"]
    for name, value in HEADERS.items():
        assert page.headers[name] == value
    wanted = ["page.css", *explore_app.SCRIPTS]
    texts = [page.body.decode(), *(get(app, f"/{name}").body.decode() for name in wanted)]
    assert all(len(text) > 200 for text in texts)
    assert not any("http:" in text or "https:" in text or 'src="//' in text for text in texts)


def test_maps_names_colors_and_states_cover_every_photo(app: Any, exhibit: Exhibit) -> None:
    content = json.loads(get(app, "/api/collection").body)
    assert content["names"] == list(exhibit.names)
    assert content["versions"] == ["before training", "after training"]
    assert json.loads(get(app, "/api/state").body) == {"steps": [0, 0], "of": 750}
    assert len(get(app, "/api/map/1").body) == 12 * 2 * 4
    for kind in content["colors"]:
        colors = json.loads(get(app, f"/api/colors/{kind}/1").body)
        assert len(colors["values"]) == 12
    folders = json.loads(get(app, "/api/colors/folder/0").body)
    assert [folders["names"][value] for value in folders["values"]] == [name.split("/")[0] for name in exhibit.names]
    distances = json.loads(get(app, "/api/colors/distance/1").body)["values"]
    vectors = exhibit.versions[1].vectors
    true = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist").fill_diagonal_(9e9).amin(1)
    assert distances == pytest.approx(true.tolist(), rel=1e-3, abs=1e-4)


def test_the_date_is_the_cameras_or_else_the_files(app: Any, folder: Path) -> None:
    taken = Image.Exif()
    taken.get_ifd(0x8769)[36867] = "2001:02:03 04:05:06"
    Image.new("RGB", (40, 40)).save(folder / "class 0" / "0.jpg", exif=taken)
    os.utime(folder / "class 0" / "1.jpg", (1e9, 1e9))
    first, second, *_ = json.loads(get(app, "/api/colors/date/0").body)["values"]
    assert abs(first - 981173106) < 86400, "in whatever zone this machine is"
    assert second == 1e9


def test_dates_before_1970_are_dates_too(app: Any, folder: Path) -> None:
    taken = Image.Exif()
    taken.get_ifd(0x8769)[36867] = "1931:02:03 04:05:06"
    Image.new("RGB", (40, 40)).save(folder / "class 0" / "0.jpg", exif=taken)
    (folder / "class 0" / "1.jpg").unlink()
    first, second, *_ = json.loads(get(app, "/api/colors/date/0").body)["values"]
    assert (first is not None and first < -1e9, second) == (True, None)


def test_neighbors_of_a_photo_and_of_an_upload_are_the_nearest(app: Any, exhibit: Exhibit, folder: Path) -> None:
    vectors = exhibit.versions[1].vectors
    order = torch.linalg.vector_norm(vectors - vectors[5], dim=1).argsort(stable=True).tolist()
    near = json.loads(get(app, "/api/neighbors/1/5?k=4").body)
    assert [one["photo"] for one in near] == [photo for photo in order if photo != 5][:4]
    assert all(0 <= one["closer_than"] <= 1 for one in near)
    content = (folder / exhibit.names[5]).read_bytes()
    found = get(app, "/api/search/1?k=3", method="POST", body=[content[:100], content[100:]])
    assert [one["photo"] for one in json.loads(found.body)] == order[:3]
    assert json.loads(found.body)[0]["distance"] < 1e-3


def test_pictures_are_drawn_anew_and_hold_nothing_of_the_file_but_its_look(app: Any, folder: Path) -> None:
    first = folder / "class 0" / "0.jpg"
    taken = Image.Exif()
    taken[0x010E] = SECRET.decode()
    Image.new("RGB", (2000, 1000), "red").save(first, exif=taken)
    assert SECRET in first.read_bytes()
    for path, size in (("/photo/0", (1600, 800)), ("/thumbnail/0", (128, 64))):
        answer = get(app, path)
        assert answer.headers["content-type"] == "image/jpeg"
        assert SECRET not in answer.body
        with Image.open(io.BytesIO(answer.body)) as picture:
            assert picture.size == size


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "evil.example"},
        {"host": "127.0.0.1.evil.example:8000"},
        {"host": "[::1"},
        {"host": ""},
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "https://127.0.0.1:8000"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_requests_of_other_pages_are_refused(app: Any, headers: Mapping[str, str]) -> None:
    for path in ("/", "/photo/0", "/api/collection"):
        assert get(app, path, headers=headers).status == 403
    assert get(app, "/api/search/0", method="POST", body=[b"x"], headers=headers).status == 403


def test_requests_without_the_token_are_refused(app: Any) -> None:
    for token in (None, "", "the-toke", "the-token2", "THE-TOKEN", "../the-token", "é\udcff"):
        for path in ("/", "/photo/0", "/page.js"):
            assert get(app, path, token=token).status == 403
    assert get(app, "", token="the-token").status == 403
    assert get(app, "/", kind="websocket").status == 1008
    own = {"origin": "http://localhost:8000", "host": "localhost:8000", "sec-fetch-site": "same-origin"}
    assert get(app, "/", headers=own).status == 200


def test_ten_thousand_strange_paths_reach_no_file(app: Any, folder: Path) -> None:
    (folder.parent / "secret.txt").write_bytes(SECRET)
    (folder / "secret.txt").write_bytes(SECRET)
    place = str(folder.parent / "secret.txt")
    pieces = [
        *("..", ".", "%2e%2e", "%2f", "%5c", "..%2f", "\\", "..\\", "\0", "%00", "\n", "é", "\udcff", "~", " ", ""),
        *("photo", "thumbnail", "api", "map", "colors", "neighbors", "static", "page.html", "secret.txt", "class 0"),
        *("0", "1", "11", "12", "-1", "1e3", "９", "9" * 30, "9" * 5000, "0.jpg", "file:", place, place[1:], "passwd"),
    ]
    rng = random.Random(0)
    known = {f"/{name}" for name in explore_app.ASSETS} | {"/api/collection", "/api/state"}

    async def all_of_them() -> dict[int, int]:
        seen: dict[int, int] = {}
        for _ in range(10_000):
            words = [rng.choice(pieces) for _ in range(rng.randint(1, 6))]
            path = "/" + rng.choice(["/", "", "//"]).join(words)
            method = rng.choice(["GET", "GET", "GET", "HEAD", "POST", "PUT"])
            answer = await ask(app, path, method=method)
            seen[answer.status] = seen.get(answer.status, 0) + 1
            assert answer.status in (200, 400, 404, 405, 415), path
            assert SECRET not in answer.body
            if answer.status == 200:
                is_picture = path.startswith(("/photo/", "/thumbnail/")) and path.rpartition("/")[2] in ("0", "1", "11")
                assert (
                    is_picture
                    or path.rstrip("\n") in known
                    or path.startswith(("/api/map/", "/api/colors/", "/api/neighbors/"))
                )
        return seen

    seen = asyncio.run(all_of_them())
    assert seen[404] > 5000
    assert seen[200] > 10


def test_a_link_that_leads_elsewhere_since_the_start_is_not_followed(folder: Path, embedder: Embedder) -> None:
    outside, other = folder.parent / "outside.png", folder.parent / "other.png"
    for place in (outside, other):
        Image.new("RGB", (50, 50), "red").save(place)
    (folder / "link.png").symlink_to(outside)
    images = find_images(folder).only(["link.png", "class 0/0.jpg"])
    exhibit = exhibit_folder(images, [Version("a", embedder, torch.zeros(2, 8))])
    app = make_app(exhibit, Maps([torch.zeros(2, 8)]), TOKEN, folder.parent)
    assert get(app, "/photo/0").status == 200
    (folder / "link.png").unlink()
    (folder / "link.png").symlink_to(other)
    (folder / "class 0").rename(folder / "moved")
    (folder / "class 0").symlink_to(folder / "moved")
    for path in ("/photo/0", "/photo/1"):
        answer = get(app, path)
        assert (answer.status, json.loads(answer.body)["error"]) == (415, "the file is no longer where it was")


def test_uploads_that_are_too_large_or_no_images_are_refused(app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def upload(*parts: bytes) -> tuple[int, str]:
        answer = get(app, "/api/search/0", method="POST", body=list(parts))
        return answer.status, json.loads(answer.body)["error"]

    part = bytes(2**20)
    assert upload(*[part] * (UPLOAD_BYTES // 2**20 + 1)) == (413, "at most 25 MB can be sent")
    for body in (b"", b"no", SECRET, b"\xff\xd8\xff\xe0" + bytes(1000), b"<svg xmlns='http://www.w3.org/2000/svg'/>"):
        status, why = upload(body)
        assert (status, "not an image" in why) == (415, True)
    monkeypatch.setattr(explore_app, "UPLOAD_PIXELS", 10_000_000)
    large = io.BytesIO()
    Image.new("L", (10_000, 2_000)).save(large, "PNG")
    assert upload(large.getvalue()) == (415, "an image may have 10 megapixels")
    assert get(app, "/api/search/0").status == 405


def test_a_hundred_requests_at_once_are_all_answered(app: Any, folder: Path) -> None:
    content = (folder / "class 1" / "2.jpg").read_bytes()
    paths = ["/photo/3", "/thumbnail/4", "/api/neighbors/0/5", "/api/collection", "/api/colors/cluster/1"]

    async def many() -> list[Answer]:
        calls = [ask(app, path) for path in paths * 18]
        calls += [ask(app, "/api/search/1", method="POST", body=[content]) for _ in range(10)]
        return list(await asyncio.gather(*calls))

    answers = asyncio.run(many())
    assert len(answers) == 100
    assert {answer.status for answer in answers} == {200}


def test_a_selection_becomes_a_folder_of_links(app: Any, exhibit: Exhibit, folder: Path, tmp_path: Path) -> None:
    def make(name: object, photos: object) -> Answer:
        return get(app, "/api/links", method="POST", body=[json.dumps({"name": name, "photos": photos}).encode()])

    made = make("red ones", [3, 0])
    place = Path(json.loads(made.body)["folder"])
    assert place == tmp_path / "selections" / "red ones"
    links = sorted(place.iterdir())
    assert [link.resolve() for link in links] == [(folder / exhibit.names[n]).resolve() for n in (3, 0)]
    assert find_images(place).files == ("00001 3.jpg", "00002 0.jpg")
    again = make("red ones", [1])
    assert (again.status, "already" in json.loads(again.body)["error"]) == (400, True)
    for name in ("", "..", "../x", "/tmp/x", "a/b", ".hidden", "x\0", "a\nb", "x" * 65, "dot."):
        assert make(name, [1]).status == 400
    impossible: list[object] = [[], [12], [-1], ["x"], "no", None, [[]], [float("inf")]]
    for photos in impossible:
        assert make("other", photos).status == 400
    assert get(app, "/api/links", method="POST", body=[b"[" * 100_000]).status == 400
    assert [entry.name for entry in (tmp_path / "selections").iterdir()] == ["red ones"]


def test_a_link_to_a_photo_with_a_long_name_has_a_name_that_fits(embedder: Embedder, tmp_path: Path) -> None:
    photo = tmp_path / f"{'写' * 83}.png"
    Image.new("RGB", (40, 40)).save(photo)
    exhibit = exhibit_folder(find_images(tmp_path), [Version("model", embedder, torch.zeros(1, 8))])
    (link,) = exhibit.link([0], tmp_path / "selections", "some").iterdir()
    assert (link.resolve(), link.suffix) == (photo, ".png")


def test_no_link_is_made_that_leads_nowhere(folder: Path, embedder: Embedder, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "00.tar", "w") as archive:
        archive.add(folder / "class 0", "class 0")
    gone = find_images(folder).only(["class 1/0.jpg"])
    (folder / "class 1" / "0.jpg").unlink()
    for images in (open_images(str(tmp_path / "00.tar"), "all"), gone):
        exhibit = exhibit_folder(images, [Version("model", embedder, torch.zeros(len(images), 8))])
        with pytest.raises(SelftaughtError, match=r"0\.jpg is gone, or lies in a tar file: no link can lead to it"):
            exhibit.link([0], tmp_path / "selections", "some")
    assert not (tmp_path / "selections").exists()


def test_photos_of_an_index_with_several_folders_are_named_with_their_folder(
    folder: Path, embedder: Embedder, tmp_path: Path
) -> None:
    pytest.importorskip("lancedb")
    more = tmp_path / "more"
    more.mkdir()
    (more / "0.png").write_bytes(next(folder.rglob("*.*")).read_bytes())
    index = make_index(tmp_path / "index", embedder)
    add_images(index, folder, quiet=True)
    add_images(index, more, quiet=True)
    names = exhibit_index(index).names
    assert sorted(names) == sorted([*(f"{folder.name}/{name}" for name in find_images(folder).files), "more/0.png"])


def test_an_index_is_shown_with_its_thumbnails_also_after_its_photos_moved(
    folder: Path, embedder: Embedder, tmp_path: Path
) -> None:
    pytest.importorskip("lancedb")
    index = make_index(tmp_path / "index", embedder)
    add_images(index, folder, quiet=True)
    moved = folder.rename(tmp_path / "moved")
    exhibit = exhibit_index(index, moved)
    app = make_app(exhibit, Maps([exhibit.versions[0].vectors]), TOKEN, tmp_path)
    assert sorted(exhibit.names) == list(find_images(moved).files)
    assert {get(app, path).status for path in ("/thumbnail/3", "/photo/3", "/api/neighbors/0/3")} == {200}
    other = open_index(index.folder, embedder=embedder)
    remove_images(other.table, [folder / "class 0"], quiet=True)
    assert {get(app, f"/thumbnail/{number}").status for number in range(12)} == {200}, "from the files, if need be"
    index.table.refresh()
    lost = make_app(exhibit_index(index), Maps([exhibit.versions[0].vectors]), TOKEN, tmp_path)
    assert [get(lost, path).status for path in ("/thumbnail/3", "/photo/3")] == [200, 415]
