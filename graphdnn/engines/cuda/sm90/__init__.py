"""Engines on the tensor cores of compute capability 9.0."""
