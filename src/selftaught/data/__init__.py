"""Folders of images → batches of views.

What happens to an image: ``sources`` lists it, from a folder (``folder``), tar files (``shards``) or a data set
(``benchmarks``). A reader gets a request for a view of it (``requests``). The reference, ``file_reader``, decodes the
file (``images``) for each view and cuts it on the CPU (``views``). The other, ``cached_reader``, decodes the file once
(``decoded_images``), keeps it on the disk (``decoded_cache``) and, if all images fit, in the memory of a GPU
(``device_images``), and cuts its views on the device (``device_crops``). For both readers, ``crop_boxes`` draws the
random crops and ``augment`` changes the views.
"""

from selftaught.data.augment import Augmentations as Augmentations
from selftaught.data.benchmarks import BENCHMARKS as BENCHMARKS
from selftaught.data.benchmarks import benchmark_of as benchmark_of
from selftaught.data.benchmarks import check_benchmark as check_benchmark
from selftaught.data.benchmarks import find_benchmark as find_benchmark
from selftaught.data.benchmarks import first_classes as first_classes
from selftaught.data.benchmarks import read_benchmark as read_benchmark
from selftaught.data.cache_space import CACHE_LIMIT as CACHE_LIMIT
from selftaught.data.cache_space import CACHE_PLACE as CACHE_PLACE
from selftaught.data.cache_space import cache_limit as cache_limit
from selftaught.data.cache_space import cache_root as cache_root
from selftaught.data.cache_space import cached_collections as cached_collections
from selftaught.data.cache_space import delete_collection as delete_collection
from selftaught.data.cached_reader import CachedReader as CachedReader
from selftaught.data.center_view import center_view as center_view
from selftaught.data.center_view import cut_views as cut_views
from selftaught.data.center_view import view_matrices as view_matrices
from selftaught.data.copies import ALTERATIONS as ALTERATIONS
from selftaught.data.copies import Picture as Picture
from selftaught.data.copies import examine as examine
from selftaught.data.copies import find_same_bytes as find_same_bytes
from selftaught.data.copies import find_same_files as find_same_files
from selftaught.data.copies import hash_picture as hash_picture
from selftaught.data.crop_boxes import view_seed as view_seed
from selftaught.data.crop_boxes import view_seeds as view_seeds
from selftaught.data.decoded_cache import DecodedCache as DecodedCache
from selftaught.data.embed_files import Advance as Advance
from selftaught.data.embed_files import Embedded as Embedded
from selftaught.data.embed_files import embed_batches as embed_batches
from selftaught.data.embed_files import in_batches as in_batches
from selftaught.data.embed_files import stack_embeddings as stack_embeddings
from selftaught.data.file_reader import FileReader as FileReader
from selftaught.data.file_reader import find_unreadable as find_unreadable
from selftaught.data.folder import ImageFolder as ImageFolder
from selftaught.data.folder import Skipped as Skipped
from selftaught.data.folder import check_skipped as check_skipped
from selftaught.data.folder import find_images as find_images
from selftaught.data.folder import join_folders as join_folders
from selftaught.data.folder import skipped_table as skipped_table
from selftaught.data.images import Stamp as Stamp
from selftaught.data.images import from_array as from_array
from selftaught.data.images import open_image as open_image
from selftaught.data.images import stamp as stamp
from selftaught.data.images import to_rgb as to_rgb
from selftaught.data.loader import ReadersEnded as ReadersEnded
from selftaught.data.products import draw_photos as draw_photos
from selftaught.data.products import make_products as make_products
from selftaught.data.requests import Batch as Batch
from selftaught.data.requests import ImageReader as ImageReader
from selftaught.data.requests import View as View
from selftaught.data.requests import ViewRequest as ViewRequest
from selftaught.data.shards import expand as expand
from selftaught.data.sources import absolute as absolute
from selftaught.data.sources import open_images as open_images
from selftaught.data.tar_index import Member as Member
from selftaught.data.views import Views as Views
