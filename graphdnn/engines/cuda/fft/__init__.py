"""Convolutions as products of spectra, by cuFFT and cuBLAS."""
