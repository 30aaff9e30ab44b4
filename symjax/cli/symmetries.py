"""`symjax symmetries`: the groups of a built-in network, or of one in a user's file."""

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from symjax import models, symmetry
from symjax.cli.options import Symmetries


# What the networks were made for: digits, MNIST, CIFAR-10.
INPUT_SHAPES = {"mlp": (64,), "lenet": (28, 28, 1), "resnet20_frn": (32, 32, 3)}
TOLERANCE = 1e-9  # of float64, through a deep network

Network = tuple[Callable[[Any, Any], Any], Any, Any]


def show(options: Symmetries, console: Console) -> None:
    """Print the groups, and whether random elements of them leave the outputs alone."""
    apply, params, x = _network(options)
    start = time.perf_counter()
    spec = symmetry.infer(apply, params, x, strict=options.strict)
    seconds = time.perf_counter() - start
    console.print(str(spec), highlight=False, markup=False, soft_wrap=True)
    console.print(f"inferred in {seconds:.2f} s", style="dim")
    if options.check:
        _check((apply, params, x), spec, options.seed, console)


def _check(network: Network, spec: symmetry.Spec, seed: int, console: Console) -> None:
    """Try random elements in float64 and print the largest change of each kind.

    Raises:
        RuntimeError: if a group changes the outputs.
    """
    apply, params, x = network
    with jax.enable_x64(True), console.status("trying random elements"):
        generator = np.random.default_rng(seed)
        params, x = (
            jax.tree.map(lambda leaf, how=how: how(leaf, generator), tree)
            for tree, how in ((params, _generic), (x, _wide))
        )
        key = jax.random.key(seed)
        found = symmetry.check_invariance(apply, spec, params, x, key)
        found = jax.tree.map(np.asarray, found)
    table = Table("groups", "number", "outputs change at most", "parameters at least")
    kinds = np.array([group.kind for group in spec])
    for kind in dict.fromkeys(kinds):
        here = kinds == kind
        table.add_row(
            f"{kind}s",
            f"{here.sum()}",
            f"{found.per_group[here].max():.1e}",
            f"{found.moved[here].min():.1e}",
        )
    console.print(table)
    if not found.largest < TOLERANCE:
        worst = list(spec)[int(np.argmax(found.per_group))]
        raise RuntimeError(
            f"A {worst.kind} of {worst.axes[0].path} changes an output by "
            f"{found.largest:.1e} of its largest value. This is a defect of symjax: "
            f"please report it with the network."
        )
    console.print(
        f"All together change no output by more than {found.largest:.1e} of its "
        f"largest value, in float64."
    )


def _generic(leaf: Any, generator: np.random.Generator) -> Any:
    """Numbers near a parameter but none of them zero, positive where it is."""
    leaf = np.asarray(leaf)
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return leaf
    noise = generator.normal(size=(2, *leaf.shape))
    return leaf * np.exp(0.3 * noise[0]) + 0.05 * abs(noise[1])


def _wide(leaf: Any, generator: np.random.Generator) -> Any:
    """The input in float64."""
    del generator
    leaf = np.asarray(leaf)
    floating = jnp.issubdtype(leaf.dtype, jnp.floating)
    return leaf.astype(np.float64) if floating else leaf


def _network(options: Symmetries) -> Network:
    """`apply`, parameters and an input, of a name or of `file.py:name`.

    Raises:
        ValueError: if `--model` names no network.
    """
    file, colon, name = options.model.rpartition(":")
    if not colon:
        module = models.build(options.model, options.num_outputs)
        return _linen(module, options.input_shape or INPUT_SHAPES[options.model])
    found = _load(Path(file), name)
    if isinstance(found, nn.Module):
        if options.input_shape is None:
            raise ValueError(
                f"`--input-shape` is needed for the flax module {name}: the shape of "
                f"one input, such as --input-shape 32 32 3."
            )
        return _linen(found, options.input_shape)
    made = found() if callable(found) else found
    if not (isinstance(made, tuple) and len(made) == 3 and callable(made[0])):
        raise ValueError(
            f"`--model` {options.model} must be a flax.linen module, or a function "
            f"without arguments that returns (apply, params, x); it gave "
            f"{type(made).__name__}."
        )
    return made


def _linen(module: nn.Module, shape: tuple[int, ...]) -> Network:
    x = jax.random.normal(jax.random.key(0), (4, *shape), jnp.float32)
    return module.apply, module.init(jax.random.key(1), x), x


def _load(file: Path, name: str) -> Any:
    """The object `name` of a Python file, which is run.

    Raises:
        ValueError: if there is no such file or object, or it can't be run.
    """
    if not file.is_file():
        raise ValueError(
            f"`--model` must be {', '.join(INPUT_SHAPES)} or path/to/file.py:name, but "
            f"there is no file {file}."
        )
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise ValueError(
            f"`--model` {file} is no Python file; its name must end in .py."
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ValueError(
            f"`--model` {file} could not be run: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(module, name):
        public = [key for key in vars(module) if not key.startswith("_")]
        raise ValueError(
            f"`--model` {file} has no `{name}`; it has {', '.join(public)}."
        )
    return getattr(module, name)
