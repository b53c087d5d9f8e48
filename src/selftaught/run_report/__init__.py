"""A finished run as one page: what was trained on what, whether it was worth it, and what the model sees."""

from selftaught.run_report.report import write_run_report
