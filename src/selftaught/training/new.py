"""A run that is to be started: everything that can be wrong with the request is found before anything is written."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from selftaught.data import absolute, open_images
from selftaught.embedder import choose_device
from selftaught.errors import UsageError, printable
from selftaught.files import new_folder
from selftaught.learners import make_settings
from selftaught.recipes import Settings
from selftaught.training.prepare import SKIPPED, class_numbers, open_training_images
from selftaught.training.processes import check_device
from selftaught.training.saved import SETTINGS


def new_run(
    images: str | os.PathLike[str] | None,
    labeled: str | os.PathLike[str] | None,
    unlabeled: str | os.PathLike[str] | None,
    out: str | os.PathLike[str] | None,
    recipe: str | None,
    changes: dict[str, Any],
) -> tuple[Path, dict[str, Any], Settings]:
    """A new run folder, what is to be saved of it, and its settings; all that can be checked at once is."""
    if (labeled is None) != (unlabeled is None) or (labeled is not None and images is not None):
        raise UsageError(
            "semi-supervised training needs both --labeled and --unlabeled, and no other folder of images beside them"
        )
    if (images is None and labeled is None) or out is None:
        raise UsageError("training needs a folder of images and an --out folder for the run, or --resume RUN")
    requested = make_settings(recipe or ("official" if labeled is None else "semi"), **changes)
    if labeled is None and requested.method == "slade":
        raise UsageError("the method 'slade' needs --labeled and --unlabeled images")
    if labeled is not None and requested.method not in ("stml", "slade"):
        raise UsageError(f"--labeled and --unlabeled are for the methods stml and slade, not for {requested.method!r}")
    given = {"images": images, "labeled": labeled, "unlabeled": unlabeled}
    saved: dict[str, Any] = {name: None if source is None else absolute(source) for name, source in given.items()}
    saved["requested"] = asdict(requested)
    check_device(choose_device(requested.device))
    class_numbers(open_training_images(saved), requested.method)
    if labeled is not None:
        class_numbers(open_images(saved["labeled"], "train"), "multi-similarity")
    run = Path(out)
    if run.is_dir() and [entry.name for entry in run.iterdir()] == [SKIPPED]:  # of a try that failed
        (run / SKIPPED).unlink()
    again = f", or go on with it: --resume {printable(run)}" if (run / SETTINGS).is_file() else ""
    new_folder(run, "the run folder", f"give another --out{again}")
    return run, saved, requested
