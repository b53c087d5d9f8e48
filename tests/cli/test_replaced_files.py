"""A command replaces what it has written itself, and no other file."""

import shutil
from pathlib import Path

import pytest

from conftest import Call, note_calls
from selftaught.run_folder import REPORT

SEARCH = ["search", "RUN", "QUERY", "--in", "PHOTOS"]
COMMANDS = {
    "s.jpg": [*SEARCH, "--out"],
    "s.png": [*SEARCH, "--out"],
    "s.json": [*SEARCH, "--json"],
    "s.csv": [*SEARCH, "--csv"],
    "e.json": ["evaluate", "RUN", "PHOTOS", "--no-floor", "--json"],
    "moves.sh": ["dedup", "RUN", "PHOTOS", "--out", "FOUND", "--script"],
    "r.html": ["report", "RUN", "--out"],
    "v.parquet": ["embed", "RUN", "PHOTOS", "--out"],
    "v.npy": ["embed", "RUN", "PHOTOS", "--out"],
    "m.onnx": ["export", "RUN", "--onnx"],
    "m.pt2": ["export", "RUN", "--torch"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_file_of_the_user_is_kept_and_one_of_the_command_replaced(
    name: str, call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name == "m.onnx":
        pytest.importorskip("onnxscript")
    query, found, out = photos / "class 0" / "0.jpg", tmp_path / "found", tmp_path / name
    places = {"RUN": run, "QUERY": query, "PHOTOS": photos, "FOUND": found}
    words = [places.get(word, word) for word in COMMANDS[name]]
    for content in (query.read_bytes(), b"path,label\n0.jpg,bird\n", b'{"selftaught": 5}'):
        out.write_bytes(content)
        with monkeypatch.context() as patch:
            loaded = note_calls(patch, "selftaught.embedder", "build_network")
            code, _, error = call(*words, out)
        assert (code, f"give another {words[-1]}, or move the file away" in error, loaded) == (2, True, [])
        assert out.read_bytes() == content
        assert len(error.splitlines()) == 1
    out.write_bytes(b"")
    for _ in range(2):
        before = out.read_bytes()
        code, _, error = call(*words, out)
        assert code == 0, error
        assert before or out.read_bytes()
        shutil.rmtree(found, ignore_errors=True)


def test_a_picture_of_that_name_in_the_current_folder_is_kept(
    call: Call, run: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("search.png").write_bytes(b"mine")
    code, _, error = call("search", run, photos / "class 0" / "0.jpg", "--in", photos)
    assert (code, "give another --out" in error, Path("search.png").read_bytes()) == (2, True, b"mine")


def test_the_page_that_training_has_made_is_replaced(call: Call, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    assert call("report", copy)[0] == 0
    assert call("report", copy, "--out", copy / REPORT)[0] == 0
