"""Engines of Winograd."""
