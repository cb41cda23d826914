"""Engine ``cuda_fft``: convolutions as products of spectra by cuFFT and cuBLAS."""

ID = 17
