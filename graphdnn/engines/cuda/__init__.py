"""CUDA engines: each generates kernel text and launches for one family of fused operations.

``parameters`` (the struct argument) and ``space`` (coordinates) are under ``program`` (generated
prologues and epilogues), ``source`` joins texts, ``steps`` puts launches together; an engine is one file
with one ``ENGINE`` on top of them, and its kernel is one file in ``text``.
"""
