"""The pages do what they show; the index names every page."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from conftest import Call, draw_photos

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("duplicates.md", "evaluate.md", "groups.md", "many-machines.md", "search.md", "train.md")
QUICK = ["--backbone", "small", "--epochs", "1", "--batch-size", "8", "--neighbors", "2", "--dim", "8"]
QUICK += ["--set", "workers=0", "--no-report"]


@pytest.mark.parametrize("page", PAGES)
def test_what_the_page_shows_runs(
    page: str, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lancedb")
    monkeypatch.chdir(tmp_path)
    for name, photos in {"photos": 6, "new-photos": 6, "more-photos": 3, "labeled": 4, "queries": 2}.items():
        draw_photos(tmp_path / name, classes=3, photos=photos)
    shutil.copytree("photos/class 0", "photos/old")
    shutil.copy("queries/class 0/0.jpg", "query.jpg")
    files = sorted(path.relative_to("labeled") for path in Path("labeled").rglob("*.jpg"))
    labels = "".join(f"{file},{number % 3}\n" for number, file in enumerate(files))
    Path("labels.csv").write_text(f"path,label\n{labels}")
    if page != "train.md":
        shutil.copytree(run, "run")
    text = (DOCS / page).read_text("utf-8").replace("tf_efficientnet_lite0", "run")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    ours = [shlex.split(line, comments=True)[1:] for line in commands if line.startswith("selftaught")]
    assert ours
    for words in ours:
        quick = [] if "--resume" in words else QUICK[2:] if "--from" in words else QUICK
        words += {"train": quick, "advise": ["--backbone", "small"]}.get(words[0], [])
        if "push" not in words:
            code, _, error = call(*words)
            assert code == 0, (words, error)
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        if "import ray" not in block:  # which is not installed for tests
            exec(compile(block, page, "exec"), {})
    if page == "search.md":
        assert Path("search.png").is_file()
        assert len(Path("found.csv").read_text().splitlines()) == 1 + 7 * 10


def test_the_index_names_every_page_and_pictures_are_there() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    pages = {path.name for path in DOCS.glob("*.md")} - {"README.md"}
    assert pages <= set(re.findall(r"\]\(([\w.-]+\.md)\)", index)), "every page is named"
    for page in DOCS.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert "://" in target or (DOCS / target).exists(), (page.name, target)
