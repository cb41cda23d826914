"""A convolution as matrix products: roles of its tensors, the GEMM problem, what engines require of it."""
