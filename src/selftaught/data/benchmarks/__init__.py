"""The data sets of the paper, read from their official archives."""

from selftaught.data.benchmarks.reading import SPLITS, check_benchmark, first_classes, read_benchmark
from selftaught.data.benchmarks.registry import BENCHMARKS, benchmark_of, find_benchmark
