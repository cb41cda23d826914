"""Engine ``cuda_explicit_gemm``: convolutions as a matrix of columns and a product by cuBLAS."""

ID = 16
