"""Engines that rewrite a fused operation and delegate the result to the fastest of other engines."""
