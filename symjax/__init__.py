"""Reference posteriors, symmetries and evaluation for Bayesian neural networks."""
