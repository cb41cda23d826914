"""Engines of resampling, both ways."""
