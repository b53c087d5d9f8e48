"""The page of a run: made at the end of training, and again by selftaught report."""

from pathlib import Path

from selftaught.console import Reporter
from selftaught.errors import Interrupted, UsageError, printable
from selftaught.files import check_output, is_made_after
from selftaught.model_files import DESCRIPTION
from selftaught.run_folder import REPORT, SETTINGS, is_finished
from selftaught.run_report import write_run_report
from selftaught.training import RunImages

OWN = b'<meta name="generator" content="selftaught">\n<title>What '
"""What the pages of this command are recognized by."""


def report(run: Path, images: str | None, out: Path | None, device: str) -> None:
    if not (run / SETTINGS).exists():
        raise UsageError(f"there is no run in {printable(run)}: start one with selftaught train PHOTOS --out RUN")
    if not is_finished(run):
        raise UsageError(f"the run {printable(run)} is not finished: selftaught train --resume {printable(run)}")
    if out is not None:
        check_output(out, OWN)
    page = write_run_report(run, images, out=out, device=device)
    print(f"page: {printable(page)}")


def report_on_training(device: str, run: Path, images: RunImages) -> None:
    """Make the page of a run that has ended, unless it is there; if that fails, the run is still finished."""
    if is_made_after(run / REPORT, run / DESCRIPTION):  # the run was finished before
        return
    reporter = Reporter()
    again = f"selftaught report {printable(run)} makes it"
    try:
        page = write_run_report(run, device=device, reporter=reporter, listed=images)
        reporter.say(f"what was learned, as a page: {printable(page)}")
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: the model is saved, its page is not made; {again}") from None
    except Exception as error:  # a problem with the page does not make the run a failure
        reporter.say(f"the model is saved, but its page could not be made ({printable(error)}); {again}")
