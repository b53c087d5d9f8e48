"""What a run has learned so far: the network that another run or stage starts from, the model of an unfinished run."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, one_line, printable, raise_if_out_of_memory
from selftaught.learners import Learner, build_learner
from selftaught.model_files import describe
from selftaught.networks import EmbeddingNetwork, Encoder, Pooling, Preprocessing, build_backbone
from selftaught.run_folder import CHECKPOINT, SETTINGS, TRAINED, read_record
from selftaught.training.checkpoint import Checkpoint, load_checkpoint
from selftaught.training.readout import whitened_head


@dataclass(frozen=True)
class Start:
    """A network to start from, and everything needed to build it."""

    backbone: str
    preprocessing: Preprocessing
    pooling: Pooling
    pretrained: bool
    network: Mapping[str, Tensor]
    reason: str


def read_start(stage: Path, checkpoint: Checkpoint | None = None) -> Start:
    """The network that the stage in this folder has learned; ``checkpoint``: its last state, if that is known."""
    checkpoint, record = checkpoint or load_checkpoint(stage), read_record(stage)
    if checkpoint is None:
        raise SelftaughtError(
            f"the supervised stage in {printable(stage)} has no checkpoint left: "
            f"delete {printable(stage.parent)} and start again"
        )
    assert record.backbone is not None
    assert record.preprocessing is not None
    assert record.settings is not None
    assert record.settings.pooling is not None
    prefix, learner = "network.", checkpoint.parts["learner"]
    return Start(
        record.backbone,
        record.preprocessing,
        record.settings.pooling,
        bool(record.pretrained),
        network={name.removeprefix(prefix): tensor for name, tensor in learner.items() if name.startswith(prefix)},
        reason="weights from the checkpoint",
    )


def read_origin(run: str, own: nn.Module | None) -> tuple[Start, Embedder]:
    """The network that another run has learned, with all its heads, and its model.

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
    return Start(about["backbone"], inputs, pooling, True, network, f"with the network of {printable(run)}"), model


def begin_with(learner: Learner, start: Start) -> None:
    """Copy the network of a start into a learner's networks; heads of other sizes stay as they are."""
    own = learner.network.state_dict()
    fitting = {name: own[name].shape == tensor.shape for name, tensor in start.network.items() if name in own}
    if not all(fitting.get(name) for name in own if name.startswith("encoder.")):
        raise UsageError(f"the backbone {printable(start.backbone)} is not the one that the network to start from has")
    learner.start_from(own | {name: start.network[name] for name, fits in fitting.items() if fits})


def load_unfinished(run: Path, own: nn.Module | None = None) -> Embedder:
    """The model of a run's last checkpoint, on the CPU; its description says which epoch that is."""
    record, checkpoint = read_record(run), load_checkpoint(run)
    if checkpoint is None:
        raise UsageError(
            f"there is no model in {printable(run)} yet, not even a checkpoint: selftaught train --resume "
            f"{printable(run)}"
        )
    if own is None and record.own_backbone is not None:
        raise UsageError(
            f"the run {printable(run)} has a backbone of your own: load it with Embedder.load(run, backbone=module)"
        )
    settings, state, start = record.settings, checkpoint.state, read_start(run, checkpoint)
    assert settings is not None
    try:
        module = own if own is not None else build_backbone(start.backbone, "none").module
        encoder = Encoder(module, start.preprocessing, bool(settings.freeze_batch_norm), start.pooling)
        # Parts that only training needs, such as a proxy for each class, are not taken from the checkpoint.
        learner = build_learner(encoder, settings, len(state.files), torch.arange(len(state.files)) % 2)
        learner.start_from(start.network)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise_if_out_of_memory(error)
        reason = printable(one_line(error))
        raise SelftaughtError(f"{printable(checkpoint.file)} does not fit its run: {reason}") from None
    # The wide head is used unwhitened, since whitening needs the embeddings of all images.
    wide = whitened_head(learner, settings, len(state.files))
    head = learner.network.heads[wide or "f"]
    network = EmbeddingNetwork(encoder, {"f": head}, bool(wide) or learner.network.normalize)
    description = describe(
        network,
        backbone=start.backbone,
        own_backbone=record.own_backbone is not None,
        dim=head.out_features if isinstance(head, nn.Linear) else settings.dim,
        head=learner.head,
        settings=asdict(settings),
    )
    return Embedder(network, description | {"finished": False, "epoch": state.epoch, "epochs": settings.epochs})
