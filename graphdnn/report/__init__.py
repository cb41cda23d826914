"""A plan as one page for a browser: what was fused, which engines were ranked, what was refused, how fast it can be."""

from graphdnn.report.contents import Contents, Timing, contents_of
from graphdnn.report.page import comparison_page, page

__all__ = ["Contents", "Timing", "comparison_page", "contents_of", "page"]
