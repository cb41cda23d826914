"""The earlier place of ``graphdnn.reducer``."""

from graphdnn.reducer import *  # noqa: F403
from graphdnn.reducer import __all__  # noqa: F401
