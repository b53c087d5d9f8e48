"""The paper's figures from a run."""

from pathlib import Path

from selftaught.console import Reporter
from selftaught.data import open_images
from selftaught.devices import choose_device
from selftaught.errors import UsageError, printable
from selftaught.reproduce import draw_figures


def figures(run: Path, data: str, out: Path | None, device: str, seed: int, allow_skipped: bool) -> None:
    if not run.is_dir():
        raise UsageError(f"there is no run {printable(run)}")
    images = open_images(data, "test")
    written, left_out = draw_figures(
        run,
        images,
        out or run / "figures",
        choose_device(device),
        seed=seed,
        allow_skipped=allow_skipped,
        reporter=Reporter(),
    )
    for path in written:
        print(printable(path))
    for line in left_out:
        print(line)
