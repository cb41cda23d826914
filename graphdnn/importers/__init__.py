"""Problems in the words of other libraries, read into problem texts and graphs."""

from graphdnn.importers.formats import FORMATS, read
from graphdnn.importers.imported import Imported, Problem

__all__ = ["FORMATS", "Imported", "Problem", "read"]
