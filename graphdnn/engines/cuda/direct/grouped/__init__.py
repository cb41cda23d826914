"""Convolutions with groups of 8 to 64 channels on tensor cores (mma.sync)."""
