"""Engines of recurrent networks."""
