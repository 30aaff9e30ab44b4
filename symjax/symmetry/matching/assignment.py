"""Linear assignment: which unit comes to which place, so that the gains are largest.

It is solved on the host. Measured with `scripts/benchmark_assignment.py` on two CPU
cores, 256 to 1024 units: `optax.assignment` takes 3 to 6 times as long as SciPy where
units of both sides are independent. Where noise of 0.3 parts them, each place mostly
gains most by a unit of its own, and to see that takes 0.05 to 0.4 times as long.
"""

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import linear_sum_assignment


TIE = 1e-6
"""What staying is worth, relative to the largest gain; float32 rounds by less."""


def solve(
    gains: Float[np.ndarray, "problem unit unit2"],
) -> Int[np.ndarray, "problem unit"]:
    """The permutations of largest total gain, on the host.

    Where each place gains most by another unit, that is the answer. The other problems
    go to SciPy, which lets go of Python's lock, on all cores.

    Args:
        gains: `gains[k, u, v]`: what unit `v` gains at place `u`.

    Returns:
        The unit that comes to each place. On ties units stay.
    """
    size = gains.shape[-1]
    stay = np.eye(size, dtype=gains.dtype)
    largest = np.abs(gains).max(axis=(1, 2), initial=0)
    gains = gains + TIE * largest[:, None, None] * stay
    best = gains.argmax(axis=-1)
    clashing = np.flatnonzero((np.sort(best, axis=-1) != np.arange(size)).any(axis=-1))

    def one(problem: np.intp) -> None:
        best[problem] = linear_sum_assignment(gains[problem], maximize=True)[1]

    if len(clashing) > 1 and size > 16:
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            list(threads.map(one, clashing))
    else:
        for problem in clashing:
            one(problem)
    return best
