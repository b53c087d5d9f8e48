"""Backbones that a function of one's own builds."""

import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import torch

from conftest import TINY, Call
from selftaught import Embedder, train
from selftaught.errors import UsageError
from selftaught.networks import build_backbone, is_backbone, is_factory

DOCS = Path(__file__).parents[2] / "docs" / "extending.md"
BAD = """
import torch
from torch import nn
from selftaught.networks import Preprocessing
number = 3
def raises(): raise KeyError("weights are\\nmissing")
def text(): return "network"
def pair(): return nn.Identity(), 224
def flat(): return nn.Linear(5, 5)
def needs(size): return nn.Identity()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to be in, with the module of the documentation."""
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[1]
    (tmp_path / "my_networks.py").write_text(code)
    (tmp_path / "bad_networks.py").write_text(BAD)
    (tmp_path / "broken_networks.py").write_text("import no_such_package")
    monkeypatch.chdir(tmp_path)
    path = list(sys.path)
    yield tmp_path
    assert sys.path == path
    for name in ("my_networks", "bad_networks", "broken_networks"):
        sys.modules.pop(name, None)


@pytest.fixture
def trained(here: Path, photos: Path) -> Path:
    train(photos, out=here / "run", epochs=1, **(TINY | {"backbone": "my_networks:tiny", "quiet": True}))
    return here / "run"


def test_the_commands_in_the_documentation_work(here: Path, photos: Path, call: Call) -> None:
    (here / "photos").symlink_to(photos)
    commands = re.findall(r"```bash\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[-1].splitlines()
    assert len(commands) == 3
    for command in commands:
        code, _, told = call(*shlex.split(command)[1:])
        assert code == 0, told
    model = json.loads((here / "run" / "model.json").read_text())
    assert (model["backbone"], model["own_backbone"]) == ("my_networks:tiny", False)
    assert model["preprocessing"]["size"] == 64


def test_every_way_to_a_model_finds_its_backbone_again(trained: Path, photos: Path, call: Call) -> None:
    sys.modules.pop("my_networks")
    model = Embedder.load(trained, "cpu")
    assert model.encode([next(photos.rglob("*.jpg"))]).shape == (1, 8)
    assert call("embed", trained, photos, "--out", "vectors.npy")[0] == 0
    assert call("embed", "my_networks:tiny", photos, "--out", "plain.npy")[0] == 0
    train(photos, out=trained.parent / "new", from_run=trained, epochs=0, dim=8, quiet=True, neighbors=2)
    (trained / "model.json").unlink()
    assert Embedder.load(trained, "cpu").description["epoch"] == 1


def test_a_model_whose_backbone_cannot_be_imported_here_says_what_to_do(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sys.modules.pop("my_networks", None)
    monkeypatch.chdir(trained)
    with pytest.raises(UsageError, match=r"^the backbone 'my_networks:tiny' .*run this in the folder that holds it$"):
        Embedder.load(trained, "cpu")


def test_its_weights_count_as_pretrained_unless_none_are_asked_for(here: Path) -> None:
    assert build_backbone("my_networks:tiny").pretrained
    assert not build_backbone("my_networks:tiny", "none").pretrained
    module = build_backbone("my_networks:tiny").module
    torch.save(module.state_dict(), here / "weights.pth")
    again = build_backbone("my_networks:tiny", str(here / "weights.pth"))
    assert all(map(torch.equal, module.state_dict().values(), again.module.state_dict().values()))


def test_only_names_of_functions_are_taken_for_them() -> None:
    assert all(map(is_factory, ("a:b", "package.module:function", "_a.b1:_c")))
    assert not any(
        map(is_factory, ("resnet50", "a:", ":b", "a:b:c", "a.:b", "1a:b", "cub:/data/CUB", "C:\\\\run", "a:b.c"))
    )
    assert is_backbone("package.module:function")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no_such_module:x", r"no_such_module cannot be imported \(ModuleNotFoundError"),
        ("broken_networks:x", r"broken_networks cannot be imported \(ModuleNotFoundError: .*no_such_package"),
        ("my_networks:other", "my_networks has no such function"),
        ("bad_networks:number", "has number, which is no function"),
        ("bad_networks:raises", r"raises\(\) failed \(KeyError: .*missing"),
        ("bad_networks:text", r"text\(\) must return a torch.nn.Module, .* not 'network'"),
        ("bad_networks:pair", r"pair\(\) must return"),
        ("bad_networks:flat", r"what it returns does not fit \(ValueError: the backbone Linear does not map"),
        ("bad_networks:needs", r"needs\(\) failed \(TypeError"),
    ],
)
def test_what_cannot_be_built_is_said_in_one_sentence(
    here: Path, photos: Path, call: Call, name: str, words: str
) -> None:
    with pytest.raises(UsageError, match=rf"the backbone '{name}' cannot be built: .*{words}") as caught:
        build_backbone(name)
    assert "\n" not in str(caught.value)
    code, _, told = call("train", photos, "--out", here / "run", "--backbone", name)
    assert (code, told.count("cannot be built")) == (2, 1)
    assert not (here / "run" / "settings.json").exists()


def test_a_downloaded_model_never_says_what_to_import(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda *_, **__: str(trained))
    module = build_backbone("my_networks:tiny").module
    sys.modules.pop("my_networks")
    with pytest.raises(UsageError, match="names my_networks:tiny as its backbone, and no code is run"):
        Embedder.load("someone/model", "cpu")
    assert "my_networks" not in sys.modules
    assert Embedder.load("someone/model", "cpu", module).dim == 8
    (trained / "model.json").unlink()
    with pytest.raises(UsageError, match="holds no finished model"):
        Embedder.load("someone/model", "cpu")
