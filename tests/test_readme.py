import re
import shutil
from pathlib import Path

import pytest

from conftest import draw_photos

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def test_the_two_commands_and_the_picture_are_there() -> None:
    assert "make demo" in README
    assert "make test" in README
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / picture).is_file()


def test_what_the_readme_links_to_is_there() -> None:
    for target, anchor in re.findall(r"\]\(([^)#:]+?)(?:#([^)]*))?\)", README):
        assert (ROOT / target).exists(), target
        if anchor:
            titles = re.findall(r"^#+ (.*)", (ROOT / target).read_text("utf-8"), re.MULTILINE)
            assert anchor in {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize(("page", "first", "count"), [("README.md", 0, 1), ("docs/extending.md", 2, 2)])
def test_the_code_on_the_page_runs(
    page: str, first: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos = draw_photos(tmp_path / "photos", classes=6, photos=4)
    for name in ("a.jpg", "b.jpg"):
        shutil.copy(photos / "class 0" / "0.jpg", photos / name)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text("utf-8"), re.DOTALL)[first:]
    assert len(blocks) == count
    for block in blocks:
        quick = block.replace("epochs=30", 'epochs=1, backbone="small"')
        exec(compile(quick, page, "exec"), {})
