"""Winner determination: one module per solver, and the registry that finds them by name."""
