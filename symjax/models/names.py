"""Networks by name."""

import dataclasses
from typing import Any

import flax.linen as nn

from symjax import checks
from symjax.models.activations import ACTIVATIONS, Activation
from symjax.models.alexnet import AlexNet
from symjax.models.cnn_lstm import CNNLSTM
from symjax.models.lenet import LeNet, LeNetMaxPool
from symjax.models.mlp import MLP
from symjax.models.residual import ResNet18, ResNet18FRN, ResNet20
from symjax.models.resnet import ResNet20FRN
from symjax.models.vit import ViT


MODELS: dict[str, type[nn.Module]] = {
    "mlp": MLP,
    "lenet": LeNet,
    "lenet_maxpool": LeNetMaxPool,
    "alexnet": AlexNet,
    "resnet20_frn": ResNet20FRN,
    "resnet18_frn": ResNet18FRN,
    "resnet20": ResNet20,
    "resnet18": ResNet18,
    "vit": ViT,
    "cnn_lstm": CNNLSTM,
}

BATCH_NORMALISED = ("resnet20", "resnet18")
"""The networks that can be read and compared, but of which there is no posterior."""


_NO_SIZES = ("activation", "widths")


def build(name: str, num_outputs: int, **options: Any) -> nn.Module:
    """A network by name.

    Args:
        name: One of `MODELS`.
        num_outputs: Outputs an example: classes, or (twice, with a variance head) the
            targets.
        **options: Attributes of the network's class; `activation` by name: relu, tanh,
            silu or gelu. relu has a kink, where the leapfrog's error is of first order.

    Raises:
        ValueError: if the name, an option or an activation is unknown.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> model = build("mlp", 10, widths=(32,), activation="silu")
        >>> params = model.init(jax.random.key(0), jnp.zeros((1, 64)))
        >>> model.apply(params, jnp.zeros((5, 64))).shape
        (5, 10)
    """
    if name not in MODELS:
        raise ValueError(f"`name` must be one of {', '.join(MODELS)}, got {name!r}.")
    fields = {field.name for field in dataclasses.fields(MODELS[name])}
    known = sorted(fields - {"num_outputs", "parent", "name"})
    for option in options:
        if option not in known:
            raise ValueError(
                f"`{option}` is no option of {name}, which takes {', '.join(known)}."
            )
    if "activation" in options:
        options["activation"] = _activation(options["activation"])
    if "widths" in options:
        options["widths"] = tuple(options["widths"])
        for width in options["widths"]:
            checks.at_least(1, widths=width)
    sizes = {key: options[key] for key in options if key not in _NO_SIZES}
    checks.at_least(1, num_outputs=num_outputs, **sizes)
    return MODELS[name](num_outputs=num_outputs, **options)


def defaults(name: str) -> dict[str, Any]:
    """The widths and the activation of a network of which nothing was said.

    Args:
        name: Of the network; any other has none.
    """
    fields = dataclasses.fields(MODELS[name]) if name in MODELS else ()
    words: dict[Any, str] = {function: word for word, function in ACTIVATIONS.items()}
    return {
        field.name: words[field.default]
        if field.name == "activation"
        else field.default
        for field in fields
        if field.name in ("widths", "activation")
    }


def _activation(name: str) -> Activation:
    if name not in ACTIVATIONS:
        raise ValueError(
            f"`activation` must be one of {', '.join(ACTIVATIONS)}, got {name!r}."
        )
    return ACTIVATIONS[name]
