"""Softmax and log-softmax with pointwise operations around them."""
