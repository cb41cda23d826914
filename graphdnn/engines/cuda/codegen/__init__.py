"""Code generation for all CUDA engines: parameters, index spaces, pointwise programs, texts, launches, requirements."""
