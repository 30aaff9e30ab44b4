"""Convolutional networks: pooling, flattening, norms, groups of channels, residuals."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from symjax import models
from zoo.network import Case, inputs, linen, plain


IMAGES = inputs(2, 8, 8, 3)


class CNN(nn.Module):
    """Two convolutions, pooling of both kinds, a flattened axis, two dense layers."""

    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(5, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.avg_pool(nn.tanh(nn.Conv(7, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(11)(x.reshape(len(x), -1)))
        return nn.Dense(2)(x)


class Separable(nn.Module):
    """Convolutions by depth: one filter a channel, then 3, and 1 x 1 between them."""

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(5, (3, 3))(x))
        x = nn.relu(nn.Conv(5, (3, 3), feature_group_count=5)(x))
        x = nn.relu(nn.Conv(7, (1, 1))(x))
        x = nn.relu(nn.Conv(21, (3, 3), feature_group_count=7)(x))
        return nn.Dense(2)(jnp.mean(x, axis=(1, 2)))


class Grouped(nn.Module):
    """A convolution of 3 groups: of 5 channels before it and of 2 after it."""

    @nn.compact
    def __call__(self, x):
        x = nn.tanh(nn.Conv(15, (3, 3))(x))
        x = nn.relu(nn.Conv(6, (3, 3), feature_group_count=3)(x))
        return nn.Dense(2)(jnp.mean(x, axis=(1, 2)))


class Dense(nn.Module):
    """DenseNet: every layer reads the channels of all layers before it."""

    @nn.compact
    def __call__(self, x):
        for growth in (5, 7, 4):
            narrow = nn.tanh(nn.Conv(6, (1, 1))(nn.relu(x)))
            new = nn.Conv(growth, (3, 3))(narrow)
            x = jnp.concatenate([x, new], axis=-1)
        x = nn.Conv(11, (1, 1), use_bias=False)(x)
        return nn.Dense(2)(jnp.max(x, axis=(1, 2)))


class Residual(nn.Module):
    """A residual network, with two blocks in each stage; ResNet-18 with 4 stages."""

    width: int
    norm: Callable[[], Any]
    activation: Callable[[Any], Any] = nn.relu
    stages: int = 4
    blocks: int = 2

    @nn.compact
    def __call__(self, x):
        def layer(x, features, kernel=3, stride=1):
            sides = (kernel, kernel)
            x = nn.Conv(features, sides, stride, use_bias=False)(x)
            return self.norm()(x)

        x = self.activation(layer(x, self.width))
        for stage in range(self.stages):
            features = self.width * 2**stage
            for block in range(self.blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                change = self.activation(layer(x, features, stride=stride))
                change = layer(change, features)
                if stride == 2:
                    x = layer(x, features, kernel=1, stride=2)
                x = self.activation(x + change)
        return nn.Dense(2)(jnp.mean(x, axis=(1, 2)))


def group_norm_head():
    """Channels in 3 groups of 4 are flattened after the norm."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(nn.GroupNorm(3)(nn.Conv(12, (3, 3), strides=2)(x)))
            return nn.Dense(2)(x.reshape(len(x), -1))

    return linen(Network(), IMAGES)


def frn():
    """The threshold of filter response normalisation scales with what it cuts."""

    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.relu(models.ConvFRN(5)(x))
            return nn.Dense(2)(jnp.mean(x, axis=(1, 2)))

    return linen(Network(), IMAGES)


def one_dimensional():
    """Channels before time, instance normalisation, a transposed convolution."""

    def apply(p, x):
        conv = partial(
            jax.lax.conv_general_dilated, dimension_numbers=("NCW", "OIW", "NCW")
        )
        x = conv(x, p["first"], (1,), "SAME")
        centred = x - jnp.mean(x, axis=2, keepdims=True)
        x = jnp.tanh(centred * jax.lax.rsqrt(jnp.var(x, axis=2, keepdims=True) + 0.1))
        x = conv(x, p["second"], (1,), [(1, 1)], lhs_dilation=(2,))
        return jnp.einsum("nct,co->no", jax.nn.relu(x), p["out"])

    shapes = {"first": (5, 3, 3), "second": (7, 5, 3), "out": (7, 2)}
    return plain(apply, inputs(2, 3, 6), **shapes)


def channels_first():
    """Two groups of 3 channels beside 4 others, flattened with channels outermost."""

    def apply(p, x):
        pairs = jnp.einsum("nwi,igc->ngcw", x, p["pairs"])
        others = jnp.einsum("nwi,ic->ncw", x, p["others"])
        maps = jnp.concatenate([pairs.reshape(len(x), 6, -1), others], axis=1)
        return jnp.tanh(maps).reshape(len(x), -1) @ p["out"]

    return plain(apply, inputs(4, 5, 3), pairs=(3, 2, 3), others=(3, 4), out=(50, 2))


def examples_last(kernel, maps):
    """Layouts of the second convolution that have samples behind channels."""

    def apply(p, x):
        convolve = jax.lax.conv_general_dilated
        hidden = convolve(
            x, p["in"], (1,), "SAME", dimension_numbers=("NWC", "WIO", "CWN")
        )
        layouts = ("CWN", kernel, maps)
        hidden = convolve(
            jnp.tanh(hidden), p["hidden"], (1,), "SAME",
            dimension_numbers=layouts, feature_group_count=2,
        )  # fmt: skip
        return jax.nn.relu(jnp.einsum(f"{maps},CO->NO", hidden, p["out"]))

    sizes = {"W": 3, "I": 3, "O": 4}
    shape = tuple(sizes[name] for name in kernel)
    shapes = {"in": (3, 3, 6), "hidden": shape, "out": (4, 2)}
    return lambda: plain(apply, inputs(2, 5, 3), **shapes)


def resnet(width, norm, **options):
    return lambda: linen(Residual(width, norm, **options), IMAGES)


def library(name, **options):
    return lambda: linen(models.build(name, 2, **options), IMAGES)


_batch_norm = partial(nn.BatchNorm, use_running_average=True)
_group_norm = partial(nn.GroupNorm, num_groups=3)


CASES = [
    Case("cnn", lambda: linen(CNN(), IMAGES), "5 7 11", "5 11", "7"),
    Case("lenet", library("lenet"), "6 16 120 84", "", "6 16 120 84"),
    Case(
        "separable",
        lambda: linen(Separable(), IMAGES),
        "5 7 7x3",
        "5 5 7 7x3",
    ),
    Case("grouped", lambda: linen(Grouped(), IMAGES), "3 3x5 3x2", "3x2", "3x5"),
    # The layer of 4 is the one whose channels meet no relu.
    Case(
        "densenet",
        lambda: linen(Dense(), IMAGES),
        "5 7 4 6 6 6 11",
        "5 7 4 11",
        "4 6 6 6",
    ),
    Case("group norm, flattened", group_norm_head, "3 3x4", "3x4", "3"),
    Case("one-dimensional", one_dimensional, "5 7", "7", "5"),
    # 3 inner groups a stage and its stream; every normalisation is odd, and its epsilon
    # fixes the scale.
    Case(
        "resnet20 frn",
        library("resnet20_frn"),
        "16 " * 4 + "32 " * 4 + "64 " * 4,
        "",
        "16 " * 7 + "32 " * 7 + "64 " * 7,
    ),
    Case("frn relu", frn, "5", "5", "5"),
    Case("channels first", channels_first, "2 2x3 4", "", "2x3 4"),
    Case("examples last", examples_last("WIO", "CWN"), "2 2x3 2x2", "2x2", "2x3 2x2"),
    Case("filters first", examples_last("OWI", "WCN"), "2 2x3 2x2", "2x2", "2x3 2x2"),
    Case(
        "resnet20 group norm",
        resnet(6, _group_norm, activation=nn.silu, stages=3, blocks=3),
        "3 " * 12 + "3x2 " * 4 + "3x4 " * 4 + "3x8 " * 4,
        "",
        "3 " * 21,
    ),
    # The variance alone fixes no scale: one from the convolution to the norm's mean and
    # gain at every norm, and one from gain and bias to what reads them.
    Case(
        "resnet18 batch norm",
        resnet(2, _batch_norm),
        "2 " * 3 + "4 " * 3 + "8 " * 3 + "16 " * 3,
        "2 " * 8 + "4 " * 8 + "8 " * 8 + "16 " * 8,
        "2 " * 5 + "4 " * 5 + "8 " * 5 + "16 " * 5,
    ),
    Case(
        "resnet18 group norm",
        resnet(6, _group_norm),
        "3 " * 12 + "3x2 " * 3 + "3x4 " * 3 + "3x8 " * 3 + "3x16 " * 3,
        "3x2 " * 3 + "3x4 " * 3 + "3x8 " * 3 + "3x16 " * 3,
        "3 " * 20,
    ),
]
