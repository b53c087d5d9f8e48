"""selftaught explore: an address with a token, until Ctrl-C."""

import os
import re
import signal
import socket
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from several import PATIENCE, apart, run_command, wait_until

from conftest import TINY, Call
from selftaught import train
from selftaught.cli.explore import embed_versions, load_models
from selftaught.cli.options import ModelUse
from selftaught.data import find_images

pytest.importorskip("uvicorn")
pytest.importorskip("openTSNE")


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_it_answers_a_hundred_at_once_on_this_machine_only_and_ends_well(
    run: Path, photos: Path, tmp_path: Path
) -> None:
    address = re.compile(r"24 photos to explore: (http://127\.0\.0\.1:\d+)/([\w-]{22})/\n")
    log = tmp_path / "log"
    log.touch()
    with apart(run_command, log, "explore", run, photos, "--before") as process:
        wait_until(lambda: address.search(log.read_text()) is not None, process.is_alive)
        place, token = address.findall(log.read_text())[0]

        def get(path: str) -> int:
            try:
                with urllib.request.urlopen(place + path, timeout=PATIENCE) as answer:
                    return len(answer.read()) and answer.status
            except urllib.error.HTTPError as error:
                return error.code

        paths = ["/", "/api/collection", "/api/map/1", "/photo/3", "/thumbnail/5", "/api/neighbors/0/2", "/photo/24"]
        with ThreadPoolExecutor(100) as pool:
            codes = list(pool.map(get, [f"/{token}{paths[number % 7]}" for number in range(100)]))
        assert codes == [404 if number % 7 == 6 else 200 for number in range(100)]
        assert get("/") == get("/photo/3") == get(f"/{token}x/photo/3") == 403
        os.kill(process.pid, signal.SIGINT)
        process.join(PATIENCE)
        assert process.exitcode == 0


def test_every_stage_of_training_is_a_version_of_its_own(photos: Path, tmp_path: Path) -> None:
    train(photos, out=tmp_path / "run", epochs=2, snapshots=1, use_size=80, quiet=True, **TINY)
    models = load_models(ModelUse(str(tmp_path / "run"), "cpu"), before=True, snapshots=True)
    assert list(models) == ["before training", "epoch 0", "epoch 1", "epoch 2", "after training"]
    sizes = {model.preprocessing.use_size for model in models.values()}
    assert sizes == {80}, "the same size before and after"
    exhibit = embed_versions(find_images(photos), models, whitened=False, allow_skipped=False)
    *earlier, first, last, after = [version.vectors for version in exhibit.versions]
    assert all(len(vectors) == 24 for vectors in earlier)
    torch.testing.assert_close(last, after, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(first, last)


def test_all_versions_see_photos_as_they_are_asked_to(run: Path, photos: Path) -> None:
    use = ModelUse(str(run), "cpu", size=48, mirror=True, scales=2)
    exhibit = embed_versions(find_images(photos), load_models(use, True, False), whitened=True, allow_skipped=False)
    assert len(exhibit.versions) == 2
    for version in exhibit.versions:
        model = version.embedder
        assert (model.preprocessing.use_size, model.mirror, model.scales) == (48, True, 2)
        assert "whitened" in model.description
        torch.testing.assert_close(model.encode([exhibit.paths[3]])[0], version.vectors[3], rtol=1e-4, atol=1e-5)


def test_misuse_is_one_sentence(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        cases: list[tuple[list[object], str]] = [
            (["explore", run], "is a model: name the folder of images"),
            (["explore", run, photos, "--scales", 4], "scales must be 1, 2 or 3"),
            (["explore", photos], "there is no model in"),
            (["explore", tmp_path / "gone", photos], "there is no run"),
            (["explore", run, tmp_path / "gone"], "there is no folder"),
            (["explore", "small", photos, "--before"], "was not trained: leave --before out"),
            (["explore", run, photos, "--snapshots"], "has kept no networks"),
            (["explore", run, photos, "--port", port], f"port {port} cannot be used"),
        ]
        for words, message in cases:
            code, _, error = call(*words)
            assert (code, message in error) == (2, True), (words, error)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    code, _, error = call("explore", run, photos)
    assert (code, error) == (2, "selftaught: exploring needs more packages: pip install 'selftaught[explore]'\n")
