"""graphdnn beside PyTorch and cuDNN on one GPU: the cases, the method, and the report. Run ``benchmarks/gpu.py``."""
