"""What a plan says of itself: certificates, cuts, diagnostics, kernels, repairs, reports, traces."""
