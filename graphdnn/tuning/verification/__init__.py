"""Results of candidates, compared with the oracle."""
