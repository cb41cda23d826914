"""First layers by wgmma."""
