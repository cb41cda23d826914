"""Depthwise convolutions and small groups by a sliding window on tensor cores (mma.sync)."""
