"""Convolutions whose taps share a halo tile in shared memory."""
