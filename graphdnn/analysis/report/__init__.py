"""A plan as one page for a browser: what was fused, which engines were ranked, what was refused, how fast it can be."""

from graphdnn.analysis.report.html_page import comparison_page, page
from graphdnn.analysis.report.report_data import Contents, Timing, contents_of

__all__ = ["Contents", "Timing", "comparison_page", "contents_of", "page"]
