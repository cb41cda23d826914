"""Few channels per group on CUDA cores: rows pass through a ring buffer in shared memory."""
