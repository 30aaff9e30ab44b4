"""With which network, and at which parameters, a stored run predicts."""

from collections.abc import Callable
from typing import Any

from symjax.approximations import laplace
from symjax.cli.posteriors import Posterior
from symjax.store import Run
from symjax.types import Params


def of_run(run: Run, built: Posterior) -> tuple[Callable[..., Any], Params]:
    """What `evaluation.predict` takes of a run: an apply, and draws.

    They are the network and the stored draws, but for a Laplace approximation that was
    asked for linearised predictions.

    Args:
        run: With draws.
        built: The posterior that it is of.

    Raises:
        ValueError: if the modes of a Laplace approximation are not stored with it, as
            with aligned draws.
    """
    draws = run.lazy(built.shapes)
    options = run.config.get("options", {})
    predictive = options.get("laplace", {}).get("predictive")
    if options.get("method") != "laplace" or predictive != "linearised":
        return built.apply, draws
    modes = run.warmup(built.shapes)
    if modes is None:
        raise ValueError(
            f"{run.path} has draws of a Laplace approximation without the modes that "
            "its linearised predictions need. Name the run that it was made of."
        )
    return laplace.linearise(built.apply), laplace.around(draws, modes)
