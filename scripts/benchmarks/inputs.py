"""What is typed of a benchmark: what is small at the tiny scale, what is refused."""

import dataclasses
import math
import sys

import tyro

from symjax import mesh as meshes
from symjax.cli import ending
from symjax.posterior.force import HALVES, PRECISIONS


TINY = {
    "leapfrog": {"num_leapfrogs": 2, "num_transitions": 2},
    "gradient": {"num_gradients": 2, "matrix": 64},
    "chains": {"counts": (1,), "num_leapfrogs": 2, "num_transitions": 2},
    "memory": {"sizes": (8000,)},
    "store": {
        "size": 100,
        "num_draws": 20,
        "seconds_a_draw": 0.01,
        "num_slow_draws": 2,
    },
    "rebasin": {
        "pair": (3,),
        "draws": (2, 4),
        "width": 3,
        "widths": (2, 3),
        "memory": (),
    },
    "diagnostics": {"sizes": (10, 20), "num_draws": 20, "memory": ()},
    "evaluate": {
        "num_draws": 20,
        "num_examples": 20,
        "num_members": 3,
        "num_weights": 20,
        "growth": (2,),
    },
    "startup": {"problems": ("digits",), "imports": ()},
    "blas": {"num_gradients": 2},
    "peers": {
        "num_leapfrogs": 2,
        "num_draws": 10,
        "num_climb": 2,
        "num_warmup": 2,
        "num_chains": 2,
    },
    "precision": {
        "problem": "digits",
        "num_climb": 2,
        "num_warmup": 2,
        "num_draws": 10,
        "num_energies": 1,
    },
    "samplers": {
        "only": ("symjax HMC", "blackjax HMC"),
        "widths": (2,),
        "num_chains": 2,
        "num_draws": 10,
        "num_warmup": 5,
        "num_climb": 2,
    },
    "recovery": {"models": ("MLP, tanh",), "tries": 2, "noise": (0.1,)},
    "assignment": {"sizes": (4,), "problems": (1, 2), "noise": (0.3,)},
    "infer": {"depths": (1,)},
}
"""Of each benchmark, what `--scale tiny` changes where nothing else is typed."""

FROM_ZERO = (
    "num_climb",
    "num_warmup",
    "num_energies",
    "num_members",
    "seed",
    "noise",
    ("precision", "num_draws"),
)
UNLIMITED = ("noise", "most_seconds")
"""Options that may be infinite."""
NOT_EMPTY = ("forces", "contenders", "peers", "noise")
CHOICES = {"only": "CONTENDERS", "models": "MODELS", "imports": "IMPORTS"}
"""Options that name entries of a table of their module."""


def prepare(module, options):
    """The options of a benchmark, checked; an error ends the program with its words."""
    name = type(options).__name__.lower()
    if options.scale == "tiny":
        usual = type(options)()
        small = TINY[name] | ({"repeats": 1} if hasattr(usual, "repeats") else {})
        default = dataclasses.replace(usual, **small)
        # Again, for what was typed to stand, also where it is a default.
        options = tyro.cli(type(options), default=default, args=sys.argv[2:])
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if value == () and field.name in NOT_EMPTY:
            ending.fail(f"`--{field.name}` must have a value, got none.", 2)
        may_be_zero = field.name in FROM_ZERO or (name, field.name) in FROM_ZERO
        for one in value if isinstance(value, tuple) else (value,):
            _check(module, field.name, one, int(not may_be_zero))
    if name == "chains" and not (options.counts or options.meshes):
        ending.fail("Give `--counts`, `--meshes` or both: see chains --help.", 2)
    if name == "memory" and options.micro_batches and not options.problems:
        ending.fail("`--micro-batches` are those of `--problems`, got none.", 2)
    if name == "samplers":
        _check_pairs(options.only)
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # Now rather than when all is measured.
        ending.fail(f"`--out` must be a folder that can be made, got {error}.", 2)
    return options


def _check_pairs(names):
    """Require symjax's sampler beside each of blackjax's."""
    for one in names:
        other = one.replace("blackjax", "symjax")
        if other not in names:
            said = f"{other} beside {one}, which takes its step sizes."
            ending.fail(f"`--only` must hold {said}", 2)


def _check(module, name, value, least):
    """Refuse a value of an option that can't be."""
    flag = f"`--{name.replace('_', '-')}`"
    if isinstance(value, int) and not isinstance(value, bool) and value < least:
        ending.fail(f"{flag} must be at least {least}, got {value}.", 2)
    if isinstance(value, float):
        is_above = value > 0 or (value == 0 and not least)
        if not is_above or (value == math.inf and name not in UNLIMITED):
            ending.fail(f"{flag} must be a positive number, got {value}.", 2)
    if name == "target" and value >= 1:
        ending.fail(f"{flag} must be between 0 and 1, got {value}.", 2)
    if isinstance(value, str):
        _check_word(module, name, flag, value)


def _check_word(module, name, flag, value):
    """The same of a precision, a mesh, or an entry of a table."""
    if name in ("force", "forces"):
        fused = [f"{half}, fused" for half in HALVES]
        if value not in (*PRECISIONS, *fused):
            said = f"one of {', '.join(PRECISIONS)}, or {', '.join(map(repr, fused))}"
            ending.fail(f"{flag} must be {said}, got {value!r}.", 2)
    if name == "meshes":
        meshes.parse_shape(value)
    if name in CHOICES and value not in getattr(module, CHOICES[name]):
        known = ", ".join(getattr(module, CHOICES[name]))
        ending.fail(f"{flag} must be of {known}; got {value!r}.", 2)
