"""Direct convolutions on CUDA cores: image rows pass through a ring buffer in shared memory."""
