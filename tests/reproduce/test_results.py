import json
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_train import write_run
from PIL import Image

from selftaught.errors import SelftaughtError
from selftaught.reproduce.cells import collect
from selftaught.reproduce.folders import State, find_state, note_failure, read_scores, run_folder
from selftaught.reproduce.jobs import make_jobs
from selftaught.reproduce.quick import Quick, quick_table
from selftaught.reproduce.request import Request
from selftaught.reproduce.results import differences, write_results
from selftaught.reproduce.tables import find_rows, find_table
from selftaught.reproduce.text import plain


def request_for(table: str, out: Path, *rows: str, **options: Any) -> Request:
    found = find_table(table)
    return Request(found, find_rows(found, rows), out / "data", out, device="cpu", **options)


def test_a_result_is_the_last_epoch_and_the_best_one_stands_beside_it(tmp_path: Path) -> None:
    write_run(tmp_path, seed=1, epochs=3)
    run = read_scores(tmp_path)
    assert run.last["recall@1"] == pytest.approx(59.0)
    assert run.best["recall@1"] == pytest.approx(61.0)
    assert run.last["map@r"] == pytest.approx(29.5)
    assert "loss" not in run.last
    assert (run.epochs, run.seconds) == (3, 30.0)


def test_the_best_epoch_is_one_epoch_the_one_with_the_best_recall(tmp_path: Path) -> None:
    write_run(tmp_path)
    rows = [(1, 0.3, 0.9), (2, 0.5, 0.2), (3, 0.4, 0.6)]
    lines = [json.dumps({"epoch": epoch, "recall@1": recall, "map@r": other}) for epoch, recall, other in rows]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert read_scores(tmp_path).best == {"recall@1": pytest.approx(50.0), "map@r": pytest.approx(20.0)}


def test_without_epochs_the_start_is_the_result(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=0)
    assert read_scores(tmp_path).last["recall@1"] == pytest.approx(40.0)
    assert read_scores(tmp_path).best == {}


def test_epochs_that_were_not_evaluated_do_not_count(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=2)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    (tmp_path / "metrics.jsonl").write_text("\n".join(['{"epoch": 1, "loss": 2.0}', lines[1]]) + "\n")
    assert read_scores(tmp_path).best["recall@1"] == pytest.approx(58.0)


def test_cells_have_mean_and_deviation_over_seeds_beside_the_papers_number(tmp_path: Path) -> None:
    request = request_for("ablation", tmp_path)
    for seed in (0, 1, 2):
        write_run(run_folder(tmp_path, "stml", "cub", seed), seed)
    write_run(run_folder(tmp_path, "without-pairwise", "cars", 0))
    cells = collect(request)
    cell = cells["stml"]["cub"]["recall@1"]
    assert cell.mean == pytest.approx(59.0)
    assert cell.deviation == pytest.approx(statistics.stdev([58, 59, 60]))
    assert cell.best_mean == pytest.approx(61.0)
    assert cell.paper == 60.6
    single = cells["without-pairwise"]["cars"]["recall@1"]
    assert single.mean == pytest.approx(58.0)
    assert (single.deviation, single.paper) == (None, 45.0)
    assert cells["stml"]["cars"]["recall@1"].mean is None


def test_untrained_models_are_taken_from_the_run_that_measured_them(tmp_path: Path) -> None:
    request = request_for("methods", tmp_path)
    for seed, recall in ((0, 0.3), (1, 0.4)):
        run = run_folder(tmp_path, "start", "folder", seed)
        write_run(run, epochs=0)
        row = {"found_again": 0.9, "recall@1": recall, "map@r": 0.1, "r_precision": 0.2}
        (run / "models.json").write_text(json.dumps({"floor": "plain backbone", "models": {"plain backbone": row}}))
    cells = collect(request)
    assert cells["plain-floor"]["folder"]["recall@1"].last == {0: pytest.approx(30.0), 1: pytest.approx(40.0)}
    assert cells["plain-floor"]["folder"]["map@r"].mean == pytest.approx(10.0)
    assert cells["half-whitened-floor"]["folder"]["recall@1"].last == {}, "too few images for it"
    write_results(request, make_jobs(request))
    text = (tmp_path / "results.md").read_text()
    assert "| average pooling, cosine | 35.0 ± 7.1 |" in text
    assert "half-whitened" not in text
    others = '{"floor": "x", "models": {"x": {"found_again": 1}, "plain backbone": %s}}'
    wrong = ('{"recall@1": NaN}', '{"recall@1": [1]}', '{"recall@1": 1%s}' % ("0" * 400), "[1]")
    for damage in ("{", *(others % scores for scores in wrong)):
        (tmp_path / "runs" / "start" / "folder" / "seed-0" / "models.json").write_text(damage)
        assert collect(request)["plain-floor"]["folder"]["recall@1"].last == {1: pytest.approx(40.0)}


def test_tables_of_the_paper_have_rows_of_the_untrained_network(tmp_path: Path) -> None:
    request = request_for("table1", tmp_path)
    run = run_folder(tmp_path, "stml-bn512", "sop", 0)
    write_run(run)
    row = {"found_again": 0.9, "recall@1": 0.5, "map@r": 0.4, "recall@10": 0.6, "recall@100": 0.7}
    (run / "models.json").write_text(json.dumps({"floor": "half-whitened", "models": {"half-whitened": row}}))
    write_results(request, make_jobs(request))
    text = (tmp_path / "results.md").read_text()
    assert "| the same, half-whitened to 512 dimensions | BN | 50.0 | – | 60.0 | – | 70.0 | – |" in text
    for table in ("ssl", "ablation", "semi"):
        assert {row.floor for row in find_table(table).rows} >= {"plain backbone", "half-whitened, avg+max"}


def test_rows_that_are_not_run_say_why(tmp_path: Path) -> None:
    request = request_for("table1", tmp_path)
    write_results(request, [])
    text = (tmp_path / "results.md").read_text()
    assert "| TAC-CCL | G512 | not run | 57.5 |" in text
    assert "- TAC-CCL: its transforms" in text


def test_the_files_hold_numbers_provenance_and_jobs(tmp_path: Path) -> None:
    request = request_for("table1", tmp_path, "stml-g512", seeds=2, epochs=5)
    for seed in (0, 1):
        write_run(run_folder(tmp_path, "stml-g512", "sop", seed), seed)
    write_results(request, make_jobs(request))
    content = json.loads((tmp_path / "results.json").read_text("utf-8"))
    row = next(row for row in content["rows"] if row["name"] == "stml-g512")
    score = row["scores"]["sop"]["recall@1"]
    assert score["mean"] == pytest.approx(58.5)
    assert score["by_seed"]["1"] == {"last": pytest.approx(59.0), "best_on_test": pytest.approx(61.0)}
    assert score["paper"] == 65.3
    assert content["differences"] == {"epochs": {"recipe": [90], "here": [5]}}
    assert content["epochs"] == [5]
    assert content["comparable_with_paper"] is False
    assert {"torch", "selftaught", "python"} <= set(content["versions"])
    assert content["command"] == request.command
    assert "cpu" in content["device"]
    states = [(job["data"], job["seed"], job["status"]) for job in content["jobs"]]
    assert ("sop", 1, "finished") in states
    assert ("cub", 0, "cannot be run") in states

    page = (tmp_path / "results.md").read_text("utf-8")
    assert "| STML | G512 | 58.5 ± 0.7 (60.5) | 65.3 | 29.2 ± 0.4 (30.2) | 79.8 |" in page
    assert "| ROUL | G64 | not run | 52.0 | not run | 64.0 | not run | 74.5 |" in page, "with the paper's numbers"
    assert "| **Supervised** |" in page
    assert "epochs: 5, where the recipes have 90" in page
    assert "chosen by looking at them" in page
    assert "- stml-g512 on cub, seed 0; stml-g512 on cub, seed 1 cannot be run: " in page
    assert not list(tmp_path.glob(".*.tmp"))


def test_results_of_earlier_commands_stay_in_the_table(tmp_path: Path) -> None:
    write_run(run_folder(tmp_path, "stml", "cub", 4), 4)
    request = request_for("ablation", tmp_path, "without-pairwise")
    assert collect(request)["stml"]["cub"]["recall@1"].last == {4: pytest.approx(62.0)}


def note_of_damaged(file: str, content: str, out: Path) -> dict[str, Any]:
    """The note of a job after one of its run's files was damaged."""
    folder = run_folder(out, "stml", "cub", 0)
    write_run(folder)
    (folder / file).write_text(content)
    request = request_for("ablation", out, "stml")
    write_results(request, make_jobs(request))
    text = (out / "results.json").read_text("utf-8")
    assert "NaN" not in text
    note: dict[str, Any] = json.loads(text)["jobs"][0]
    return note


@pytest.mark.parametrize(
    "metrics",
    ["{", '{"epoch": 1, "recall@1": NaN}\n', '{"epoch": 1, "recall@1": 1%s}\n' % ("0" * 400), 100_000 * "["],
    ids=("cut", "no number", "too large", "too deep"),
)
def test_a_damaged_run_is_a_failure_and_not_an_error(tmp_path: Path, metrics: str) -> None:
    note = note_of_damaged("metrics.jsonl", metrics, tmp_path)
    assert note["status"] == "failed"
    assert "is damaged" in note["error"]


@pytest.mark.parametrize("damage", ["{", '{"epoch": 1}\n', '{"epoch": 1, "seconds": NaN}\n', "[]\n"])
def test_a_damaged_timing_counts_no_seconds(tmp_path: Path, damage: str) -> None:
    note = note_of_damaged("timing.jsonl", damage, tmp_path)
    assert (note["status"], note["seconds"]) == ("finished", 0.0)


@pytest.mark.skipif(os.name != "posix", reason="needs pipes")
@pytest.mark.parametrize("file", ["start.json", "metrics.jsonl", "settings.json"])
def test_a_pipe_among_the_files_of_a_run_is_not_waited_for(tmp_path: Path, file: str) -> None:
    write_run(tmp_path / "run")
    (tmp_path / "run" / file).unlink()
    os.mkfifo(tmp_path / "run" / file)
    with pytest.raises(SelftaughtError, match="is damaged"):
        read_scores(tmp_path / "run")


def test_a_mean_over_fewer_seeds_than_asked_for_says_so(tmp_path: Path) -> None:
    for name, seeds in (("stml", (0, 1, 2)), ("without-pairwise", (0, 2)), ("without-relaxed", (1,))):
        for seed in seeds:
            write_run(run_folder(tmp_path, name, "cub", seed), seed)
    request = request_for("ablation", tmp_path, seeds=3)
    page = plain(request.table, collect(request), "cub")
    assert "59.0 ± 1.0 (61.0)   60.6" in page, "all of them"
    assert "59.0 ± 1.4 (61.0), 2 of 3 seeds" in page
    assert "59.0 (61.0), 1 of 3 seeds" in page
    later = replace(request, seeds=1, rows=request.rows[:1])
    assert "2 of 3" not in plain(later.table, collect(later), "cub"), "two were all that was ever asked for"


def test_a_collapse_that_could_not_be_noted_any_more_is_a_failure_for_good(tmp_path: Path) -> None:
    folder = run_folder(tmp_path, "stml", "cub", 0)
    write_run(folder)
    (folder / "model.json").write_text('{"finished": true}')
    assert find_state(folder) == State("finished")
    (folder / "model.json").write_text('{"finished": false}')
    assert find_state(folder) == State("failed", f"training collapsed; see {folder}", final=True)
    request = request_for("ablation", tmp_path, "stml")
    job = make_jobs(request)[0]
    assert not job.open
    write_results(request, [job])
    note = json.loads((tmp_path / "results.json").read_text("utf-8"))["jobs"][0]
    assert (note["status"], note["error"]) == ("failed", f"training collapsed; see {folder}")
    note_failure(folder, "training collapsed in epoch 2", final=True)
    assert find_state(folder) == State("failed", "training collapsed in epoch 2", final=True)


def test_a_quick_table_has_no_column_of_the_papers(tmp_path: Path) -> None:
    table = quick_table(find_table("ablation"))
    request = Request(table, table.rows, tmp_path, tmp_path, quick=Quick())
    write_run(run_folder(tmp_path, "stml", "embedded", 0))
    write_results(request, make_jobs(request))
    page = (tmp_path / "results.md").read_text("utf-8")
    assert "paper |" not in page
    assert "cannot be compared with the paper's" in page
    assert "| STML | 58.0 (60.0) |" in page
    assert "w/o KL divergence" not in page, "nothing is known of it yet"


def test_a_command_without_options_changes_no_setting(tmp_path: Path) -> None:
    for table in ("table1", "scratch", "semi", "methods"):
        assert differences(request_for(table, tmp_path)) == {}
    assert differences(request_for("semi", tmp_path, "stml-swav", epochs=9))["supervised_epochs"]["here"] == [9]


def test_shares_are_drawn_with_the_points_there_are(tmp_path: Path) -> None:
    request = request_for("shares", tmp_path)
    write_results(request, [])
    nothing = (tmp_path / "shares.png").read_bytes()
    for name in ("stml-0", "stml-10", "ms-10", "ms-100"):
        for seed in (0, 1):
            write_run(run_folder(tmp_path, name, "folder", seed), seed)
    write_results(request, make_jobs(request))
    with Image.open(tmp_path / "shares.png") as picture:
        assert picture.size == (1050, 600)
    assert (tmp_path / "shares.png").read_bytes() != nothing


def test_sensitivity_is_drawn_and_written_down(tmp_path: Path) -> None:
    request = request_for("sensitivity", tmp_path)
    for name in ("default", "k-4", "k-20", "sigma-0.5"):
        write_run(run_folder(tmp_path, name, "cub", 0))
    write_results(request, make_jobs(request))
    lines = (tmp_path / "sensitivity.csv").read_text("utf-8").splitlines()
    assert lines[0] == "data,parameter,value,recall@1"
    assert lines[1:] == [
        "cub,k,4,58.0000",
        "cub,k,10,58.0000",
        "cub,k,20,58.0000",
        "cub,sigma,0.5,58.0000",
        "cub,sigma,3,58.0000",
    ]
    with Image.open(tmp_path / "sensitivity.png") as picture:
        assert picture.width > picture.height


def test_a_quick_sensitivity_is_drawn_too(tmp_path: Path) -> None:
    table = quick_table(find_table("sensitivity"))
    request = Request(table, table.rows, tmp_path, tmp_path, quick=Quick())
    write_run(run_folder(tmp_path, "k-6", "embedded", 0))
    write_results(request, make_jobs(request))
    assert "embedded,k,6,58.0000" in (tmp_path / "sensitivity.csv").read_text("utf-8")


def test_a_table_on_a_terminal_has_aligned_columns(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(run_folder(tmp_path, "stml-g512", "cub", seed), seed)
    request = request_for("table1", tmp_path)
    lines = plain(request.table, collect(request), "cub").splitlines()
    (line,) = (line for line in lines if "58.5" in line)
    assert line.split("  ")[0] == "STML"
    assert line.endswith("  81.5")
    assert "58.5 ± 0.7 (60.5)   60.6" in line
    assert "Supervised" in lines
    assert len({len(line) for line in lines if line not in ("Supervised", "Unsupervised")}) == 1
