"""Markov chains, one kernel a module: `build(...) -> Algorithm`."""
