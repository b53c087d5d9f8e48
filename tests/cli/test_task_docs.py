"""The pages on training, evaluating and many machines do what they show; the index names every page."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from conftest import Call, draw_photos

DOCS = Path(__file__).parents[2] / "docs"
QUICK = ["--backbone", "small", "--epochs", "1", "--batch-size", "8", "--neighbors", "2", "--dim", "8"]
QUICK += ["--set", "workers=0", "--no-report"]


@pytest.mark.parametrize("page", ["train.md", "evaluate.md", "many-machines.md"])
def test_what_the_page_shows_runs(
    page: str, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "new-photos", "labeled"):
        draw_photos(tmp_path / name, classes=4, photos=4)
    shutil.copy("photos/class 0/0.jpg", "query.jpg")
    files = sorted(path.relative_to("labeled") for path in Path("labeled").rglob("*.jpg"))
    Path("labels.csv").write_text(
        "path,label\n" + "".join(f"{file},{number % 3}\n" for number, file in enumerate(files))
    )
    if page != "train.md":
        shutil.copytree(run, "run")
    text = (DOCS / page).read_text("utf-8")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    assert commands
    for line in commands:
        words = shlex.split(line)[1:]
        if "--resume" not in words:
            quick = QUICK[2:] if "--from" in words else QUICK
            words += {"train": quick, "advise": ["--backbone", "small"]}.get(words[0], [])
        code, _, error = call(*words)
        assert code == 0, (line, error)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "import ray" not in block:  # which is not installed for tests
            exec(compile(block, page, "exec"), {})


def test_the_index_names_every_page_and_pictures_are_there() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([\w.-]+\.md)\)", index)), "every page is named"
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert "://" in target or (DOCS / target).exists(), (page.name, target)
