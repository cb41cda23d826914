"""Engine ``cuda_matmul_cublas``: matrix products by cuBLAS."""

ID = 20
