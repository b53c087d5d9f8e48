import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torchvision.models as zoo
from safetensors.torch import save_file
from torch import Tensor, nn

from selftaught.errors import SelftaughtError, UsageError
from selftaught.networks import build_backbone
from selftaught.networks.weights import load_named, read_state


class Trap:
    """Writes a file when unpickled."""

    def __init__(self, sprung: Path) -> None:
        self.sprung = sprung

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.write_text, (self.sprung, "sprung"))


@pytest.mark.parametrize("form", ["zip", "legacy", "pickle", "npz", "in an array"])
@pytest.mark.filterwarnings("error")
def test_code_in_a_file_is_refused_and_not_run(tmp_path: Path, form: str) -> None:
    sprung = tmp_path / "sprung"
    content: dict[str, Any] = {"conv.weight": torch.zeros(1), "trap": Trap(sprung)}
    file = tmp_path / ("w.npz" if form == "npz" else "w.pth")
    if form == "pickle":
        file.write_bytes(pickle.dumps(content))
    elif form == "npz":
        np.savez(file, trap=np.array([Trap(sprung)], dtype=object))
    elif form == "in an array":
        torch.save({"trap": np.array([Trap(sprung)], dtype=object)}, file)
    else:
        torch.save(content, file, _use_new_zipfile_serialization=form == "zip")
    with pytest.raises(SelftaughtError, match=r"cannot read weights from .*w\.") as caught:
        read_state(file)
    assert "\n" not in str(caught.value)
    assert not sprung.exists()
    if form == "zip":  # the trap itself works
        torch.load(file, weights_only=False)
        assert sprung.exists()


def test_arrays_may_be_rebuilt_only_while_a_file_is_read(tmp_path: Path) -> None:
    torch.save({"a": np.ones(2)}, tmp_path / "w.pth")
    before = torch.serialization.get_safe_globals()
    assert read_state(tmp_path / "w.pth")["a"].tolist() == [1, 1]
    assert set(torch.serialization.get_safe_globals()) == set(before)  # it keeps them in no order


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", ">f4"])
@pytest.mark.parametrize("form", ["npz", "pth"])
def test_arrays_of_every_float_type_become_float32(tmp_path: Path, kind: str, form: str) -> None:
    array: Any = np.array([[1.5, -2.0]], dtype=kind)
    file = tmp_path / f"w.{form}"
    if form == "npz":
        np.savez(file, **{"a.weight": array})
    else:
        torch.save({"a": {"weight": array}}, file)
    tensor = read_state(file)["a.weight"]
    assert tensor.dtype == torch.float32
    assert tensor.tolist() == [[1.5, -2.0]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_tensors_of_every_float_type_become_float32_and_counts_stay(tmp_path: Path, dtype: torch.dtype) -> None:
    save_file({"a": torch.ones(2, dtype=dtype), "n": torch.tensor(3)}, tmp_path / "w.safetensors")
    state = read_state(tmp_path / "w.safetensors")
    assert (state["a"].dtype, state["n"].dtype) == (torch.float32, torch.int64)


@pytest.mark.parametrize("suffix", [".h5", ".caffemodel", ".npy"])
def test_formats_that_are_not_read_are_to_be_converted(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"googlenet{suffix}"
    file.write_bytes(b"something")
    with pytest.raises(UsageError, match=rf"not read from {suffix} files.*googlenet.*to \.npz"):
        build_backbone("googlenet", str(file))


def test_a_damaged_archive_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "w.npz").write_bytes(b"PK\x03\x04 and no more")
    with pytest.raises(SelftaughtError, match="it is damaged"):
        read_state(tmp_path / "w.npz")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(SelftaughtError, match="cannot read weights"):
        read_state(tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "none.pth")
    with pytest.raises(SelftaughtError, match="no tensors"):
        read_state(tmp_path / "none.pth")


@pytest.mark.parametrize("name", ["resnet18", "torchvision.resnet18"])
def test_swav_s_checkpoint_loads_without_its_heads(tmp_path: Path, name: str) -> None:
    model = zoo.resnet18(weights=None)
    state = {k: v for k, v in model.state_dict().items() if not k.startswith("fc.")}
    heads = {f"projection_head.{k}": torch.ones(3) for k in ("0.weight", "1.running_mean", "3.bias")}
    swav = state | heads | {"prototypes.weight": torch.ones(3, 2), "prototypes.prototypes0.weight": torch.ones(3, 2)}
    torch.save({f"module.{k}": v for k, v in swav.items()}, tmp_path / "swav.pth.tar")
    loaded = build_backbone(name, str(tmp_path / "swav.pth.tar")).module.state_dict()
    assert all(torch.equal(loaded[f"model.{k}"], v) for k, v in state.items())


def test_torchvision_s_and_timm_s_resnets_take_each_other_s_files(tmp_path: Path) -> None:
    model: Any = timm.create_model("resnet18", pretrained=False)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    save_file(state, tmp_path / "timm.safetensors")
    loaded = build_backbone("torchvision.resnet18", str(tmp_path / "timm.safetensors")).module.state_dict()
    assert all(torch.equal(loaded[f"model.{k}"], v) for k, v in state.items() if not k.startswith("fc."))


@pytest.mark.parametrize(("saved", "wanted"), [("bn_inception", "googlenet"), ("googlenet", "bn_inception")])
def test_weights_of_another_network_are_called_so(tmp_path: Path, saved: str, wanted: str) -> None:
    save_file(build_backbone(saved, "none").module.state_dict(), tmp_path / "w.safetensors")
    with pytest.raises(SelftaughtError) as caught:
        build_backbone(wanted, str(tmp_path / "w.safetensors"))
    text = str(caught.value)
    assert f"are those of another network than the backbone {wanted!r}" in text
    assert "missing: " in text or "of another shape: " in text
    assert "unexpected: " in text
    assert len(text) < 800
    assert "\n" not in text


def _load(state: dict[str, Tensor]) -> None:
    load_named(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), state, Path("w.pth"), "tiny")


def test_what_does_not_fit_is_named() -> None:
    state = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).state_dict()
    _load({name: tensor for name, tensor in state.items() if "tracked" not in name})
    with pytest.raises(
        SelftaughtError, match=r"w\.pth do not fit the backbone 'tiny'; of another shape: 0\.bias \(5 in"
    ):
        _load(state | {"0.bias": torch.zeros(5)})
    with pytest.raises(SelftaughtError, match=r"not finite: 1\.running_var$"):
        _load(state | {"1.running_var": torch.tensor([1, 2, torch.inf, 3])})
