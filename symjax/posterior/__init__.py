"""The log posterior of a network's parameters, and how much of it fits in memory."""

from symjax.posterior.density import LogPosterior, build
from symjax.posterior.micro_batches import choose_micro_batch
