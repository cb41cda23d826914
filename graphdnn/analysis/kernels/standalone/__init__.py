"""A kernel as one file that nvcc compiles: its launches, data, plain loops to compare with, and the time."""

from graphdnn.analysis.kernels.standalone.program import compile_options, standalone

__all__ = ["compile_options", "standalone"]
