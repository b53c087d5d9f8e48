"""The house: a room uses only rooms above it, and only what their doors name."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent.parent / "src" / "selftaught"
FLOORS = (
    ("errors",),
    ("files", "parallel", "console", "launched"),
    ("devices",),
    ("retrieval",),
    ("method", "networks", "data"),
    ("recipes", "report", "vector_log"),
    ("learners", "model_files", "encoding"),
    ("run_folder",),
    ("sharing",),
    ("embedder",),
    ("vectors",),
    ("training",),
    ("index", "export", "duplicates", "named_groups", "reproduce"),
    ("explore", "run_report"),
    ("cli",),
)
"""The rooms from top to bottom. Rooms of one floor do not use each other."""
UPWARDS = {("embedder", "training"), ("embedder", "index")}
"""Training loads a run that is not finished, an index is searched: both are imported when that is asked for."""
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


class Import(NamedTuple):
    file: str
    room: str
    other: str
    module: str


def imports() -> Iterator[Import]:
    """Every import of one room by another, also those within functions and for types alone."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE)
        room = file.parts[0].removesuffix(".py")
        if room in ("__init__", "__main__"):  # the public names of the whole house
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                package, _, rest = module.partition(".")
                if package == "selftaught" and rest and rest.partition(".")[0] != room:
                    yield Import(str(file), room, rest.partition(".")[0], module)


IMPORTS = list(imports())


def test_every_room_has_its_floor() -> None:
    rooms = {path.name.removesuffix(".py") for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert rooms - {"__init__", "__main__", "__pycache__", "py.typed"} <= set(FLOOR)
    assert len(IMPORTS) > 100


def test_a_room_uses_only_rooms_above_it() -> None:
    wrong = [found for found in IMPORTS if FLOOR[found.other] >= FLOOR[found.room]]
    assert {(found.room, found.other) for found in wrong} == UPWARDS, wrong


def test_a_room_is_entered_by_its_door() -> None:
    assert not [found for found in IMPORTS if found.module.count(".") > 1]


def test_a_door_names_only_what_is_used_elsewhere() -> None:
    named, used = set(), set()
    for path in (file for file in SOURCE.parents[1].rglob("*.py") if ".venv" not in file.parts):
        room = f"selftaught.{path.parent.name}" if path.parent.parent == SOURCE else ""
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                is_door = path.name == "__init__.py" and node.module.startswith(f"{room}.") and room
                names = {alias.name for alias in node.names}
                used |= {(node.module, name) for name in names if node.module != room}
                named |= {(room, name) for name in names} if is_door else set()
    assert len(named) > 200
    assert not named - used
