"""Engines that call cuBLAS, and the launches before and after a call."""
