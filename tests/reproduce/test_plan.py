from importlib import util
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_train import write_run
from trees import make_cub

from conftest import draw_photos
from selftaught.data import find_benchmark
from selftaught.networks import backbones
from selftaught.reproduce import inputs
from selftaught.reproduce.folders import note_failure
from selftaught.reproduce.inputs import image_sources, weights_for
from selftaught.reproduce.jobs import Job, incomplete_data, make_jobs
from selftaught.reproduce.plan import Estimator, seconds_per_image
from selftaught.reproduce.quick import EMBEDDED, Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.tables import find_rows, find_table


def plan(table: str, data: Path, out: Path, *rows: str, **options: Any) -> list[Job]:
    found = find_table(table)
    return make_jobs(Request(found, find_rows(found, rows), data, out, **options))


def parted(root: Path) -> Path:
    for part in ("train", "test"):
        draw_photos(root / part, classes=4, photos=3)
    return root


def test_there_is_a_job_for_each_row_data_set_and_seed(tmp_path: Path) -> None:
    jobs = plan("table1", tmp_path, tmp_path / "out", "stml-bn512", "udml-ss-bn512", seeds=2)
    assert [(job.row.name, job.dataset, job.seed) for job in jobs] == [
        ("udml-ss-bn512", "cub", 0),  # the paper has it on no other
        ("udml-ss-bn512", "cub", 1),
        *[("stml-bn512", data, seed) for data in ("cub", "cars", "sop") for seed in (0, 1)],
    ]
    assert jobs[-1].folder == tmp_path / "out" / "runs" / "stml-bn512" / "sop" / "seed-1"


def test_a_plan_names_every_data_set_and_weights_file_that_is_missing(tmp_path: Path) -> None:
    (job,) = plan("scratch", tmp_path, tmp_path / "out", "stml")
    assert len(job.missing) == 1
    assert "Stanford Online Products" in job.missing[0]
    assert "Stanford_Online_Products.zip" in job.missing[0]
    job = plan("semi", tmp_path, tmp_path / "out", "stml-swav")[0]
    assert [word in " ".join(job.missing) for word in ("swav_resnet50.pth", "CUB-200-2011", "NABirds")] == [True] * 3
    assert not job.open
    (job,) = plan("methods", tmp_path, tmp_path / "out", "stml")
    assert "no train/ and test/" in job.missing[0]


def test_a_job_with_all_it_needs_is_open_and_knows_its_sources(tmp_path: Path) -> None:
    make_cub(tmp_path / "CUB_200_2011", classes=(1, 101))
    weights = tmp_path / "weights" / "googlenet.npz"
    assert "googlenet.npz" in plan("ablation", tmp_path, tmp_path / "out", "stml")[0].missing[0]
    weights.parent.mkdir()
    weights.touch()
    cub, cars = plan("ablation", tmp_path, tmp_path / "out", "without-momentum")
    assert cars.missing
    assert cub.open
    root = find_benchmark("cub", tmp_path)
    assert cub.arguments["images"] == cub.arguments["eval"] == f"cub:{root}"
    assert cub.arguments["weights"] == str(weights)
    assert (cub.arguments["momentum"], cub.arguments["seed"], cub.arguments["dim"]) == (0.0, 0, 512)
    assert cub.work == 90 * 2, "two images of the first hundred classes, in 90 epochs"
    (sentence,) = incomplete_data([cub, cars], tmp_path)
    assert "CUB-200-2011 is not complete" in sentence


def test_a_folder_of_ones_own_is_counted_and_halved(tmp_path: Path) -> None:
    data = parted(tmp_path / "mine")
    stml, half, semi = plan("methods", data, tmp_path / "out", "stml", "ms-half", "semi-stml", epochs=9)
    assert stml.arguments["images"] == f"folder:{data}"
    assert half.arguments["images"] == f"folder:{data}:train-a"
    assert semi.arguments["labeled"] == f"folder:{data}:train-a"
    assert semi.arguments["unlabeled"] == f"folder:{data}:train-b"
    assert "images" not in semi.arguments
    assert (stml.work, half.work) == (9 * 12, 9 * 6)
    assert semi.work == 9 * 6 + 9 * 12, "a supervised stage of as many epochs, then all images"


def test_shares_of_labeled_classes_are_parts_of_the_training_images(tmp_path: Path) -> None:
    data = parted(tmp_path / "mine")
    none, tenth, all_labels = plan("shares", data, tmp_path / "out", "stml-0", "slade-10", "ms-100", epochs=9)
    assert none.arguments["images"] == all_labels.arguments["images"] == f"folder:{data}"
    assert tenth.arguments["labeled"] == f"folder:{data}:train-a10"
    assert tenth.arguments["unlabeled"] == f"folder:{data}:train-b10"
    table = quick_table(find_table("shares"))
    assert len(table.rows) == len(find_table("shares").rows), "shares differ"
    jobs = {job.row.name: job for job in make_jobs(Request(table, table.rows, data, tmp_path / "q", quick=Quick()))}
    assert jobs["ms-25"].work == jobs["ms-50"].work // 2


def test_the_semi_supervised_table_pairs_the_data_sets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(inputs, "find_benchmark", lambda name, data: data / name)
    sources = image_sources("both", "cars", tmp_path, tmp_path)
    assert sources == {
        "labeled": f"cars:{tmp_path / 'cars'}",
        "unlabeled": f"compcars:{tmp_path / 'compcars'}",
        "eval": f"cars:{tmp_path / 'cars'}",
    }
    assert image_sources("labeled", "cars", tmp_path, tmp_path)["images"] == f"cars:{tmp_path / 'cars'}"


def test_another_backbone_needs_no_weights_file_but_swav_is_a_resnet50(tmp_path: Path) -> None:
    make_cub(tmp_path / "CUB_200_2011")
    assert plan("ablation", tmp_path, tmp_path / "out", "stml", backbone="small")[0].open
    (row,) = find_rows(find_table("semi"), ("ms-swav",))
    with pytest.raises(Exception, match="ResNet50"):
        weights_for(row, "small", tmp_path)
    (scratch,) = find_rows(find_table("scratch"), ("stml",))
    assert weights_for(scratch, "googlenet", tmp_path) == "none"


def test_a_missing_package_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    data = parted(tmp_path / "mine")
    stml, supervised = plan("methods", data, tmp_path / "out", "stml", "contrastive")
    assert stml.open
    assert supervised.missing == ("Contrastive needs pytorch-metric-learning: pip install 'selftaught[research]'",)


def test_what_is_finished_or_has_collapsed_is_not_open_and_other_failures_are(tmp_path: Path) -> None:
    data = parted(tmp_path / "mine")
    jobs = plan("methods", data, tmp_path / "out", "stml", "moco", "nce")
    write_run(jobs[0].folder)
    note_failure(jobs[1].folder, "it collapsed", final=True)
    note_failure(jobs[2].folder, "the disk was full", final=False)
    assert [job.open for job in jobs] == [False, False, True]


def test_what_has_a_result_is_finished_though_its_data_are_gone(tmp_path: Path) -> None:
    finished, collapsed, failed, begun = plan("methods", tmp_path, tmp_path / "out", "stml", "moco", "nce", "byol")
    write_run(finished.folder)
    note_failure(collapsed.folder, "it collapsed", final=True)
    note_failure(failed.folder, "the disk was full", final=False)
    begun.folder.mkdir(parents=True)
    (begun.folder / "settings.json").touch()
    states = [job.state for job in (finished, collapsed, failed, begun)]
    assert [state.status for state in states] == ["finished", "failed", "cannot be run", "cannot be run"]
    assert states[1].error == "it collapsed"
    assert "no train/ and test/" in states[3].error


def test_an_estimate_comes_from_finished_jobs_of_the_same_backbone(tmp_path: Path) -> None:
    data = parted(tmp_path / "mine")
    jobs = plan("methods", data, tmp_path / "out", "start", "stml", "moco", "ms-half", epochs=2, backbone="small")
    write_run(jobs[1].folder, epochs=2, seconds=6.0)
    estimator = Estimator(jobs, "cpu", pytest.fail)
    assert estimator.seconds(jobs[0]) == 0
    assert estimator.seconds(jobs[2]) == pytest.approx(12.0)
    assert estimator.seconds(jobs[3]) == pytest.approx(6.0), "half of the images"


def test_an_estimate_leaves_out_jobs_whose_timing_is_damaged(tmp_path: Path) -> None:
    data = parted(tmp_path / "mine")
    jobs = plan("methods", data, tmp_path / "out", "stml", "moco", "byol", epochs=2, backbone="small")
    for job in jobs[:2]:
        write_run(job.folder, epochs=2, seconds=6.0)
    (jobs[0].folder / "timing.jsonl").write_text("{")
    assert Estimator(jobs, "cpu", pytest.fail).seconds(jobs[2]) == pytest.approx(12.0)


def test_an_estimate_before_any_job_comes_from_timed_steps(tmp_path: Path) -> None:
    table = quick_table(find_table("ablation"))
    jobs = make_jobs(Request(table, table.rows, tmp_path, tmp_path, quick=Quick()))
    said: list[str] = []
    estimator = Estimator(jobs, "cpu", said.append)
    seconds = [estimator.seconds(job) for job in jobs]
    assert seconds[0] > 0
    assert len(set(seconds)) == 1
    assert len(said) == 1, "timed once"
    assert 0 < seconds_per_image("small", torch.device("cpu")) < 10


@pytest.mark.parametrize("reachable", [True, False])
def test_weights_of_the_hub_that_cannot_be_had_are_missing(
    reachable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backbones, "hub_reachable", lambda: reachable)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    backbones.weights_at_hand.cache_clear()
    (job,) = plan("semi", tmp_path, tmp_path / "out", "ms-imagenet", seeds=1)[:1]
    backbones.weights_at_hand.cache_clear()
    told = [need for need in job.missing if "ImageNet weights of resnet50" in need]
    assert bool(told) is not reachable


def test_a_quick_job_needs_nothing_and_stays_in_its_folder(tmp_path: Path) -> None:
    table = quick_table(find_table("semi"))
    jobs = make_jobs(Request(table, table.rows, tmp_path / "none", tmp_path / "out", quick=Quick()))
    assert all(job.open for job in jobs)
    assert {job.dataset for job in jobs} == {EMBEDDED}
    assert jobs[-1].arguments["labeled"] == f"folder:{tmp_path / 'out' / 'photos'}:train-a"
    assert "weights" not in jobs[0].arguments
