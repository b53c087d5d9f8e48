import json
from functools import partial
from pathlib import Path

import pytest
from filelock import FileLock

from conftest import Call
from selftaught.errors import Collapse
from selftaught.reproduce import reproduction
from selftaught.reproduce.quick import Quick


@pytest.fixture
def reproduce(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Call:
    """Run ``selftaught reproduce`` in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return partial(call, "reproduce")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel1"], "did you mean 'table1'"),
        (["ablation", "--rows", "without-pairwize"], "did you mean 'without-pairwise'"),
        (["table1", "--rows", "stml-g64,roul-g64"], "only the paper's numbers"),
        (["table1", "--rows", "roul-g64", "--quick"], "only the paper's numbers"),
        (["table1", "--rows", ""], "--rows is empty"),
        (["table1", "--rows", ","], "--rows names no row"),
        (["ablation", "--seeds", 0], "--seeds"),
        (["ablation", "--quick", "--device", "cuda:99"], "cuda:99"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(reproduce: Call, words: list[object], said: str) -> None:
    code, _, error = reproduce(*words)
    assert code == 2
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_a_plan_says_what_is_missing_and_writes_nothing(reproduce: Call, tmp_path: Path) -> None:
    code, plan, _ = reproduce("semi", "--plan", "--seeds", 2)
    assert code == 0
    assert "STML (MS) R50-512, SwAV on cars, seed 1: cannot be run, see [" in plan
    assert "40 jobs: 0 to run in about 0 s, 0 finished, 40 cannot be run" in plan
    for need in (
        "CUB_200_2011.tgz",
        "NABirds is not in data",
        "CompCars is not in data",
        "data/weights/swav_resnet50.pth (or .safetensors)",
    ):
        assert plan.count(need) == 1
    assert not list(tmp_path.iterdir())


def test_without_data_nothing_is_run(reproduce: Call, tmp_path: Path) -> None:
    code, plan, error = reproduce("ablation")
    assert code == 1
    assert "14 cannot be run" in plan
    assert error == "selftaught: nothing can be run: the plan says what is missing\n"
    assert not list(tmp_path.iterdir())


def test_a_quick_row_is_drawn_trained_and_shown_and_then_left_as_it_is(
    reproduce: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(reproduction, "Quick", partial(Quick, products=16, photos=8, epochs=1))
    code, out, error = reproduce("scratch", "--quick", "--rows", "stml", "--device", "cpu")
    assert (code, "[1/1] stml: STML on drawn photos, seed 0" in error) == (0, True)
    assert "1 job: 1 to run in about" in out
    assert "Drawn product photos" in out
    assert "cannot be compared with the paper's" in out
    folder = tmp_path / "reproduced" / "scratch-quick"
    scores = json.loads((folder / "results.json").read_text())["rows"][-1]["scores"]["embedded"]
    assert 0 < scores["recall@1"]["mean"] <= 100
    assert not list(folder.rglob("checkpoint.pt"))

    monkeypatch.setattr(reproduction, "train", pytest.fail)
    code, out, _ = reproduce("scratch", "--quick", "--rows", "stml", "--device", "cpu")
    assert code == 0
    assert "1 job: 0 to run in about 0 s, 1 finished, 0 cannot be run" in out
    code, _, error = reproduce("scratch", "--quick", "--rows", "stml", "--epochs", 3)
    assert code == 2
    assert "was begun with the epochs of the recipe, not with --epochs 3" in error


def test_a_failed_job_is_told_at_the_end_and_in_the_next_plan(reproduce: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def collapse(**_arguments: object) -> None:
        raise Collapse("training collapsed in epoch 1")

    monkeypatch.setattr(reproduction, "Quick", partial(Quick, products=4, photos=2))
    monkeypatch.setattr(reproduction, "train", collapse)
    code, _, error = reproduce("ablation", "--quick", "--rows", "stml")
    assert code == 1
    assert error.splitlines()[-1].startswith("selftaught: 1 of 1 jobs failed: reproduced/ablation-quick/results.md")
    _, plan, _ = reproduce("ablation", "--quick", "--rows", "stml", "--plan")
    assert "failed before (training collapsed in epoch 1); delete reproduced/ablation-quick/runs/stml" in plan


def test_a_second_one_on_the_same_folder_is_refused(reproduce: Call, tmp_path: Path) -> None:
    (tmp_path / "reproduced").mkdir()
    with FileLock(tmp_path / "reproduced" / ".ablation-quick.lock"):
        code, out, error = reproduce("ablation", "--quick", "--rows", "stml")
    assert (code, "another process is writing reproduced/ablation-quick" in error) == (2, True)
    assert "results" not in out
