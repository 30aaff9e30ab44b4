"""Convergence of chains and quality of predictions, from arrays alone."""
