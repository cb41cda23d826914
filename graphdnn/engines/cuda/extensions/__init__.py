"""Engines of extension operations: patches, grid sampling, the CTC loss."""
