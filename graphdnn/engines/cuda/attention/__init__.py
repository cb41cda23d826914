"""Attention: a softmax between two matrix products, as one kernel."""
