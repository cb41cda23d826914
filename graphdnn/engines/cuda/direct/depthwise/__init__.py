"""Depthwise convolutions: any layout, and kernels that keep rows in registers."""
