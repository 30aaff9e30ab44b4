"""The loss halfway between a reference and a network, which a match may lower."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from symjax.mesh import take
from symjax.symmetry.actions import Element, act, identity
from symjax.symmetry.barriers import Measure, interpolate, mean
from symjax.symmetry.matching.weights import match_weights
from symjax.symmetry.spec import Spec
from symjax.types import Data, Key, Params


class Midpoint(NamedTuple):
    """Two networks, and the data on which their midpoint is judged."""

    loss: Measure
    spec: Spec
    params: Params
    reference: Params
    data: Data
    batch_size: int

    def start(self) -> "Best":
        """The network as it is, or as weights match it, whichever is better."""
        first = identity(self.spec)
        matched = match_weights(self.spec, self.params, self.reference)
        return Best(first, self.score(first)).or_better(self, matched)

    def score(self, element: Element) -> float:
        """The mean loss over all data, with the network moved by an element."""
        moved = act(self.spec, element, self.params)
        middle = interpolate(self.reference, moved, 0.5)
        return float(mean(self.loss, middle, self.data, batch_size=self.batch_size))


class Best(NamedTuple):
    """The best element so far."""

    element: Element
    score: float

    def or_better(self, midpoint: Midpoint, element: Element) -> "Best":
        """This one, or another if its loss is lower."""
        score = midpoint.score(element)
        return Best(element, score) if score < self.score else self


def of_minibatch(
    loss: Measure,
    key: Key,
    batch_size: int,
    params: Params,
    reference: Params,
    data: Data,
) -> Float[Array, ""]:
    """The mean loss at the midpoint over some examples, drawn with replacement."""
    indices = jax.random.randint(key, (batch_size,), 0, jnp.sum(data.mask))
    return jnp.mean(loss(interpolate(reference, params, 0.5), take(data, indices)))
