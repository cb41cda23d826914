"""Engines of normalization, both ways."""
