"""A searchable collection of images: vectors, paths and thumbnails in an embedded database, with the model inside."""

from selftaught.index.changes import add_images as add_images
from selftaught.index.changes import remove_images as remove_images
from selftaught.index.changes import sync_images as sync_images
from selftaught.index.collection import MODEL as MODEL
from selftaught.index.collection import Hit as Hit
from selftaught.index.collection import Index as Index
from selftaught.index.collection import locate_image as locate_image
from selftaught.index.collection import make_index as make_index
from selftaught.index.collection import open_index as open_index
from selftaught.index.qdrant import parse_target as parse_target
from selftaught.index.qdrant import push_index as push_index
from selftaught.index.scale import Scale as Scale
from selftaught.index.scale import scale_of as scale_of
from selftaught.index.table import as_path as as_path
from selftaught.index.table import is_below as is_below
from selftaught.index.table import is_index as is_index
from selftaught.index.table import open_table as open_table
from selftaught.index.thumbnails import to_jpeg as to_jpeg
