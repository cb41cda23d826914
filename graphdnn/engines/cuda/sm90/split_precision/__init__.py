"""Wide integers and fp32 as sums of narrow limbs on tensor cores."""
