"""The model of a run that is not finished, from its last checkpoint."""

from dataclasses import asdict
from pathlib import Path

import torch
from torch import nn

from selftaught.embedder import Embedder
from selftaught.errors import SelftaughtError, UsageError, is_out_of_memory, one_line, printable
from selftaught.learners import build_learner
from selftaught.model_files import describe
from selftaught.networks import EmbeddingNetwork, Encoder, build_backbone
from selftaught.run_folder import read_record
from selftaught.training.checkpoint import load_checkpoint
from selftaught.training.readout import whitened_head
from selftaught.training.start import read_start


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
    settings, state, start = record.settings, checkpoint.state, read_start(run)
    assert settings is not None
    try:
        module = own if own is not None else build_backbone(start.backbone, "none").module
        encoder = Encoder(module, start.preprocessing, bool(settings.freeze_batch_norm), start.pooling)
        # Parts that only training needs, such as a proxy for each class, are not taken from the checkpoint.
        learner = build_learner(encoder, settings, len(state.files), torch.arange(len(state.files)) % 2)
        learner.start_from(start.network)
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        if is_out_of_memory(error):
            raise
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
