"""Results that are better seen than read: contact sheets, training curves and the HTML page."""

from selftaught.report.curves import FAINT, INK, LINE_COLORS, plot_curves
from selftaught.report.gallery import Chapter, Photo, PhotoGroup, histogram, write_gallery
from selftaught.report.image_map import draw_image_map
from selftaught.report.lines import plot_lines
from selftaught.report.page import Section, write_page
from selftaught.report.retrievals import retrieval_rows
from selftaught.report.search_sheet import Neighbor, rate, search_sheet
from selftaught.report.sheet import FRAME_COLORS, Frame, Tile, contact_sheet, fit_image
from selftaught.report.text import font, text_line

__all__ = [
    "FAINT",
    "FRAME_COLORS",
    "INK",
    "LINE_COLORS",
    "Chapter",
    "Frame",
    "Neighbor",
    "Photo",
    "PhotoGroup",
    "Section",
    "Tile",
    "contact_sheet",
    "draw_image_map",
    "fit_image",
    "font",
    "histogram",
    "plot_curves",
    "plot_lines",
    "rate",
    "retrieval_rows",
    "search_sheet",
    "text_line",
    "write_gallery",
    "write_page",
]
