import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from conftest import Call
from selftaught import Embedder
from selftaught import export as exporting
from selftaught.data import draw_photos
from selftaught.errors import ImageError, SelftaughtError, UsageError
from selftaught.export import Exported, ImagesToVectors, check_format, export, open_some

onnxruntime = pytest.importorskip("onnxruntime", reason="needs selftaught[onnx]")
pytest.importorskip("onnxscript", reason="needs selftaught[onnx]")

EXAMPLE = Path(__file__).parents[1] / "examples" / "onnx_search.py"
SIZES = [(1, 70, 90), (3, 33, 20), (2, 7, 400), (1, 301, 45)]


@pytest.fixture(scope="module")
def exported(embedder: Embedder, photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Exported]:
    folder = tmp_path_factory.mktemp("exported")
    images = [str(path) for path in sorted(photos.rglob("*.jpg"))]
    written = export(embedder, [folder / "model.onnx", folder / "model.pt2"], images)
    return {one.path.suffix: one for one in written}


def some_images(count: int, height: int, width: int) -> np.ndarray:
    return np.random.default_rng(height).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def test_both_files_give_the_vectors_of_the_model_for_images_of_any_size(
    embedder: Embedder, exported: dict[str, Exported]
) -> None:
    session = onnxruntime.InferenceSession(exported[".onnx"].path)
    program: Any = torch.export.load(exported[".pt2"].path).module()
    for size in SIZES:
        images = some_images(*size)
        wanted = embedder.encode(list(images))
        by_onnx = torch.from_numpy(session.run(None, {"images": images})[0])
        torch.testing.assert_close(by_onnx, wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(program(torch.from_numpy(images)), wanted, rtol=1e-4, atol=1e-5)


def test_the_difference_that_is_told_was_measured(
    embedder: Embedder, exported: dict[str, Exported], photos: Path
) -> None:
    length = float(embedder.encode(sorted(photos.rglob("*.jpg"))[::2]).norm(dim=1).mean())
    for one in exported.values():
        assert one.images == 12  # every second of 24, since at most 16 are taken
        assert 0 <= one.difference < 1e-4 * one.length
        assert one.length == pytest.approx(length, rel=1e-3)


def test_the_files_say_which_model_they_hold(embedder: Embedder, exported: dict[str, Exported]) -> None:
    session = onnxruntime.InferenceSession(exported[".onnx"].path)
    about = session.get_modelmeta().custom_metadata_map
    wanted = {"metric": embedder.metric, "dim": str(embedder.dim), "identity": embedder.identity, "backbone": "small"}
    assert {name: about[name] for name in wanted} == wanted
    assert about["selftaught"]
    notes = {"selftaught.json": ""}
    torch.export.load(exported[".pt2"].path, extra_files=notes)
    assert json.loads(notes["selftaught.json"]) == about
    assert [i.shape for i in session.get_inputs()] == [["n", "height", "width", 3]]


def test_the_example_needs_only_onnxruntime_numpy_and_pillow_and_leaves_out_what_cannot_be_read(
    embedder: Embedder, exported: dict[str, Exported], photos: Path, tmp_path: Path
) -> None:
    photos = shutil.copytree(photos, tmp_path / "photos")
    query, paths = photos / "class 3" / "1.jpg", sorted(photos.rglob("*.jpg"))
    (photos / "broken.jpg").write_bytes(b"no image")
    without = "import runpy, sys; sys.modules['torch'] = sys.modules['selftaught'] = None; del sys.argv[0]; "
    code = without + "runpy.run_path(sys.argv[0], run_name='__main__')"
    words = [str(EXAMPLE), str(exported[".onnx"].path), str(query), str(photos), "-k", "4"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    about, left_out, *lines = done.stdout.splitlines()
    assert f"{embedder.dim} dimensions, metric {embedder.metric}" in about
    assert left_out.startswith(f"left out {photos / 'broken.jpg'}: ")
    distances = (embedder.encode(paths) - embedder.encode(query)).norm(dim=1)
    nearest = [paths[int(index)] for index in distances.argsort()[:4]]
    assert [Path(line.split(maxsplit=1)[1]) for line in lines] == nearest
    assert lines[0].split()[0] == "0.0000"


def test_what_is_traced_sees_mirrored_views_and_scales_as_the_model_does(embedder: Embedder) -> None:
    for other in (embedder.seeing(size=48, mirror=True), embedder.seeing(scales=3)):
        images = some_images(2, 90, 61)
        with torch.no_grad():
            vectors = ImagesToVectors(other)(torch.from_numpy(images))
        torch.testing.assert_close(vectors, other.encode(list(images)), rtol=1e-4, atol=1e-5)


def test_a_file_that_would_give_other_vectors_is_not_written(
    embedder: Embedder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "model.pt2"
    target.write_bytes(b"old")
    monkeypatch.setattr(exporting, "trace", lambda _: None)
    for wrong in (np.ones, lambda shape: np.full(shape, np.nan)):
        monkeypatch.setattr(exporting, "_write_torch", lambda *_, w=wrong: (b"new", lambda images: w((len(images), 8))))
        with pytest.raises(SelftaughtError, match="other vectors") as caught:
            export(embedder, [target])
        assert "\n" not in str(caught.value)
        assert target.read_bytes() == b"old"
        assert list(tmp_path.iterdir()) == [target]


def test_a_network_that_cannot_be_traced_is_one_sentence(embedder: Embedder, tmp_path: Path) -> None:
    class Branching(nn.Module):
        def forward(self, features: Tensor) -> Tensor:
            return features if float(features.sum()) > 0 else -features

    odd = Embedder(embedder.network, embedder.description)
    odd.network = type(embedder.network)(
        embedder.network.encoder, {"f": nn.Sequential(embedder.network.heads["f"], Branching())}
    )
    with pytest.raises(SelftaughtError, match="cannot be exported") as caught:
        export(odd, [tmp_path / "model.pt2"])
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_images_that_cannot_be_read_are_left_out_of_the_check(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"no image")
    Image.new("RGB", (9, 9)).save(tmp_path / "b.png")
    assert [photo.size for photo in open_some([str(tmp_path / "a.jpg"), str(tmp_path / "b.png")])] == [(9, 9)]
    with pytest.raises(ImageError, match="nothing to check with"):
        open_some([str(tmp_path / "a.jpg")])


def test_drawn_photos_are_upright_and_across() -> None:
    shapes = {photo.width < photo.height for photo in draw_photos()}
    assert shapes == {True, False}


def test_without_the_packages_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selftaught.export.find_spec", lambda name: None if name == "onnxscript" else name)
    with pytest.raises(UsageError, match=r"need onnxscript: pip install 'selftaught\[onnx\]'"):
        check_format(Path("model.onnx"))
    check_format(Path("model.pt2"))


def test_the_command_writes_and_tells(
    call: Call, run: Path, photos: Path, tmp_path: Path, exported: dict[str, Exported], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = torch.export.load(exported[".pt2"].path)
    monkeypatch.setattr(exporting, "trace", lambda _: program)  # the same network, traced above
    code, out, err = call("export", run, photos, "--torch", tmp_path / "model.pt2")
    assert code == 0, err
    assert "largest difference from the model" in out
    assert "12 given images" in out
    assert (tmp_path / "model.pt2").stat().st_size > 1000


def test_misuse_of_the_command_is_one_sentence(call: Call, run: Path, tmp_path: Path) -> None:
    cases: list[tuple[list[object], str]] = [
        ([run], "say what to write"),
        ([run, "--onnx", tmp_path / "model.bin"], "must end in .onnx"),
        ([run, "--torch", tmp_path / "model.onnx"], "must end in .pt2"),
        ([run, "--torch", tmp_path / "gone" / "model.pt2"], "there is no folder"),
        ([tmp_path / "gone", "--torch", tmp_path / "model.pt2"], "there is no run"),
        ([run, tmp_path / "nothing", "--torch", tmp_path / "model.pt2"], "nothing"),
    ]
    for words, hint in cases:
        code, _, err = call("export", *words)
        assert code == 2
        assert hint in err
        assert len(err.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_the_commands_of_the_documentation_are_understood(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "export.md").read_text("utf-8")
    lines = re.findall(r"^selftaught (export .*)$", page, re.MULTILINE)
    assert len(lines) == 1
    asked: list[list[Path]] = []

    def record(_: Embedder, paths: list[Path], files: list[str]) -> list[Exported]:
        assert files
        asked.append(paths)
        return []

    monkeypatch.setattr("selftaught.cli.export.export", record)
    monkeypatch.chdir(tmp_path)
    for line in lines:
        words = [{"RUN": str(run), "photos": str(photos)}.get(word, word) for word in shlex.split(line)]
        assert call(*words)[0] == 0
    assert asked == [[Path("model.onnx"), Path("model.pt2")]]


def test_a_model_is_whitened_on_the_given_images(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Embedder] = []

    def note(embedder: Embedder, *_: object) -> list[object]:
        given.append(embedder)
        return []

    monkeypatch.setattr("selftaught.cli.export.export", note)
    code, _, error = call("export", run, "--onnx", tmp_path / "a.onnx", "--whiten")
    assert code == 2
    assert "--whiten needs images" in error
    assert call("export", run, photos, "--onnx", tmp_path / "a.onnx", "--whiten")[0] == 0
    assert given[0].description["whitened"] == Embedder.load(run, "cpu").identity


def test_a_model_is_not_whitened_on_a_folder_that_can_hardly_be_read(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("selftaught.cli.export.export", lambda *_: [])
    images = tmp_path / "images"
    shutil.copytree(photos, images)
    for number in range(len(list(photos.rglob("*.jpg"))) // 10):
        (images / f"{number}.jpg").write_text("no")
    command = ("export", run, images, "--onnx", tmp_path / "a.onnx", "--whiten")
    code, _, error = call(*command)
    assert (code, "cannot be read (the first is 0.jpg" in error, "--allow-skipped" in error) == (1, True, True)
    code, _, error = call(*command, "--allow-skipped")
    assert (code, "left out 0.jpg" in error) == (0, True)
