"""What every engine is generated with: parameters, coordinates, the pointwise program, text, launches, needs, costs."""
