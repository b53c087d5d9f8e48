"""The page of a run tells what happened, and never spoils the run."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from conftest import Call, note_calls
from selftaught import Embedder
from selftaught.console import Reporter
from selftaught.errors import UsageError
from selftaught.run_folder import FLOOR, METRICS, MODELS, REPORT, START, TIMING, TRAINED
from selftaught.run_report import photos as page_photos
from selftaught.run_report import report, write_run_report
from selftaught.run_report.course import describe_course, explain_scores, judge, read_course, scores_of

QUIET = Reporter(quiet=True)
TINY = ["--backbone", "small", "--dim", "8", "--batch-size", "8", "--neighbors", "2", "--set", "workers=0"]


@pytest.fixture
def copy(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run in a folder of its own, and a page that is quickly made."""
    monkeypatch.setattr(report, "KNOWN_COPIES", 2)
    monkeypatch.setattr(report, "QUERIES", 3)
    return Path(shutil.copytree(run, tmp_path / "a run"))


def add_floor(run: Path, after: float, *, served: bool = True) -> None:
    """Make a run look as if it had started from pretrained weights, and had no labels."""
    settings = json.loads((run / "settings.json").read_text())
    (run / "settings.json").write_text(json.dumps(settings | {"eval": None, "pretrained": True}))
    for folder in (FLOOR, *([] if served else [TRAINED])):
        (run / folder).mkdir()
        for name in ("model.json", "model.safetensors"):
            shutil.copy(run / name, run / folder / name)
    rows = {"plain backbone": {"found_again": 0.9}, "trained": {"found_again": after}}
    (run / MODELS).write_text(json.dumps({"floor": "plain backbone", "models": rows}))


def text_of(page: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<style>.*?</style>", "", page.read_text(), flags=re.S)))


def test_a_run_with_labels_has_scores_marks_and_commands_with_its_paths(copy: Path, photos: Path) -> None:
    page = write_run_report(copy, reporter=QUIET)
    assert page == copy / REPORT
    source, text = page.read_text("utf-8"), text_of(page)
    assert len(source) < 3_000_000
    assert not any(word in source for word in ("http://", "https://", "url(", "<script"))
    assert "24 labeled photos, 24 of which were also trained on." in text
    last = json.loads((copy / "metrics.jsonl").read_text().splitlines()[-1])
    assert f"{100 * last['recall@1']:.1f} ±" in text, "with its noise"
    assert "2 of 2" in text
    assert source.count('class="right"') + source.count('class="wrong"') == 3 * 6
    for command in ("search", "index", "dedup", "cluster", "explore", "evaluate", "export"):
        assert f"selftaught {command} &#x27;{copy}&#x27;" in source
    assert str(photos) in text


def test_without_labels_neighbors_before_and_after_and_the_floor_stand_side_by_side(copy: Path) -> None:
    add_floor(copy, after=0.95)
    page = write_run_report(copy, reporter=QUIET)
    source, text = page.read_text("utf-8"), text_of(page)
    assert "found again at 95.00%, without training at 90.00% (plain backbone): no sign that training did harm." in text
    assert "trained (this run&#x27;s model) 95.00%" in text
    assert source.count("<h3>Without training</h3>") == source.count("<h3>After training</h3>") == 3
    assert 'class="right"' not in source
    assert 'class="new"' not in source, "both models are the same here"


def test_where_the_untrained_model_is_served_the_page_says_so(copy: Path) -> None:
    add_floor(copy, after=0.8, served=False)
    text = text_of(write_run_report(copy, reporter=QUIET))
    assert "so the untrained model (plain backbone) is served" in text
    assert "plain backbone (this run&#x27;s model) 90.00%" in text


@pytest.mark.parametrize("file", [MODELS, METRICS, START, TIMING])
def test_any_number_of_a_run_may_be_damaged_and_its_page_is_made_all_the_same(
    copy: Path, embedder: Embedder, file: str
) -> None:
    row = {"found_again": 0.9, "recall@1": 0.5, "map@r": 0.3}
    models = {"plain backbone": row, "trained": row}
    (copy / MODELS).write_text(json.dumps({"floor": "plain backbone", "models": models}))
    whole = (copy / file).read_text()
    places = list(re.finditer(r"(?<=: )(\{[^{}]*\}|[^,{}\n]+)", whole))
    assert places
    for place in places:
        for other in ("null", "-1", "7", "1e999", "NaN", '"trained"', "[1]", "{}", "9" * 400):
            (copy / file).write_text(whole[: place.start()] + other + whole[place.end() :])
            course = read_course(copy, None)
            assert judge(course)
            assert describe_course(course, embedder)
            assert explain_scores(course)
            assert scores_of(course) or file != MODELS
            assert all("epoch" in row for row in course.history), "they are drawn over it"


def test_of_many_photos_some_are_looked_at_and_the_page_says_so(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_photos, "MOST_ON_CPU", 10)
    monkeypatch.setattr(page_photos, "MOST_ON_GPU", 10)
    assert "10 of 24 photos" in text_of(write_run_report(copy, reporter=QUIET))


def test_copies_are_found_and_unreadable_photos_are_left_out(copy: Path, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    for number in range(4):
        shutil.copy(photos / f"class {number}" / "0.jpg", tmp_path / "others" / f"{number}.jpg")
    shutil.copy(tmp_path / "others" / "0.jpg", tmp_path / "others" / "again.jpg")
    (tmp_path / "others" / "bad.jpg").write_bytes(b"no image")
    page = write_run_report(copy, str(tmp_path / "others"), out=tmp_path / "page.html", reporter=QUIET)
    assert not (copy / REPORT).exists()
    text = text_of(page)
    readable = len(list((tmp_path / "others").iterdir())) - 1
    assert f"among all {readable} photos" in text, "the one that cannot be read is no reason to speak of a part"
    assert "others, 1 is a copy of another" in text, "which photos those are"
    assert "again.jpg" in text
    assert "best · best" not in text
    assert "bad.jpg" not in text


def test_one_unreadable_photo_of_the_training_is_told_in_the_singular(copy: Path) -> None:
    (copy / "skipped.csv").write_text("path,reason\nclass 0/0.jpg,damaged\n")
    text = text_of(write_run_report(copy, reporter=QUIET))
    assert "; 1 more could not be read (skipped.csv)" in text
    assert "Among the 23 photos trained on, no file is there twice" in text


def test_what_was_not_trained_on_counts_neither_as_a_photo_nor_as_a_copy(
    copy: Path, photos: Path, tmp_path: Path
) -> None:
    shutil.copytree(photos, tmp_path / "others")
    for name in ("1.jpg", "2.jpg"):
        (tmp_path / "others" / name).touch()
    settings = json.loads((copy / "settings.json").read_text())
    (copy / "settings.json").write_text(json.dumps(settings | {"images": str(tmp_path / "others"), "eval": None}))
    (copy / "skipped.csv").write_text("path,reason\n1.jpg,empty\n2.jpg,empty\none of the labeled.jpg,damaged\n")
    text = text_of(write_run_report(copy, reporter=QUIET))
    assert "; 2 more could not be read (skipped.csv)" in text
    assert "Among the 24 photos trained on, no file is there twice" in text


def test_photos_that_are_gone_are_one_sentence_and_others_can_be_given(copy: Path, photos: Path) -> None:
    settings = json.loads((copy / "settings.json").read_text())
    (copy / "settings.json").write_text(json.dumps(settings | {"images": "/nowhere", "eval": None}))
    with pytest.raises(UsageError, match="gone from /nowhere: selftaught report RUN IMAGES"):
        write_run_report(copy, reporter=QUIET)
    assert "no labels" in text_of(write_run_report(copy, str(photos), reporter=QUIET))


def test_without_a_library_for_maps_there_is_a_simpler_one(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> None:
        raise ImportError

    monkeypatch.setattr(report, "neighbor_map", missing)
    assert "selftaught[explore]" in text_of(write_run_report(copy, reporter=QUIET))


def test_the_map_says_how_many_photos_it_leaves_out(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "neighbor_map", lambda vectors, *_: np.zeros((len(vectors), 2)))
    assert "20 do not fit between the others" in text_of(write_run_report(copy, reporter=QUIET))


def test_the_command_makes_it_anew_and_refuses_what_is_no_finished_run(call: Call, copy: Path, tmp_path: Path) -> None:
    code, said, _ = call("report", copy)
    assert code == 0
    assert str(copy / REPORT) in said
    assert "there is no folder" in call("report", copy, "--out", tmp_path / "no" / "x.html")[2]
    (copy / "model.json").unlink()
    code, _, error = call("report", copy)
    assert code == 2
    assert "not finished: selftaught train --resume" in error
    (tmp_path / "empty").mkdir()
    for name in ("missing", "empty"):
        code, _, error = call("report", tmp_path / name)
        assert code == 2
        assert "there is no run in" in error


@pytest.mark.parametrize("trouble", [RuntimeError("no\nroom"), MemoryError(), KeyboardInterrupt()])
def test_a_page_that_fails_leaves_the_run_finished(
    trouble: BaseException, call: Call, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise trouble

    monkeypatch.setattr("selftaught.cli.report.write_run_report", fail)
    code, _, error = call("train", photos, "--out", tmp_path / "run", "--epochs", 0, *TINY)
    assert (tmp_path / "run" / "model.safetensors").exists()
    assert "the model is saved" in error.splitlines()[-1]
    assert f"selftaught report {tmp_path / 'run'} makes it" in error.splitlines()[-1]
    assert code == (130 if isinstance(trouble, KeyboardInterrupt) else 0)


def test_training_makes_the_page_unless_it_is_not_wanted(
    call: Call, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "KNOWN_COPIES", 2)
    listed = note_calls(monkeypatch, "selftaught.data.sources", "find_images")
    code, _, error = call("train", photos, "--out", tmp_path / "run", "--epochs", 0, *TINY)
    assert code == 0
    assert listed == [str(photos)]
    assert str(tmp_path / "run" / REPORT) in error
    page = tmp_path / "run" / REPORT
    made = page.stat().st_mtime_ns
    code, _, error = call("train", "--resume", tmp_path / "run")
    assert (code, "finished: the model is in" in error, "as a page" in error) == (0, True, False)
    assert page.stat().st_mtime_ns == made
    page.unlink()
    assert call("train", "--resume", tmp_path / "run")[0] == 0
    assert page.exists()
    call("train", photos, "--out", tmp_path / "other", "--epochs", 0, "--no-report", *TINY)
    assert (tmp_path / "other" / "model.safetensors").exists()
    assert not (tmp_path / "other" / REPORT).exists()
