"""Predictions with the network that is linear around its mode."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from symjax.types import Params


class Around(NamedTuple):
    """Draws with the mode that each of them is around.

    Attributes:
        params: Draws, leaves `(chain, draw, ...)`; of one network without these axes.
        mode: The same: the mode of each draw's member.
    """

    params: Params
    mode: Params


@dataclass(frozen=True)
class Linearised:
    """f(mode) + J (params - mode): the outputs of `apply`, linear in the parameters.

    Attributes:
        apply: `(params, x) -> outputs (example, output)`.
    """

    apply: Callable[[Params, Any], Any]

    def __call__(self, around: Around, x: Any) -> Any:
        """The outputs `(example, output)` of one draw, of the cost of two forwards."""

        def forward(params: Params) -> Any:
            return self.apply(params, x)

        move = jax.tree.map(lambda a, b: a - b, around.params, around.mode)
        outputs, change = jax.jvp(forward, (around.mode,), (move,))
        return outputs + change


def linearise(apply: Callable[[Params, Any], Any]) -> Linearised:
    """A network as it is to its Laplace approximation, for `evaluation.predict`.

    Args:
        apply: `(params, x) -> outputs (example, output)`.

    Returns:
        `apply` of what `around` makes. Equal ones of equal `apply` share a compiled
        program.

    References:
        Immer, Korzepa, Bauer (2021), Improving predictions of Bayesian neural nets via
        local linearization, equation 10.

    Example:
        >>> linear = linearise(lambda params, x: x @ params**2)
        >>> one = Around(np.ones((1, 1)), np.full((1, 1), 3.0))
        >>> float(linear(one, np.ones((1, 1)))[0, 0])  # 9 + 6 * (1 - 3)
        -3.0
    """
    return Linearised(apply)


def around(draws: Params, modes: Params) -> Around:
    """Draws of several members with the modes that they are around.

    Args:
        draws: Leaves `(member, draw, ...)`, such as `run.fit` gives or a stored run's
            `lazy()`.
        modes: Leaves `(member, ...)`, such as the `warmup` of a run. They are not
            copied.
    """

    def repeat(draw: Any, mode: Any) -> np.ndarray:
        return np.broadcast_to(np.asarray(mode)[:, None], draw.shape)

    return Around(draws, jax.tree.map(repeat, draws, modes))
