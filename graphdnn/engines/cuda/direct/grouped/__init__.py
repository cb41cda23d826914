"""Groups of 8 to 64 channels on tensor cores of warps."""
