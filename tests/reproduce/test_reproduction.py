import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_train import FakeTrain, write_run

from conftest import draw_photos
from selftaught.console import Reporter
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError
from selftaught.reproduce import reproduce_table, reproduction
from selftaught.reproduce.jobs import Job, make_jobs
from selftaught.reproduce.plan import Estimator
from selftaught.reproduce.reproduction import run_jobs
from selftaught.reproduce.request import Request, begin, check_begun
from selftaught.reproduce.tables import EVERY_METHOD, find_rows


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for part in ("train", "test"):
        draw_photos(tmp_path / "mine" / part, classes=2, photos=2)
    return tmp_path / "mine"


def request_for(data: Path, *rows: str, **options: Any) -> Request:
    out = data.parent / "out"
    return Request(EVERY_METHOD, find_rows(EVERY_METHOD, rows), data, out, device="cpu", backbone="small", **options)


def go(request: Request, monkeypatch: pytest.MonkeyPatch, fake: FakeTrain) -> tuple[int, list[Job]]:
    monkeypatch.setattr(reproduction, "train", fake)
    jobs = make_jobs(request)
    reporter = Reporter(quiet=True)
    return run_jobs(request, jobs, Estimator(jobs, "cpu", reporter.say), reporter), jobs


def results(request: Request) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((request.out / "results.json").read_text("utf-8"))
    return content


def test_jobs_run_one_after_the_other_and_keep_no_checkpoint(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, fake = request_for(data, "start", "stml", seeds=2), FakeTrain()
    failed, jobs = go(request, monkeypatch, fake)
    assert failed == 0
    assert [call["out"] for call in fake.calls] == [job.folder for job in jobs]
    assert [call["seed"] for call in fake.calls] == [0, 1, 0, 1]
    assert all(call["device"] == "cpu" for call in fake.calls)
    assert all(job.state.status == "finished" for job in jobs)
    assert not list(request.out.rglob("checkpoint.pt"))
    assert all((job.folder / "model.json").exists() for job in jobs)


def test_finished_jobs_are_skipped_and_begun_ones_resumed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request, fake = request_for(data, "stml", "moco", "nce"), FakeTrain()
    begin(request)
    stml, moco, _ = (job.folder for job in make_jobs(request))
    write_run(stml)
    (stml / "checkpoint.pt").touch()  # killed before it could be deleted
    moco.mkdir(parents=True)
    (moco / "settings.json").write_text("{}")
    go(request, monkeypatch, fake)
    assert [call.get("resume") for call in fake.calls] == [moco, None]
    assert set(fake.calls[0]) == {"resume", "device", "quiet"}, "a resumed run keeps its settings"
    assert not (stml / "checkpoint.pt").exists()


def test_a_job_that_fails_does_not_stop_the_others(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(data, "stml", "moco", "byol", "nce")
    collapse, full = Collapse("training collapsed in epoch 1"), SelftaughtError("the disk is full")
    fake = FakeTrain({"stml": collapse, "moco": full, "byol": torch.OutOfMemoryError()})
    failed, jobs = go(request, monkeypatch, fake)
    assert failed == 3
    assert [job.state.status for job in jobs] == ["failed", "failed", "failed", "finished"]
    notes = {note["row"]: note for note in results(request)["jobs"]}
    assert notes["stml"]["error"] == "training collapsed in epoch 1"
    assert notes["byol"]["error"] == "out of GPU memory"
    page = (request.out / "results.md").read_text("utf-8")
    assert "moco on folder, seed 0 failed: the disk is full" in page
    assert "| STML | failed | failed | failed |" in page

    fake = FakeTrain()
    failed, jobs = go(request, monkeypatch, fake)
    resumed = [call.get("resume") for call in fake.calls]
    assert resumed == [jobs[1].folder, jobs[2].folder], "a collapse would come again"
    assert failed == 1
    assert jobs[1].state.status == "finished"


def test_an_error_that_nobody_thought_of_stops_only_its_own_job(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(data, "stml", "moco")
    failed, jobs = go(request, monkeypatch, FakeTrain({"stml": RuntimeError("no kernel\n  for this device")}))
    assert failed == 1
    assert [job.state.status for job in jobs] == ["failed", "finished"]
    assert results(request)["jobs"][0]["error"] == "RuntimeError: no kernel for this device"
    assert jobs[0].open, "it may be gone the next time"


def test_what_failed_only_after_training_is_not_trained_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(data, "stml")

    def full(_folder: Path) -> None:
        raise OSError("read-only")

    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "drop_checkpoints", full)
        failed, jobs = go(request, monkeypatch, FakeTrain())
    assert failed == 1
    fake = FakeTrain()
    assert go(request, monkeypatch, fake)[0] == 0
    assert not fake.calls
    assert jobs[0].state.status == "finished"


def test_an_interruption_says_how_to_go_on(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(data, "stml", "moco", seeds=2)
    for stop in (Interrupted("stopped in epoch 1"), KeyboardInterrupt()):
        with pytest.raises(Interrupted, match="go on with: selftaught reproduce methods --rows stml") as stopped:
            go(request, monkeypatch, FakeTrain({"moco": stop}))
        assert "--seeds 2 --backbone small --device cpu" in str(stopped.value)
    fake = FakeTrain()
    go(request, monkeypatch, fake)
    assert [("resume" in call) for call in fake.calls] == [True, False], "the first was begun, stml is finished"


def test_results_are_written_after_every_job(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = request_for(data, "stml", "moco")
    with pytest.raises(Interrupted):
        go(request, monkeypatch, FakeTrain({"moco": Interrupted("")}))
    assert [note["status"] for note in results(request)["jobs"]] == ["finished", "to run"]


def test_a_folder_goes_on_only_with_the_options_it_was_begun_with(data: Path) -> None:
    request = request_for(data, epochs=5)
    assert not check_begun(request)
    begin(request)
    assert check_begun(replace(request, seeds=3, rows=request.rows[:1]))
    with pytest.raises(UsageError, match="was begun with --epochs 5, not with --epochs 6"):
        begin(replace(request, epochs=6))
    with pytest.raises(UsageError, match="was begun with --backbone small, not with the backbone of the recipe"):
        begin(replace(request, backbone=None))
    with pytest.raises(UsageError, match="was begun with --data"):
        begin(replace(request, data=data.parent))
    other = data.parent / "full"
    other.mkdir()
    (other / "mine").touch()
    with pytest.raises(UsageError, match="not empty"):
        begin(replace(request, out=other))
    with pytest.raises(UsageError, match="is a file"):
        begin(replace(request, out=other / "mine"))
    for damage in ("[", "[]", 100_000 * "["):
        (request.out / "begun.json").write_text(damage)
        with pytest.raises(SelftaughtError, match="damaged"):
            begin(request)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
def test_a_pipe_in_place_of_the_note_of_a_table_is_not_waited_for(data: Path) -> None:
    request = request_for(data)
    request.out.mkdir()
    os.mkfifo(request.out / "begun.json")
    with pytest.raises(SelftaughtError, match="cannot be read"):
        begin(request)


def test_a_finished_table_is_shown_again_though_its_data_are_gone(
    data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    request = request_for(data, "stml")
    go(request, monkeypatch, FakeTrain())
    shutil.rmtree(data)
    reproduce_table("methods", ["stml"], data, request.out, 1, None, "small", "cpu", quick=False, plan=False)
    printed = capsys.readouterr().out
    assert "1 job: 0 to run in about 0 s, 1 finished, 0 cannot be run" in printed
    assert "58.0 (60.0)" in printed
    assert "[1]" not in printed, "nothing is needed"


def test_a_finished_run_that_lost_epochs_counts_as_failed_instead_of_being_shown(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for(data, "nce", epochs=2)
    failed, (job,) = go(request, monkeypatch, FakeTrain())
    assert failed == 0
    (job.folder / "settings.json").write_text('{"settings": {"epochs": 2}}')
    metrics = job.folder / "metrics.jsonl"
    metrics.write_text(metrics.read_text().splitlines()[0] + "\n")
    failed, _ = go(request, monkeypatch, FakeTrain())
    assert failed == 1
    assert "is damaged" in (request.out / "results.md").read_text()
