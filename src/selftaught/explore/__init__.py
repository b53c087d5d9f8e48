"""A local page to look around in a collection: a map of all photos, their neighbors, selections."""

from selftaught.explore.exhibit import Exhibit as Exhibit
from selftaught.explore.exhibit import Version as Version
from selftaught.explore.exhibit import exhibit_folder as exhibit_folder
from selftaught.explore.exhibit import exhibit_index as exhibit_index
from selftaught.explore.server import check_installed as check_installed
from selftaught.explore.server import serve as serve
