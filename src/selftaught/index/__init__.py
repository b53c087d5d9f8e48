"""A searchable collection of images: vectors, paths and thumbnails in an embedded database, with the model inside."""

from selftaught.index.changes import add_images, remove_images, sync_images
from selftaught.index.collection import MODEL, Hit, Index, locate_image, make_index, open_index
from selftaught.index.qdrant import parse_target, push_index
from selftaught.index.scale import Scale, scale_of
from selftaught.index.table import is_below, is_index, open_table
from selftaught.index.thumbnails import to_jpeg
