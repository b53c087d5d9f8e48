"""Results as pictures: contact sheets, training curves and the HTML page."""

from selftaught.report.comparison import STYLE as COMPARISON_STYLE
from selftaught.report.comparison import Find, comparison
from selftaught.report.curves import FAINT, INK, LINE_COLORS, draw_charts, plot_curves
from selftaught.report.gallery import STYLE as GALLERY_STYLE
from selftaught.report.gallery import Chapter, Photo, PhotoGroup, histogram, photo_group, write_gallery
from selftaught.report.image_map import draw_image_map
from selftaught.report.lines import plot_lines
from selftaught.report.noise import chance, scatter
from selftaught.report.page import Section, picture, write_page
from selftaught.report.plane import EARLY, LATE, Map, neighbor_map, principal_map
from selftaught.report.retrievals import retrieval_rows
from selftaught.report.search_sheet import Neighbor, rate, search_sheet
from selftaught.report.sheet import FRAME_COLORS, Frame, Tile, contact_sheet, fit_image
from selftaught.report.text import font, text_line

__all__ = [
    "COMPARISON_STYLE",
    "EARLY",
    "FAINT",
    "FRAME_COLORS",
    "GALLERY_STYLE",
    "INK",
    "LATE",
    "LINE_COLORS",
    "Chapter",
    "Find",
    "Frame",
    "Map",
    "Neighbor",
    "Photo",
    "PhotoGroup",
    "Section",
    "Tile",
    "chance",
    "comparison",
    "contact_sheet",
    "draw_charts",
    "draw_image_map",
    "fit_image",
    "font",
    "histogram",
    "neighbor_map",
    "photo_group",
    "picture",
    "plot_curves",
    "plot_lines",
    "principal_map",
    "rate",
    "retrieval_rows",
    "scatter",
    "search_sheet",
    "text_line",
    "write_gallery",
    "write_page",
]
