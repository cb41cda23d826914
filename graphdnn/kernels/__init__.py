"""The kernels of a plan as one looks at them: text, resources, launches, work; and the way from operations to lines."""

from graphdnn.kernels.edited import with_source
from graphdnn.kernels.occupancy import Occupancy, occupancy
from graphdnn.kernels.places import Place, where
from graphdnn.kernels.view import KernelView, LaunchView, of_plan

__all__ = ["KernelView", "LaunchView", "Occupancy", "Place", "occupancy", "of_plan", "where", "with_source"]
