"""Results that are better seen than read: contact sheets, training curves and the HTML page."""

from selftaught.report.curves import plot_curves
from selftaught.report.page import Section, write_page
from selftaught.report.retrievals import retrieval_rows
from selftaught.report.sheet import Tile, contact_sheet

__all__ = ["Section", "Tile", "contact_sheet", "plot_curves", "retrieval_rows", "write_page"]
