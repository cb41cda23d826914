"""Engines on the tensor cores of compute capability 8.0 and later."""
