"""Folders of images → batches of views.

What happens to an image: ``sources`` lists it, from a folder (``folder``), tar files (``shards``) or a data set
(``benchmarks``). A reader gets a request for a view of it (``requests``). The reference, ``file_reader``, decodes the
file (``images``) for each view and cuts it on the CPU (``views``). The other, ``cached_reader``, decodes the file once
(``decoded_images``), keeps it on the disk (``decoded_cache``) and, if all images fit, in the memory of a GPU
(``device_images``), and cuts its views on the device (``device_crops``). For both readers, ``crop_boxes`` draws the
random crops and ``augment`` changes the views.
"""

from selftaught.data.benchmarks import BENCHMARKS, benchmark_of, check_benchmark, find_benchmark, first_classes
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
from selftaught.data.crop_boxes import view_seed, view_seeds
from selftaught.data.decoded_cache import DecodedCache
from selftaught.data.embed_files import Advance, Embedded, embed_batches, in_batches, pick_evenly, stack_embeddings
from selftaught.data.file_reader import FileReader
from selftaught.data.folder import ImageFolder, Skipped, check_skipped, find_images, join_folders, skipped_table
from selftaught.data.images import FORMATS, NO_IMAGE, Stamp, from_array, has_plain_colors, open_image, stamp, to_rgb
from selftaught.data.loader import ReadersEnded
from selftaught.data.products import draw_photos, make_products
from selftaught.data.requests import Batch, Failures, ImageReader, View, ViewRequest
from selftaught.data.shards import expand
from selftaught.data.sources import absolute, open_images
from selftaught.data.tar_index import Member, read_member
from selftaught.data.views import Views
