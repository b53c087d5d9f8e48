"""Semi-supervised training (Section 4.2): a supervised stage, then STML on all images, starting from its weights.

The first stage is a run of its own in the run's folder. The second is the run itself.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from selftaught.files import make_folder
from selftaught.learners import settings_for
from selftaught.run_folder import CHECKPOINT, SETTINGS, SUPERVISED, RunRecord, is_finished, read_record, write_record
from selftaught.training.images import RunImages


@dataclass(frozen=True)
class Stage:
    """One training from a record to a model. Most runs have a single stage."""

    folder: Path
    record: RunRecord
    images: RunImages
    collection: Path
    """The folder around all images of the run, whose decoded images the stages share."""
    starts_from: Path | None = None
    """The folder of the stage that it takes its network from."""
    title: str = ""


def plan_stages(run: Path, record: RunRecord, images: RunImages, write: bool) -> list[Stage]:
    """The stages of a run that are not yet trained, in order; ``write``: the folder of its first stage may be made."""
    root, folder = images.training.root, run / SUPERVISED
    if images.labeled is None:
        return [Stage(run, record, images, root)]
    second = Stage(
        run, record, images, root, folder, "stage 2 of 2: learning from all images, starting from those weights"
    )
    if (run / CHECKPOINT).exists() or is_finished(folder):
        return [second]
    if (folder / SETTINGS).exists():
        own = read_record(folder)
    else:
        epochs, rate = record.requested.supervised_epochs, record.requested.supervised_lr
        rates = {} if rate is None else {"lr": rate, "head_lr": rate}
        supervised = settings_for(
            record.requested, "multi-similarity", both_heads=True, epochs=epochs, snapshots=0, **rates
        )
        own = replace(record, images=record.labeled, labeled=None, unlabeled=None, requested=supervised)
        if write:
            make_folder(folder)
            write_record(folder, own)
    first = replace(images, training=images.labeled, labeled=None)
    return [Stage(folder, own, first, root, title="stage 1 of 2: learning from the labels"), second]
