"""Larger networks whose symmetries are timed, that `symjax.models` has not."""

from functools import partial

import flax.linen as nn
import jax.numpy as jnp


class ResNet18(nn.Module):
    """Four stages of two blocks with batch normalisation (He et al. 2016, table 1)."""

    width: int

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        norm = partial(nn.BatchNorm, use_running_average=True)

        def layer(x, features, kernel=3, stride=1):
            sides, strides = (kernel, kernel), (stride, stride)
            return norm()(nn.Conv(features, sides, strides, use_bias=False)(x))

        x = nn.relu(layer(x, self.width))
        for stage in range(4):
            features = self.width * 2**stage
            for block in range(2):
                stride = 2 if stage > 0 and block == 0 else 1
                change = nn.relu(layer(x, features, stride=stride))
                change = layer(change, features)
                if stride == 2:
                    x = layer(x, features, kernel=1, stride=2)
                x = nn.relu(x + change)
        return nn.Dense(10)(jnp.mean(x, axis=(1, 2)))


class ConvLSTM(nn.Module):
    """Embedded tokens, a convolution, pooling, an LSTM, and two classes."""

    width: int

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Embed(100, self.width)(x)
        x = nn.max_pool(nn.relu(nn.Conv(self.width, (3,))(x)), (2,), (2,))
        states = jnp.asarray(nn.RNN(nn.LSTMCell(self.width))(x))
        return nn.Dense(2)(states[:, -1])


class Transformer(nn.Module):
    """Pre-norm layers of attention and an MLP over embedded tokens."""

    width: int
    heads: int = 4
    layers: int = 2
    expansion: int = 2
    num_tokens: int = 100
    num_outputs: int = 10
    pools: bool = True

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Embed(self.num_tokens, self.width)(x)
        x = x + self.param("positions", nn.initializers.normal(), x.shape[1:])
        for _ in range(self.layers):
            h = nn.LayerNorm()(x)
            x = x + nn.MultiHeadDotProductAttention(self.heads)(h, h)
            hidden = nn.Dense(self.expansion * self.width)(nn.LayerNorm()(x))
            x = x + nn.Dense(self.width)(nn.gelu(hidden))
        x = nn.LayerNorm()(x)
        return nn.Dense(self.num_outputs)(x.mean(axis=1) if self.pools else x)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with BatchNorm around a residual stream."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        shortcut = x
        sizes = ((1, 1, self.features), (3, self.stride, self.features))
        for size, stride, features in sizes:
            x = nn.Conv(features, (size, size), (stride, stride), use_bias=False)(x)
            x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.Conv(4 * self.features, (1, 1), use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        if x.shape != shortcut.shape:
            stride = (self.stride, self.stride)
            shortcut = nn.Conv(x.shape[-1], (1, 1), stride, use_bias=False)(shortcut)
            shortcut = nn.BatchNorm(use_running_average=True)(shortcut)
        return nn.relu(x + shortcut)


class ResNet50(nn.Module):
    """Four stages of bottleneck blocks (He et al. 2016, Table 1)."""

    @nn.compact
    def __call__(self, x):
        """Return outputs."""
        x = nn.Conv(64, (7, 7), (2, 2), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=True)(x))
        x = nn.max_pool(x, (3, 3), (2, 2), "SAME")
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                stride = 2 if stage and not block else 1
                x = Bottleneck(64 * 2**stage, stride)(x)
        return nn.Dense(1000)(x.mean(axis=(1, 2)))
