"""Engines whose results are of one element each: pointwise graphs, data movement, views, random numbers."""
