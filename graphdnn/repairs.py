"""The earlier place of ``graphdnn.analysis.repairs``."""

from graphdnn.analysis.repairs import *  # noqa: F403
from graphdnn.analysis.repairs import __all__  # noqa: F401
