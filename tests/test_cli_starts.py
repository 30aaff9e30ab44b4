"""Where the chains of a command start."""

import re
from typing import Any

import jax

from symjax.cli import options, starts
from symjax.cli.posteriors import Posterior


def test_starts_are_made_one_by_one():
    """XLA's threads on a CPU with few cores wait for each other in batched QRs."""
    command = options.Sample(num_chains=2)
    others: Any = dict.fromkeys(set(Posterior._fields) - {"init"})
    built = Posterior(init=lambda key: jax.random.orthogonal(key, 3), **others)
    jaxpr = jax.make_jaxpr(lambda: starts.make(command, built, optimised=False))()
    shapes = re.findall(r":f32\[(\S+)\] \w+:\S+ = qr\[", str(jaxpr))
    made = starts.make(command, built, optimised=False)
    assert made.shape == (2, 3, 3)
    assert shapes == ["3,3"]
