"""Generators of input that is meant to do harm; README.md says how to run each."""
