"""The reproduction of a table: the plan, the runs, the results."""

from collections.abc import Sequence
from pathlib import Path

from selftaught.console import Reporter, duration
from selftaught.devices import choose_device
from selftaught.errors import SelftaughtError, UsageError, printable
from selftaught.files import lock_output, plain_path
from selftaught.reproduce.cells import collect
from selftaught.reproduce.folders import failure, status
from selftaught.reproduce.plan import Estimator, Job, incomplete_data, make_jobs
from selftaught.reproduce.quick import Quick, quick_name, quick_table
from selftaught.reproduce.request import Request, check_begun
from selftaught.reproduce.results import JSON, MARKDOWN
from selftaught.reproduce.runner import run_jobs
from selftaught.reproduce.table import Table
from selftaught.reproduce.tables import find_rows, find_table
from selftaught.reproduce.text import DATASETS, plain


def reproduce_table(
    name: str,
    rows: Sequence[str],
    data: Path,
    out: Path | None,
    seeds: int,
    epochs: int | None,
    backbone: str | None,
    device: str,
    quick: bool,
    plan: bool,
) -> None:
    """Print the plan of a table, and unless only that is wanted, run it and print its results."""
    whole = find_table(name)
    table = quick_table(whole) if quick else whole
    named = [word for words in rows for word in words.split(",") if word]
    if quick:
        named = [quick_name(whole, word) for word in named]
    if rows and not named:
        raise UsageError("--rows names no row: leave it out for all of them")
    place = out or Path("reproduced", f"{name}-quick" if quick else name)
    choose_device(device)
    request = Request(
        table, find_rows(table, named), data, place, seeds, epochs, backbone, device, Quick() if quick else None
    )
    check_begun(request)
    jobs = make_jobs(request)
    reporter = Reporter()
    estimator = Estimator(jobs, device, reporter.say)
    waiting = print_plan(table, jobs, estimator, data)
    if plan:
        return
    if not waiting and all(job.missing for job in jobs):
        raise SelftaughtError("nothing can be run: the plan says what is missing")
    plain_path(place).parent.mkdir(parents=True, exist_ok=True)
    with lock_output(place):
        failed = run_jobs(request, jobs, estimator, reporter)
    cells = collect(request)
    for dataset in table.columns:
        print(f"\n{DATASETS[dataset]}\n{plain(table, cells, dataset)}")
    print(f"\nresults: {printable(place / MARKDOWN)} and {printable(place / JSON)}")
    if failed:
        raise SelftaughtError(f"{failed} of {len(jobs)} jobs failed: {printable(place / MARKDOWN)} says why")


def print_plan(table: Table, jobs: Sequence[Job], estimator: Estimator, data: Path) -> int:
    """Print what will be done, job by job; returns the number of jobs that are left to run."""
    waiting = [job for job in jobs if job.open]
    seconds = {job.folder: estimator.seconds(job) for job in waiting}
    print(f"{table.title}\n{table.note}".rstrip())
    needs = list(dict.fromkeys(need for job in jobs for need in job.missing))
    for job in jobs:
        print(f"  {job.title}: {_state(job, seconds.get(job.folder, 0.0), needs)}")
    for label, why in {row.label: row.why for row in table.rows if row.why}.items():
        print(f"  {label}: not run, as {why}")
    words = [
        f"{len(waiting)} to run in about {duration(sum(seconds.values()))}",
        f"{sum(status(job.folder) == 'finished' for job in jobs)} finished",
        f"{sum(bool(job.missing) for job in jobs)} cannot be run",
    ]
    print(f"{len(jobs)} {'job' if len(jobs) == 1 else 'jobs'}: {', '.join(words)}")
    for number, need in enumerate(needs, start=1):
        print(f"  [{number}] {need}")
    for sentence in incomplete_data(jobs, data):
        print(f"  {sentence}")
    return len(waiting)


def _state(job: Job, seconds: float, needs: Sequence[str]) -> str:
    state = status(job.folder)
    if state == "finished":
        return "finished"
    if job.missing:
        return f"cannot be run, see {' '.join(f'[{needs.index(need) + 1}]' for need in job.missing)}"
    if state == "failed":
        sentence, final = failure(job.folder)
        again = f"delete {printable(job.folder)}* to try again" if final else f"to run again, about {duration(seconds)}"
        return f"failed before ({sentence}); {again}"
    return f"{'to go on with' if state == 'begun' else 'to run'}, about {duration(seconds)}"
