"""Direct convolution engines: depthwise, few channels per group, first layers."""
