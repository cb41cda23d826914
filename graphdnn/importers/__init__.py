"""Problems in the words of other libraries, read into problem texts and graphs."""

from graphdnn.importers.format_detection import FORMATS, read
from graphdnn.importers.import_result import Imported, Problem

__all__ = ["FORMATS", "Imported", "Problem", "read"]
