"""A local page to look around in a collection: a map of all photos, their neighbors, selections."""

from selftaught.explore.exhibit import Exhibit, Version, exhibit_folder, exhibit_index
from selftaught.explore.server import check_installed, serve
