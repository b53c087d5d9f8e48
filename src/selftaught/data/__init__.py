"""Folders of images → batches of views."""

from selftaught.data.benchmarks import (
    BENCHMARKS,
    SPLITS,
    Benchmark,
    SplitCheck,
    benchmark_of,
    check_benchmark,
    find_benchmark,
    read_benchmark,
)
from selftaught.data.cache import Cache
from selftaught.data.cached import CachedReader
from selftaught.data.folder import ImageFolder, Skipped, check_skipped, find_images, joined, skipped_table
from selftaught.data.images import from_array, open_image, to_rgb
from selftaught.data.reader import Batch, ImageReader, Reader, Request, available_cores, unreadable
from selftaught.data.sources import absolute, open_images
from selftaught.data.views import View, Views, view_seed, view_seeds

__all__ = [
    "BENCHMARKS",
    "SPLITS",
    "Batch",
    "Benchmark",
    "Cache",
    "CachedReader",
    "ImageFolder",
    "ImageReader",
    "Reader",
    "Request",
    "Skipped",
    "SplitCheck",
    "View",
    "Views",
    "absolute",
    "available_cores",
    "benchmark_of",
    "check_benchmark",
    "check_skipped",
    "find_benchmark",
    "find_images",
    "from_array",
    "joined",
    "open_image",
    "open_images",
    "read_benchmark",
    "skipped_table",
    "to_rgb",
    "unreadable",
    "view_seed",
    "view_seeds",
]
