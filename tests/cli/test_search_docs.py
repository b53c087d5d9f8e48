"""The commands and the code of docs/search.md do what the page says."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from conftest import Call, draw_photos

pytest.importorskip("lancedb")
PAGE = (Path(__file__).parents[2] / "docs" / "search.md").read_text("utf-8")


def test_what_the_page_on_search_shows_runs(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "more-photos", "queries"):
        draw_photos(tmp_path / name, classes=2, photos=3)
    shutil.copytree("photos/class 0", "photos/old")
    shutil.copy("queries/class 0/0.jpg", "query.jpg")
    commands = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    for line in commands:
        words = shlex.split(line.replace("tf_efficientnet_lite0", "small"), comments=True)
        if words[0] == "selftaught" and "push" not in words:
            code, _, error = call(*words[1:])
            assert code == 0, (line, error)
    assert Path("search.png").is_file()
    assert len(Path("found.csv").read_text().splitlines()) == 1 + 7 * 10
    (code_block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code_block, "search.md", "exec"), {})
