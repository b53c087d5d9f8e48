import re
import shutil
from pathlib import Path

import pytest

from conftest import draw_photos

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")


def test_the_two_commands_and_the_picture_are_there() -> None:
    assert "make demo" in README
    assert "make test" in README
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (Path(__file__).parent.parent / picture).is_file()


def test_the_code_in_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(photos / "class 0" / "0.jpg", photos / name)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        quick = block.replace("epochs=30", 'epochs=1, backbone="small"')
        exec(compile(quick, "README.md", "exec"), {})
