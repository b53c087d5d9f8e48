"""A network to start from instead of a backbone by name: that of another run, or of the run's own first stage."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor, nn

from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.learners import Learner
from selftaught.networks import Pooling, Preprocessing
from selftaught.run_folder import CHECKPOINT, SETTINGS, TRAINED, read_record
from selftaught.training.checkpoint import load_checkpoint


@dataclass(frozen=True)
class Start:
    """A network to start from, and everything needed to build it."""

    backbone: str
    preprocessing: Preprocessing
    pooling: Pooling
    pretrained: bool
    network: Mapping[str, Tensor]
    reason: str


def read_start(stage: Path) -> Start:
    """The network that the stage in this folder has learned."""
    checkpoint, record = load_checkpoint(stage), read_record(stage)
    if checkpoint is None:
        raise SelftaughtError(
            f"the supervised stage in {printable(stage)} has no checkpoint left: "
            f"delete {printable(stage.parent)} and start again"
        )
    assert record.backbone is not None
    assert record.preprocessing is not None
    prefix, learner = "network.", checkpoint.parts["learner"]
    network = {name.removeprefix(prefix): tensor for name, tensor in learner.items() if name.startswith(prefix)}
    reason = "weights from the checkpoint"
    assert record.settings is not None
    pooling = record.settings.pooling
    assert pooling is not None
    return Start(record.backbone, record.preprocessing, pooling, bool(record.pretrained), network, reason)


def read_origin(run: str, own: nn.Module | None) -> Start:
    """The network that another run has learned, with all its heads.

    If that run kept no checkpoint, or serves the untrained model because training made it worse, it is the served one.
    """
    folder = Path(run)
    if own is not None and (folder / SETTINGS).is_file() and read_record(folder).own_backbone is None:
        raise UsageError(f"{printable(run)} has a backbone by name: leave the module out")
    model = Embedder.load(run, "cpu", own)
    about = model.description
    if (folder / CHECKPOINT).exists() and not (folder / TRAINED).exists():
        network = read_start(folder).network
    else:
        kept = about["settings"].get("deliver") == "f"  # otherwise the served head is not a trained one
        state = model.network.state_dict()
        network = {name: tensor for name, tensor in state.items() if kept or not name.startswith("heads.")}
    inputs = replace(model.preprocessing, use_size=model.preprocessing.size)
    pooling = model.network.encoder.pooling
    return Start(about["backbone"], inputs, pooling, True, network, f"with the network of {printable(run)}")


def begin_with(learner: Learner, start: Start) -> None:
    """Copy the network of a start into a learner's networks; heads of other sizes stay as they are."""
    own = learner.network.state_dict()
    fitting = {name: own[name].shape == tensor.shape for name, tensor in start.network.items() if name in own}
    if not all(fitting.get(name) for name in own if name.startswith("encoder.")):
        raise UsageError(f"the backbone {printable(start.backbone)} is not the one that the network to start from has")
    learner.start_from(own | {name: start.network[name] for name, fits in fitting.items() if fits})
