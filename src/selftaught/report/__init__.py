"""Results as pictures: contact sheets, training curves and the HTML page."""

from selftaught.report.comparison import comparison
from selftaught.report.curves import (
    FAINT,
    INK,
    LINE_COLORS,
    draw_charts,
    draw_lines,
    new_figure,
    plot_curves,
    style_axes,
)
from selftaught.report.gallery import Photo, PhotoGroup, histogram, photo_groups, photo_of, write_gallery
from selftaught.report.image_map import draw_image_map
from selftaught.report.noise import chance
from selftaught.report.page import Section, picture, write_page
from selftaught.report.plane import EARLY, LATE, Map, neighbor_map, principal_map
from selftaught.report.search_sheet import rate, search_sheet
from selftaught.report.sheet import FRAME_COLORS, Frame, Tile, above, beside, contact_sheet, fit_image
from selftaught.report.text import font, text_line
