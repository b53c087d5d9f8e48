"""Folders of images → batches of views."""

from selftaught.data.benchmarks import (
    BENCHMARKS,
    benchmark_of,
    check_benchmark,
    find_benchmark,
    first_classes,
    read_benchmark,
)
from selftaught.data.cache_space import (
    CACHE_LIMIT,
    CACHE_PLACE,
    cache_limit,
    cache_root,
    cached_collections,
    delete_collection,
)
from selftaught.data.cached_reader import CachedReader
from selftaught.data.center_view import center_view, cut_views, view_matrices
from selftaught.data.copies import ALTERATIONS, Picture, examine, find_same_bytes, find_same_files, fingerprint
from selftaught.data.crop_boxes import view_seed, view_seeds
from selftaught.data.decoded_cache import DecodedCache
from selftaught.data.embed_files import Advance, Embedded, embed_batches, in_batches, stack_embeddings
from selftaught.data.file_reader import FileReader, find_unreadable
from selftaught.data.folder import ImageFolder, Skipped, check_skipped, find_images, join_folders, skipped_table
from selftaught.data.images import Stamp, from_array, open_image, stamp, to_rgb
from selftaught.data.loader import ReadersEnded
from selftaught.data.products import draw_photos, make_products
from selftaught.data.requests import Batch, ImageReader, View, ViewRequest
from selftaught.data.sources import absolute, open_images
from selftaught.data.tar_index import Member
from selftaught.data.views import Views

__all__ = [
    "ALTERATIONS",
    "BENCHMARKS",
    "CACHE_LIMIT",
    "CACHE_PLACE",
    "Advance",
    "Batch",
    "CachedReader",
    "DecodedCache",
    "Embedded",
    "FileReader",
    "ImageFolder",
    "ImageReader",
    "Member",
    "Picture",
    "ReadersEnded",
    "Skipped",
    "Stamp",
    "View",
    "ViewRequest",
    "Views",
    "absolute",
    "benchmark_of",
    "cache_limit",
    "cache_root",
    "cached_collections",
    "center_view",
    "check_benchmark",
    "check_skipped",
    "cut_views",
    "delete_collection",
    "draw_photos",
    "embed_batches",
    "examine",
    "find_benchmark",
    "find_images",
    "find_same_bytes",
    "find_same_files",
    "find_unreadable",
    "fingerprint",
    "first_classes",
    "from_array",
    "in_batches",
    "join_folders",
    "make_products",
    "open_image",
    "open_images",
    "read_benchmark",
    "skipped_table",
    "stack_embeddings",
    "stamp",
    "to_rgb",
    "view_matrices",
    "view_seed",
    "view_seeds",
]
