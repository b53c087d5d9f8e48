import errno
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from typer.main import get_command

from conftest import Call, draw_photos
from selftaught import Embedder
from selftaught.cli.commands import SECTIONS, app
from selftaught.cli.main import main

TINY = ["--backbone", "small", "--dim", "8", "--batch-size", "8", "--neighbors", "2", "--set", "workers=0"]


def failure(call: Call, *words: object) -> tuple[int, str]:
    """Exit code and message of a command that must fail in one line."""
    code, _, error = call(*words)
    lines = error.strip().splitlines()
    assert code != 0
    assert len(lines) == 1
    assert lines[0].startswith("selftaught: ")
    return code, lines[0]


def test_train_evaluate_embed_and_search_in_a_row(call: Call, photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    code, _, log = call("train", photos, "--out", run, "--epochs", 1, "--eval", photos, *TINY)
    assert code == 0
    assert "epoch 1/1" in log
    assert "Recall@1" in log
    assert "batch size 8: as asked for" in log

    code, table, _ = call("evaluate", run, photos)
    assert code == 0
    assert all(word in table for word in ("Recall@1", "Recall@8", "MAP@R", "R-Precision", "24 queries"))
    code, text, _ = call("evaluate", run, photos, "--json", "-")
    scores = json.loads(text)
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert scores["recall@1"] == pytest.approx(last["recall@1"], abs=0.05), "but for a near tie"
    call("evaluate", run, photos, "--json", tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text()) == scores

    assert call("embed", run, photos, "--out", tmp_path / "v.parquet")[0] == 0
    table_of = pq.read_table(tmp_path / "v.parquet")
    assert call("embed", run, photos, "--out", tmp_path / "v.npy")[0] == 0
    vectors = np.load(tmp_path / "v.npy")
    paths = json.loads((tmp_path / "v.json").read_text())["paths"]
    assert table_of["path"].to_pylist() == paths
    assert np.array_equal(np.array(table_of["vector"].to_pylist(), np.float32), vectors)
    expected = Embedder.load(run).encode([photos / path for path in paths])
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)

    query = photos / paths[5]
    outputs = []
    for within in (photos, tmp_path / "v.parquet", tmp_path / "v.npy"):
        code, found, _ = call("search", run, query, "--in", within, "-k", 5, "--out", tmp_path / "sheet.png")
        assert code == 0
        outputs.append([line.split()[:3] for line in found.splitlines()[:5]])
        assert str(query) not in found, "the query itself is not among its neighbors"
    assert outputs[0] == outputs[1] == outputs[2]
    distances = np.sort(np.linalg.norm(vectors - vectors[5], axis=1))[1:6]
    np.testing.assert_allclose([float(row[2]) for row in outputs[0]], distances, atol=2e-4)
    with Image.open(tmp_path / "sheet.png") as sheet:
        assert sheet.width > sheet.height // 2 > 100


def test_help_names_every_option_people_look_for(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    options = "backbone weights dim recipe epochs batch-size neighbors lr seed device eval resume out set"
    code, text, _ = call("train", "--help")
    assert code == 0
    assert all(f"--{name}" in text for name in options.split())
    assert "--set help" in text
    assert "default: 512" in text


def test_help_fits_its_lines_and_gives_flags_no_value(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    todo: list[list[str]] = [[]]
    for words in todo:
        usage, _, text = call(*words, "--help")[1].partition("\n")
        assert "bool" not in text
        assert "..." not in text, "no sentence is cut"
        if "COMMAND" in usage:
            todo += [[*words, name] for name in re.findall(r"^  (\w+)  +[A-Z]", text, re.MULTILINE)]
    assert ["train"] in todo
    assert ["index", "sync"] in todo


def test_the_help_begins_with_three_commands_and_has_each_command_once(call: Call) -> None:
    _, text, _ = call("--help")
    assert re.findall(r"^  selftaught (\w+)", text, re.MULTILINE)[:3] == ["explore", "train", "search"]
    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(get_command(app).commands)  # type: ignore[attr-defined]
    assert all(f"\n{task}:\n" in text for task in SECTIONS)


@pytest.mark.parametrize("words", [[], ["index"], ["data"]])
def test_without_a_command_the_help_is_shown_as_it_is(call: Call, words: list[str]) -> None:
    code, _, log = call(*words)
    assert code == 2
    assert log.splitlines() == call(*words, "--help")[1].splitlines()


def test_misuse_exits_with_2_and_names_the_nearest(call: Call, photos: Path, run: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    cases: list[tuple[list[Any], str]] = [
        (["trian", photos], "train"),
        (["train", photos, "--out", out, "--bckbone", "x"], "--backbone"),
        (["train", photos, "--out", out, "--recipe", "offical"], "official"),
        (["train", photos, "--out", out, "--backbone", "resnet_18"], "resnet18"),
        (["train", photos, "--out", out, "--backbone", "dinov2"], "'vit_base_patch14_dinov2'"),
        (["train", photos, "--out", out, "--backbone", "dinov2-small"], "did you mean 'vit_small_patch14_dinov2' or"),
        (["train", photos, "--out", out, "--backbone", "qqqqqq"], "a name of timm, such as 'resnet50'"),
        (["train", photos, "--out", out, "--backbone", "torchvision.resnet_18"], "'torchvision.resnet18'"),
        (["train", photos, "--out", out, "--method", "simclr"], "stml"),
        (["train", photos, "--out", out, "--set", "sigmma=1"], "sigma"),
        (["train", photos, "--out", out, "--epochs", "many"], "--epochs"),
        (["train", photos, "--out", out, "--device", "tpu9"], "tpu9"),
        (["train", photos, "--out", out, "--batch-size", "4", "--neighbors", "8"], "batch_size"),
        (["train", photos, "--out", out, "--batch-size", "30", "--backbone", "small"], "24 images"),
        (["train", photos], "--out"),
        (["train", "0.tar", "1.tar", "--out", out], "put a pattern of shards in quotes"),
        (["train", tmp_path / "missing", "--out", out], "no folder"),
        (["train", photos, "--out", run], "--resume"),
        (["train", "--resume", tmp_path], "no run to resume"),
        (["train", "--resume", run, "--lr", "1e-5"], "resumed run"),
        (["evaluate", tmp_path / "missing", photos], "no run"),
        (["evaluate", tmp_path, photos], "no model"),
        (["evaluate", "dinov2", photos], "'vit_base_patch14_dinov2'"),
        (["evaluate", "", photos], "an argument is empty"),
        (["search", run, photos / "class 0" / "0.jpg", "--in", ""], "--in is empty"),
        (["search", run, "", "--in", photos], "an argument is empty"),
        (["search", run, photos, "--in", photos, "--json", out, "--csv", out], "name one file"),
        (["index", "remove", tmp_path, ""], "an argument is empty"),
        (["report", run, "--out="], "--out is empty"),
        (["embed", run, photos, "--out", tmp_path / "v.npy", "--device", "cpu:5"], "no device"),
        (["embed", run, photos, "--out", tmp_path / "v.npy", "--size", "0"], "between 1 and"),
        (["evaluate", run, photos, "--scales", "7"], "scales must be 1, 2 or 3"),
        (["embed", run, photos, "--out", tmp_path / "v.txt"], ".parquet"),
        (["embed", run, photos, "--out", tmp_path / "no" / "v.npy"], "no folder"),
        (["search", run, photos / "x.jpg", "--in", photos, "-k", "0"], "search --help)"),
        (["index", run, photos], "Missing option '--out' (see"),
        (["dedup", photos], "Missing argument 'IMAGES' of selftaught dedup [OPTIONS] {RUN|NAME} {IMAGES} (see"),
        (["search", tmp_path / "gone.index", photos / "class 0" / "0.jpg"], "there is no run or index"),
    ]
    for words, hint in cases:
        code, message = failure(call, *words)
        assert (code, hint in message) == (2, True), message
    assert not (out / "settings.json").exists()


def test_bad_content_exits_with_1(call: Call, photos: Path, run: Path, tmp_path: Path) -> None:
    empty, lone, flat, single = (tmp_path / name for name in ("empty", "lone", "flat", "single"))
    for folder in (empty, lone, flat):
        folder.mkdir()
    Image.new("RGB", (50, 50)).save(lone / "a.png")
    Image.new("RGB", (50, 50)).save(flat / "a.png")
    draw_photos(single, classes=3, photos=1)
    draw_photos(tmp_path / "one", classes=1, photos=8)
    (tmp_path / "broken.jpg").write_text("no")
    (tmp_path / "v.parquet").write_text("no")
    cases: list[tuple[list[Any], str]] = [
        (["train", empty, "--out", tmp_path / "a", *TINY], "no images"),
        (["train", lone, "--out", tmp_path / "b", *TINY], "one image"),
        (["train", photos, "--out", tmp_path / "c", "--eval", flat, *TINY], "in no class folder"),
        (["evaluate", run, flat], "in no class folder"),
        (["evaluate", run, single], "no class has two images"),
        (["evaluate", run, tmp_path / "one"], "8 images in"),
        (["train", photos, "--out", tmp_path / "d", "--eval", tmp_path / "one", *TINY], "are of one class (class 0)"),
        (["search", run, tmp_path / "broken.jpg", "--in", photos, "--out", tmp_path / "s.png"], "not an image"),
        (["search", run, tmp_path / "gone.jpg", "--in", photos, "--out", tmp_path / "s.png"], "no such file"),
        (["search", run, tmp_path / "gone.jpg", "--in", empty], "no such file"),
        (["search", run, photos / "class 0" / "0.jpg", "--in", tmp_path / "v.parquet"], "no vectors"),
    ]
    for words, hint in cases:
        code, message = failure(call, *words)
        assert (code, hint in message) == (1, True), message
    assert not (tmp_path / "s.png").exists()


def test_classes_with_a_single_image_are_excluded_and_counted(call: Call, run: Path, tmp_path: Path) -> None:
    labeled = draw_photos(tmp_path / "labeled", classes=3, photos=2)
    (labeled / "lonely").mkdir()
    Image.new("RGB", (40, 40), "red").save(labeled / "lonely" / "x.png")
    code, text, _ = call("evaluate", run, labeled, "--json", "-")
    scores = json.loads(text)
    assert (code, scores["queries"], scores["excluded"], scores["classes"]) == (0, 6, 1, 4)
    assert "1 image excluded" in call("evaluate", run, labeled)[1]


def test_a_broken_photo_beside_class_folders_is_left_out_like_any_other(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    labeled = shutil.copytree(photos, tmp_path / "labeled")
    for group in ("a", "b"):
        shutil.copytree(photos, labeled / group)
    before = json.loads(call("evaluate", run, labeled, "--level", "leaf", "--json", "-")[1])
    (labeled / "broken.jpg").write_text("no image")
    code, text, log = call("evaluate", run, labeled, "--json", "-")
    assert (code, "left out broken.jpg: not an image" in log) == (0, True), log
    for name in ("images", "classes", "queries", "excluded"):  # the photos have copies: which is nearer is rounding
        assert json.loads(text)[name] == before[name]
    code, _, log = call("train", photos, "--out", tmp_path / "run", "--eval", labeled, "--epochs", 0, *TINY)
    assert (code, "left out 1 image that cannot be read" in log) == (0, True), log
    shutil.copy(photos / "class 0" / "0.jpg", labeled / "stray.jpg")
    assert "labeled has images in no class folder" in failure(call, "evaluate", run, labeled)[1]


def test_the_level_of_class_folders_or_a_file_of_labels_can_be_chosen(call: Call, run: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    for group in ("a", "b"):
        draw_photos(images / group, classes=3, photos=2)
    (tmp_path / "labels.csv").write_text(
        "path,label\n" + "".join(f"{p.relative_to(images).as_posix()},{p.stem}\n" for p in images.rglob("*.jpg"))
    )
    words = ["evaluate", run, images, "--json", "-"]
    _, leaf, log = call(*words)
    assert "--level top" in log, "which folders name the classes is said where it matters"
    _, top, _ = call(*words, "--level", "top")
    _, given, _ = call(*words, "--labels", tmp_path / "labels.csv")
    assert [json.loads(text)["classes"] for text in (leaf, top, given)] == [6, 2, 2]
    assert failure(call, *words, "--level", "middle")[0] == 2


def test_the_plain_backbone_is_measured_beside_a_model_made_of_it(call: Call, photos: Path, tmp_path: Path) -> None:
    name = "tf_efficientnet_lite0"
    paths = [str(path) for path in sorted(photos.rglob("*.jpg"))]
    Embedder.load(name, "cpu", size=64).whiten(paths).save(tmp_path / "model")
    words = ["evaluate", tmp_path / "model", photos, "--device", "cpu"]
    code, table, _ = call(*words, "--json", tmp_path / "scores.json")
    assert code == 0
    assert "plain backbone" in table
    both = json.loads((tmp_path / "scores.json").read_text())
    alone = json.loads(call("evaluate", name, photos, "--device", "cpu", "--size", 64, "--json", "-")[1])
    assert both["plain_backbone"] == alone["plain_backbone"]
    assert "plain_backbone" not in json.loads(call(*words, "--no-floor", "--json", "-")[1])


def test_the_untrained_model_of_a_run_is_measured_beside_it_unless_it_is_served(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    untrained = tmp_path / "untrained"
    Embedder.plain("small", "cpu").save(untrained)
    for name, served in (("trained", run), ("floor", untrained)):
        shutil.copytree(served, tmp_path / name)
        shutil.copytree(untrained, tmp_path / name / "floor", dirs_exist_ok=True)
    alone, trained, floor = (
        json.loads(call("evaluate", tmp_path / name, photos, "--json", "-")[1])
        for name in ("untrained", "trained", "floor")
    )
    assert trained["without_training"] == {column: alone[column] for column in trained["without_training"]}
    assert "without_training" not in floor
    _, text, told = call("evaluate", tmp_path / "trained", photos)
    assert "points may be equally good" in text
    assert "to compare: without training" in told


def test_what_is_measured_beside_a_whitened_run_is_whitened_too(
    call: Call, run: Path, photos: Path, tmp_path: Path
) -> None:
    shutil.copytree(run, tmp_path / "run")
    Embedder.plain("small", "cpu").save(tmp_path / "run" / "floor")
    both, alone = (
        json.loads(call("evaluate", place, photos, "--whiten", "--json", "-")[1])
        for place in (tmp_path / "run", tmp_path / "run" / "floor")
    )
    assert both["without_training"] == {column: alone[column] for column in both["without_training"]}


def test_unreadable_images_are_left_out_and_listed(call: Call, run: Path, tmp_path: Path) -> None:
    images = draw_photos(tmp_path / "images", classes=6, photos=4)
    (images / "class 0" / "bad.jpg").write_text("no")
    code, _, log = call("embed", run, images, "--out", tmp_path / "v.npy")
    assert code == 0
    assert "bad.jpg" in log
    assert "bad.jpg" in (tmp_path / "v.skipped.csv").read_text()
    assert len(np.load(tmp_path / "v.npy")) == 24
    (images / "class 1" / "worse.jpg").touch()
    code, _, log = call("embed", run, images, "--out", tmp_path / "w.npy")
    assert (code, "--allow-skipped" in log) == (1, True)
    assert not (tmp_path / "w.npy").exists()
    assert call("embed", run, images, "--out", tmp_path / "w.npy", "--allow-skipped")[0] == 0


def test_odd_names_come_through_every_command(call: Call, run: Path, tmp_path: Path) -> None:
    images = tmp_path / "a folder 🚗"
    images.mkdir()
    names = ["with space.jpg", 'quote\'s "here".png', "emoji 🚙.webp", "new\nline.bmp"]
    for i, name in enumerate(names):
        Image.new("RGB", (40, 40), (60 * i, 0, 0)).save(images / name)
    assert call("embed", run, images, "--out", tmp_path / "v.parquet")[0] == 0
    assert sorted(pq.read_table(tmp_path / "v.parquet")["path"].to_pylist()) == sorted(names)
    code, found, _ = call("search", run, images / names[3], "--in", images, "--out", tmp_path / "s.png")
    assert code == 0
    assert len(found.splitlines()) == 4, "three neighbors and the sheet, each on one line"


def test_an_unexpected_error_is_one_line_too(
    call: Call, run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object, **__: object) -> None:
        raise ZeroDivisionError("first\nsecond")

    monkeypatch.setattr(Embedder, "load", explode)
    code, message = failure(call, "evaluate", run, photos)
    assert (code, "ZeroDivisionError: first second" in message) == (1, True)
    cpu = RuntimeError("[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried")
    for error in (torch.OutOfMemoryError("x"), cpu, MemoryError()):
        monkeypatch.setattr(Embedder, "load", lambda *_, e=error, **__: (_ for _ in ()).throw(e))
        message = failure(call, "evaluate", run, photos)[1]
        assert "out of " in message
        assert "--batch-size" in message
    others = {"Could not determine home directory.": "set HOME", "can't start new thread": "raise ulimit -u"}
    for text, advice in others.items():
        monkeypatch.setattr(Embedder, "load", lambda *_, t=text, **__: (_ for _ in ()).throw(RuntimeError(t)))
        assert advice in failure(call, "evaluate", run, photos)[1]


def test_a_closed_output_breaks_nothing(run: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["search", run, photos / "class 0" / "0.jpg", "--in", photos, "--json", "-"]
    monkeypatch.setattr(sys, "argv", ["selftaught", *map(str, words)])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        patch.setattr(sys, "stderr", None)
        with pytest.raises(SystemExit) as ended:
            main()
        for stream in (sys.stdout, sys.stderr):
            stream.close()
    assert ended.value.code == 0


def test_a_reader_that_is_gone_is_no_error_to_tell(photos: Path) -> None:
    words = [sys.executable, "-m", "selftaught", "data", "check", str(photos)]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait()) == (b"", 1)


def test_a_full_disk_while_photos_are_drawn_names_the_folder(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("selftaught.cli.demo.make_products", full)
    code, message = failure(call, "demo", "--out", tmp_path / "demo")
    assert (code, f"{tmp_path / 'demo'}: No space left on device" in message) == (1, True)


def test_a_demo_killed_while_photos_are_drawn_can_be_given_again(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "demo"
    drawing = (
        "from selftaught.data import make_products; import os;"
        f"make_products({str(folder / 'photos')!r}, products=2, photos=2, advance=lambda _: os._exit(9))"
    )
    folder.mkdir()
    assert subprocess.run([sys.executable, "-c", drawing], check=False).returncode == 9
    assert list(folder.iterdir())

    def drawn(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "was reached")

    monkeypatch.setattr("selftaught.cli.demo.make_products", drawn)
    assert "was reached" in failure(call, "demo", "--out", folder)[1]
    assert list(folder.iterdir()) == []


def test_a_notebooks_backend_and_an_ascii_terminal_break_nothing(run: Path, tmp_path: Path) -> None:
    images = tmp_path / "ünï"
    images.mkdir()
    for number, name in enumerate(("a", "b", "ö")):
        Image.new("RGB", (40, 40), (60 * number, 0, 0)).save(images / f"{name}.png")
    backend = {"MPLBACKEND": "module://matplotlib_inline.backend_inline", "PYTHONIOENCODING": "ascii"}
    words = ["search", run, images / "a.png", "--in", images, "--out", tmp_path / "s.png"]
    done = subprocess.run(
        [sys.executable, "-m", "selftaught", *map(str, words)],
        env=os.environ | backend,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xf6.png" in done.stdout


@pytest.mark.parametrize("module", ["typer", "selftaught.cli.commands", "torch", "numpy", "timm"])
def test_ctrl_c_while_modules_are_imported_is_one_line(module: str, run: Path, photos: Path) -> None:
    program = f"""
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from selftaught.cli import main
main()
"""
    words = [sys.executable, "-c", program, "evaluate", str(run), str(photos)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "selftaught: interrupted\n")


def test_a_seed_that_cannot_be_leaves_no_folder(call: Call, tmp_path: Path) -> None:
    for seed in ("-5", "1" + "0" * 30, "x"):
        assert failure(call, "demo", "--out", tmp_path / "demo", "--seed", seed)[0] == 2
        assert not (tmp_path / "demo").exists()


def test_demo_shows_before_and_after(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from selftaught.cli import demo

    monkeypatch.setattr(demo, "PRODUCTS", 16)
    monkeypatch.setattr(demo, "PHOTOS", 4)
    monkeypatch.setattr(demo, "SETTINGS", demo.SETTINGS | {"epochs": 1, "batch_size": 8, "workers": 0})
    code, text, _ = call("demo", "--out", tmp_path / "demo")
    assert code == 0
    assert "before training" in text
    assert "after training" in text
    assert str(tmp_path / "demo" / "report.html") in text
    page = (tmp_path / "demo" / "report.html").read_text("utf-8")
    assert all(word in page for word in ("Without training", "After training", "✓", "✗"))
    assert failure(call, "demo", "--out", tmp_path / "demo")[0] == 2


def test_the_help_of_every_command_is_there_at_once() -> None:
    """Without torch and its company, which take seconds."""
    heavy = (
        "import sys; from selftaught.cli.commands import SECTIONS, app\n"
        "for name in sum(SECTIONS.values(), ()): app([name, '--help'], standalone_mode=False)\n"
        "print({'torch', 'timm', 'lightning_fabric', 'numpy'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    assert said.count("Usage:") == len(get_command(app).commands)  # type: ignore[attr-defined]
    assert said.endswith("set()\n")


def test_commands_that_use_a_model_do_not_wait_for_what_only_training_needs() -> None:
    modules = ", ".join(f"selftaught.cli.{name}" for name in ("cluster", "dedup", "embed", "index", "search"))
    heavy = f"import sys, {modules}; print({{'lightning_fabric', 'transformers'}} & set(sys.modules))"
    said = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True, check=True).stdout
    assert said == "set()\n"
