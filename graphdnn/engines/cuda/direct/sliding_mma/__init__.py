"""Depthwise convolutions and groups of few channels by a sliding window on tensor cores."""
