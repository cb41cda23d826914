"""Engines that sum over axes: reductions, softmax, statistics."""
