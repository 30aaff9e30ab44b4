"""Stochastic gradients: of which examples, and with how much noise.

An estimator is asked once a step for a value and a gradient, and carries a state along
with the chain. All of them are unbiased over their own draws.
"""

from symjax.gradients.estimators import Anchored, Estimator, build
from symjax.gradients.sources import Order
