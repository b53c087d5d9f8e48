"""Folders of images → batches of views."""

from selftaught.data.folder import ImageFolder, Skipped, check_skipped, find_images, skipped_table
from selftaught.data.images import from_array, open_image, to_rgb
from selftaught.data.reader import Batch, Reader, Request, available_cores, unreadable
from selftaught.data.views import View, Views, view_seed

__all__ = [
    "Batch",
    "ImageFolder",
    "Reader",
    "Request",
    "Skipped",
    "View",
    "Views",
    "available_cores",
    "check_skipped",
    "find_images",
    "from_array",
    "open_image",
    "skipped_table",
    "to_rgb",
    "unreadable",
    "view_seed",
]
