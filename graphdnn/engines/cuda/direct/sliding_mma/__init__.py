"""Direct convolutions by a sliding window on tensor cores (mma.sync)."""
