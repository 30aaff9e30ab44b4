"""Fitted approximations, one a module: `build(...) -> Approximation`."""
