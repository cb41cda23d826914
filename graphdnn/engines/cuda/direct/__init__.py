"""Engines that convolve directly: depthwise, narrow groups, first layers."""
