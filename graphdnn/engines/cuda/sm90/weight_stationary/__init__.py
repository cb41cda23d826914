"""Convolutions whose filter stays in shared memory."""
