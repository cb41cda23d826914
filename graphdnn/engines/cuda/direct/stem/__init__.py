"""First layers: images of 1 to 4 channels."""
