"""Engines that call cuBLAS and cuFFT, and what stands around a call."""
