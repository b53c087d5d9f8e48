"""The reproduction of a table: the plan, the runs, the results. Finished runs stay, unfinished ones are resumed."""

import gc
from collections.abc import Sequence
from pathlib import Path

import torch

from selftaught.console import Reporter, duration
from selftaught.devices import choose_device
from selftaught.errors import Collapse, Interrupted, SelftaughtError, UsageError, printable
from selftaught.files import lock_output, plain_path
from selftaught.reproduce.cells import collect
from selftaught.reproduce.folders import drop_checkpoints, find_state, forget_failure, note_failure, run_seconds
from selftaught.reproduce.inputs import PHOTOS
from selftaught.reproduce.jobs import Job, make_jobs
from selftaught.reproduce.plan import Estimator, print_plan
from selftaught.reproduce.quick import Quick, alike, quick_table
from selftaught.reproduce.request import Request, begin, check_begun
from selftaught.reproduce.results import JSON, MARKDOWN, write_results
from selftaught.reproduce.tables import find_rows, find_table
from selftaught.reproduce.text import DATASETS, plain
from selftaught.training import train


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
    table = find_table(name)
    named = [word for words in rows for word in words.split(",") if word]
    if rows and not named:
        raise UsageError("--rows names no row: leave it out for all of them")
    chosen = find_rows(table, named)
    if quick:
        kinds, table = set(map(alike, chosen)), quick_table(table)
        chosen = tuple(row for row in table.rows if alike(row) in kinds)
    place = out or Path("reproduced", f"{name}-quick" if quick else name)
    choose_device(device)
    request = Request(table, chosen, data, place, seeds, epochs, backbone, device, Quick() if quick else None)
    check_begun(request)
    jobs = make_jobs(request)
    reporter = Reporter()
    estimator = Estimator(jobs, device, reporter.say)
    print_plan(table, jobs, estimator, data)
    if plan:
        return
    if all(job.state.status == "cannot be run" for job in jobs):
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


def run_jobs(request: Request, jobs: Sequence[Job], estimator: Estimator, reporter: Reporter) -> int:
    """Run every job that is open, and write the results after each; returns the number of jobs that failed.

    A job that fails does not stop the others. A finished one keeps its model and loses its checkpoint.
    """
    begin(request)
    try:
        if request.quick is not None and any(job.open for job in jobs):
            with reporter.work("drawing photos", request.quick.products * request.quick.photos) as tell:
                request.quick.draw(request.out / PHOTOS, tell)
        for job in jobs:
            if job.state.status == "finished":  # a kill may have come before this
                drop_checkpoints(job.folder)
        failed = write_results(request, jobs)
        waiting = [job for job in jobs if job.open]
        for number, job in enumerate(waiting):
            seconds = [estimator.seconds(other) for other in waiting[number:]]
            reporter.say(
                f"[{number + 1}/{len(waiting)}] {job.title}: about {duration(seconds[0])}, "
                f"with all that follow about {duration(sum(seconds))}"
            )
            _attempt(job, request, reporter)
            failed = write_results(request, jobs)
    except (Interrupted, KeyboardInterrupt):
        raise Interrupted(f"stopped; what is done is kept, go on with: {request.command}") from None
    return failed


def _attempt(job: Job, request: Request, reporter: Reporter) -> None:
    forget_failure(job.folder)
    status = find_state(job.folder).status
    arguments = (
        {"resume": job.folder} if status == "begun" else {"out": job.folder, "recipe": "official", **job.arguments}
    )
    try:
        if status != "finished":  # it may have failed only after it was finished
            train(device=request.device, quiet=request.quick is not None, **arguments)
        drop_checkpoints(job.folder)
        reporter.say(f"  finished in {duration(run_seconds(job.folder))}")
    except Interrupted:
        raise
    except Exception as error:  # whatever it is, the other jobs do not need this one
        sentence = _sentence(error)
        note_failure(job.folder, sentence, final=isinstance(error, Collapse))
        reporter.say(f"  failed: {sentence}")
    finally:
        gc.collect()  # the next run needs the memory that a failed run still holds
        torch.cuda.empty_cache()


def _sentence(error: Exception) -> str:
    if isinstance(error, SelftaughtError):
        return str(error)
    if isinstance(error, torch.OutOfMemoryError):
        return "out of GPU memory"
    return " ".join(f"{type(error).__name__}: {error}".split())
