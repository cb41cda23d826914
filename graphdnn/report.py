"""The earlier place of ``graphdnn.analysis.report``."""

from graphdnn.analysis.report import *  # noqa: F403
from graphdnn.analysis.report import __all__  # noqa: F401
