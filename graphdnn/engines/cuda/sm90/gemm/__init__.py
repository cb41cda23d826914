"""Implicit GEMM and matrix products by wgmma."""
