"""The processes that compile and measure candidates, and the tuner's side of them."""
