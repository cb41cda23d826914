"""Concatenation, slices, transposes and reshapes as copies of bits."""
