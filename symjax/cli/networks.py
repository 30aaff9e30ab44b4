"""The network that `symjax symmetries` is asked about: built in, or in a file."""

import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp

from symjax import checks, models, trees
from symjax.cli.analyses import Symmetries


Network: TypeAlias = tuple[Callable[[Any, Any], Any], Any, Any]

# What the networks were made for: digits, MNIST, CIFAR-10, reviews.
INPUT_SHAPES = dict.fromkeys(models.MODELS, (32, 32, 3)) | {
    "mlp": (64,),
    "lenet": (28, 28, 1),
    "cnn_lstm": (100,),
}
OF_WORDS = ("cnn_lstm",)
EXPECTED = (
    "a flax.linen module, or a function without arguments that returns one or "
    "(apply, params, x)"
)
RECIPE = (
    "Of an Equinox module, `params, static = eqx.partition(model, eqx.is_array)`, with "
    "`eqx.combine(params, static)` inside `apply`; of an NNX module, `graph, params = "
    "nnx.split(model)`, with `nnx.merge(graph, params)` inside `apply`."
)


def build(options: Symmetries) -> Network:
    """`apply`, parameters and an input, of a name or of `file.py:name`.

    Raises:
        ValueError: if `--model` names no network, or an option is missing or too much.
    """
    for side in options.input_shape or ():
        checks.at_least(1, **{"--input-shape": side})
    checks.at_least(1, **{"--num-outputs": options.num_outputs})
    if options.model in INPUT_SHAPES:
        module = models.build(options.model, options.num_outputs)
        shape = options.input_shape or INPUT_SHAPES[options.model]
        return _initialised(options, module, shape)
    made = _made(options.model)
    if isinstance(made, nn.Module):
        if options.input_shape is None:
            raise ValueError(
                f"`--input-shape` is needed for the flax module {options.model}: the "
                f"shape of one input, such as --input-shape 32 32 3."
            )
        return _initialised(options, made, options.input_shape)
    if options.input_shape is not None or options.input_dtype != "float32":
        raise ValueError(
            f"`--input-shape` and `--input-dtype` are for flax modules; "
            f"{options.model} returns its own input. Leave them out."
        )
    return made


def _initialised(
    options: Symmetries, module: nn.Module, shape: tuple[int, ...]
) -> Network:
    """A flax module with random inputs and initial parameters.

    Raises:
        ValueError: if it can't be initialised with such inputs.
    """
    key = jax.random.key(0)
    if options.input_dtype == "int32" or options.model in OF_WORDS:
        x = jax.random.randint(key, (4, *shape), 0, 2, jnp.int32)
    else:
        x = jax.random.normal(key, (4, *shape), jnp.float32)
    try:
        return module.apply, module.init(jax.random.key(1), x), x
    except Exception as error:
        said = _said(error, options.model)
        raise ValueError(
            f"`--model` {options.model} could not be initialised with "
            f"{options.input_dtype} inputs of shape {x.shape}: {said}\n"
            f"Those are 4 examples of `--input-shape` {' '.join(map(str, shape))}. For "
            f"token ids, use `--input-dtype int32`. If the module takes anything else, "
            f"name a function without arguments that returns (apply, params, x)."
        ) from error


def _made(model: str) -> Any:
    """The module, or (apply, params, x), that `file.py:name` is or returns.

    Raises:
        ValueError: if it is neither.
    """
    found = _load(model)
    if callable(found) and not isinstance(found, nn.Module):
        plain = inspect.isroutine(found) or inspect.isclass(found)
        try:
            found = found()
        except (Exception, SystemExit) as error:
            raise ValueError(
                f"`--model` {model} could not be called without arguments: "
                f"{_said(error, model)}\nIt must be {EXPECTED}."
                + ("" if plain else f" {RECIPE}")
            ) from error
    if isinstance(found, nn.Module):
        return found
    if not (isinstance(found, tuple) and len(found) == 3 and callable(found[0])):
        raise ValueError(
            f"`--model` {model} must be {EXPECTED}; it gave {_kind(found)}."
        )
    for name, tree in zip(("params", "x"), found[1:], strict=True):
        _require_arrays(f"{name} of `--model` {model}", tree)
    return found


def _kind(value: Any) -> str:
    """Such as `int`, or `tuple of (dict, function)`."""
    kind = type(value).__name__
    if not isinstance(value, tuple):
        return kind
    return f"{kind} of ({', '.join(type(part).__name__ for part in value)})"


def _require_arrays(what: str, tree: Any) -> None:
    """Require a pytree that `jax.jit` would take.

    Raises:
        ValueError: if a leaf is no array.
    """
    for path, leaf in zip(trees.paths(tree), jax.tree.leaves(tree), strict=True):
        try:
            jax.eval_shape(lambda leaf: leaf, leaf)
        except TypeError as error:
            raise ValueError(
                f"The {what} must be a pytree of arrays, got a {type(leaf).__name__} "
                f"at `{path}`. Keep in them what is an array, and in a closure what "
                f"isn't. {RECIPE}"
            ) from error


def _load(model: str) -> Any:
    """The object `name` of a Python file, which is run.

    Raises:
        ValueError: if there is no such file or object, or it can't be run.
    """
    expected = f"`--model` must be {', '.join(INPUT_SHAPES)} or path/to/file.py:name"
    place, _, name = model.rpartition(":")
    file = Path(place)
    if not (place and name):
        hint = f" Name what is in it: {place or name}:name." if ".py" in model else ""
        raise ValueError(f"{expected}, got {model!r}.{hint}")
    if not file.is_file():
        raise ValueError(f"{expected}, but there is no file {file}.")
    module = _run(file, model)
    if not hasattr(module, name):
        named = [
            key for key, value in vars(module).items() if _may_be_meant(key, value)
        ]
        raise ValueError(
            f"`--model` {file} has no `{name}`; it has {', '.join(named) or 'nothing'}."
        )
    return getattr(module, name)


def _may_be_meant(name: str, value: Any) -> bool:
    return not name.startswith("_") and (callable(value) or isinstance(value, tuple))


def _run(file: Path, model: str) -> ModuleType:
    """Run a Python file as a module, beside the files of its folder.

    Raises:
        ValueError: if it is none, or fails.
    """
    # Dataclasses look their module up by its name, which must not hide another one.
    spec = importlib.util.spec_from_file_location("symjax_network", file)
    if spec is None or spec.loader is None:
        raise ValueError(
            f"`--model` {file} is no Python file; its name must end in .py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(file.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(
            f"`--model` {file} could not be run: {_said(error, model)}"
        ) from error
    return module


def _said(error: BaseException, model: str) -> str:
    """The error, and the last line of the user's file on the way to it."""
    file = Path(model.rpartition(":")[0]).resolve()
    frames = traceback.extract_tb(error.__traceback__)
    lines = [one.lineno for one in frames if Path(one.filename).resolve() == file]
    place = f" (line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {error}{place}"
