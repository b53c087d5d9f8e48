"""Networks kept during a run, for the figures that show its course."""

import re
from dataclasses import dataclass
from pathlib import Path

import safetensors
import torch
from safetensors.torch import save

from selftaught.errors import SelftaughtError, one_line, printable
from selftaught.files import make_folder, open_regular, write_atomically
from selftaught.learners import STML, Learner
from selftaught.networks import HEADS, EmbeddingNetwork, Encoder, Preprocessing, build_backbone, linear_head
from selftaught.recipes import Settings
from selftaught.run_folder import SNAPSHOTS, read_record


@dataclass(frozen=True)
class Snapshot:
    """A run's networks after an epoch, ready to embed."""

    student: EmbeddingNetwork
    teacher: EmbeddingNetwork | None
    """STML's; other methods have none."""
    settings: Settings
    preprocessing: Preprocessing


def write_snapshot(run: Path, epoch: int, learner: Learner) -> None:
    """Keep the networks of a learner."""
    networks = {"student": learner.network} | ({"teacher": learner.teacher} if isinstance(learner, STML) else {})
    state = {
        f"{kind}.{name}": tensor.detach().cpu().contiguous()
        for kind, network in networks.items()
        for name, tensor in network.state_dict().items()
    }
    make_folder(run / SNAPSHOTS)
    about = {"head": learner.head, "normalize": str(learner.network.normalize)}
    write_atomically(_file(run, epoch), save(state, metadata=about))


def kept(run: Path) -> list[int]:
    """The epochs whose networks a run has kept, in order; 0 is before training."""
    found = [re.fullmatch(r"epoch-(\d+)\.safetensors", path.name) for path in (run / SNAPSHOTS).glob("*")]
    return sorted(int(match[1]) for match in found if match)


def load_snapshot(run: Path, epoch: int, device: torch.device) -> Snapshot:
    """Load a run's networks after an epoch that was kept."""
    file = _file(run, epoch)
    try:
        record = read_record(run)
        preprocessing = record.preprocessing
        if record.backbone is None or preprocessing is None or record.settings is None:
            raise ValueError("the run has not begun")
        with open_regular(file), safetensors.safe_open(file, "pt") as opened:
            state, about = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()  # noqa: SIM118
        networks = {}
        for kind in ("student", "teacher"):
            own = {name.removeprefix(f"{kind}."): t for name, t in state.items() if name.startswith(f"{kind}.")}
            if own:
                encoder, heads = Encoder(build_backbone(record.backbone, "none").module, preprocessing), {}
                if any(name.startswith("heads.f.") for name in own):
                    heads["f"] = HEADS[about["head"]](encoder.features, record.settings.dim)
                if "heads.g.bias" in own:
                    heads["g"] = linear_head(encoder.features, len(own["heads.g.bias"]))
                network = EmbeddingNetwork(encoder, heads, normalize=about["normalize"] == "True")
                network.load_state_dict(own)
                networks[kind] = network.to(device).eval()
        return Snapshot(networks["student"], networks.get("teacher"), record.settings, preprocessing)
    except (OSError, safetensors.SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise SelftaughtError(f"cannot load the networks in {printable(file)}: {one_line(error)}") from None


def _file(run: Path, epoch: int) -> Path:
    return run / SNAPSHOTS / f"epoch-{epoch:03d}.safetensors"
