"""Engines without tensor cores: implicit GEMM and matrix products of any type and stride."""
