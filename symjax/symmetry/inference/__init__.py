"""Find the symmetries of a network from its jaxpr."""
