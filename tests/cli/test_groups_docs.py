"""The commands of docs/duplicates.md and docs/groups.md run."""

import re
import shlex
from pathlib import Path

import pytest

from conftest import Call, draw_photos

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["duplicates.md", "groups.md"])
def test_what_the_page_shows_runs(
    page: str, call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("photos", "new-photos"):
        draw_photos(tmp_path / name, classes=3, photos=12)
    blocks = re.findall(r"```sh\n(.*?)```", (DOCS / page).read_text("utf-8"), re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.splitlines()]
    ours = [words[1:] for words in commands if words[0] == "selftaught"]
    assert ours
    for words in ours:
        code, _, error = call(*(run if word == "tf_efficientnet_lite0" else word for word in words))
        assert code == 0, (words, error)
