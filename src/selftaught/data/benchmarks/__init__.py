"""The data sets of the paper, read from their official archives."""

from selftaught.data.benchmarks.reading import SPLITS as SPLITS
from selftaught.data.benchmarks.reading import check_benchmark as check_benchmark
from selftaught.data.benchmarks.reading import first_classes as first_classes
from selftaught.data.benchmarks.reading import read_benchmark as read_benchmark
from selftaught.data.benchmarks.registry import BENCHMARKS as BENCHMARKS
from selftaught.data.benchmarks.registry import benchmark_of as benchmark_of
from selftaught.data.benchmarks.registry import find_benchmark as find_benchmark
