"""First layers of networks (stems): images of 1 to 4 channels."""
