"""The earlier place of ``graphdnn.analysis.certificate``."""

from graphdnn.analysis.certificate import *  # noqa: F403
from graphdnn.analysis.certificate import __all__  # noqa: F401
