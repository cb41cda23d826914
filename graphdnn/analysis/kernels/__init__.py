"""The kernels of a plan as one looks at them: text, resources, launches, work; and the way from operations to lines."""

from graphdnn.analysis.kernels.kernel_view import KernelView, LaunchView, of_plan
from graphdnn.analysis.kernels.locations import Place, where
from graphdnn.analysis.kernels.occupancy import Occupancy, occupancy
from graphdnn.analysis.kernels.source_override import with_source

__all__ = ["KernelView", "LaunchView", "Occupancy", "Place", "occupancy", "of_plan", "where", "with_source"]
