"""One channel per group: any layout, and kernels that keep rows in registers."""
