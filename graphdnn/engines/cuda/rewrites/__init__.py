"""Rewrites of fused operations, as rows of one table; other engines compute the rewritten operations."""
