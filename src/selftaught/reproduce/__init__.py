"""The paper's tables and figures, from recipes to files."""

from selftaught.reproduce.cells import collect
from selftaught.reproduce.figures.draw import draw_figures
from selftaught.reproduce.folders import failure, status
from selftaught.reproduce.plan import Estimator, Job, incomplete_data, make_jobs
from selftaught.reproduce.quick import Quick, quick_name, quick_table
from selftaught.reproduce.request import Request, check_begun
from selftaught.reproduce.results import JSON, MARKDOWN
from selftaught.reproduce.runner import run_jobs
from selftaught.reproduce.table import Table
from selftaught.reproduce.tables import find_rows, find_table
from selftaught.reproduce.text import DATASETS, plain

__all__ = [
    "DATASETS",
    "JSON",
    "MARKDOWN",
    "Estimator",
    "Job",
    "Quick",
    "Request",
    "Table",
    "check_begun",
    "collect",
    "draw_figures",
    "failure",
    "find_rows",
    "find_table",
    "incomplete_data",
    "make_jobs",
    "plain",
    "quick_name",
    "quick_table",
    "run_jobs",
    "status",
]
