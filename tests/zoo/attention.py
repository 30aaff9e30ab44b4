"""Transformers: heads and the units in them, rotary positions, ties and stacks."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from zoo.network import Case, linen, plain, tokens


HEADS, HEAD, STREAM, UNITS, VOCABULARY, LENGTH = 3, 4, 11, 13, 7, 5
IDS = tokens(VOCABULARY, 4, LENGTH)


class Block(nn.Module):
    """A pre-norm layer. Heads: 3, with 4 units each; the stream has 11, the MLP 13."""

    norm: type[nn.Module] = nn.LayerNorm
    activation: functools.partial = functools.partial(nn.gelu)

    @nn.compact
    def __call__(self, stream, _=None):
        attention = nn.MultiHeadDotProductAttention(
            HEADS, qkv_features=HEADS * HEAD, dropout_rate=0.1, deterministic=True
        )
        stream = stream + attention(self.norm()(stream))
        hidden = self.activation(nn.Dense(UNITS)(self.norm()(stream)))
        return stream + nn.Dense(STREAM)(hidden), None


class Transformer(nn.Module):
    """Tokens with learned positions; classes of the sequence, or tokens again."""

    block: type[nn.Module] | functools.partial = Block
    norm: type[nn.Module] = nn.LayerNorm
    tied: bool = False
    layers: int = 1
    stacked: bool = False

    @nn.compact
    def __call__(self, x):
        embed = nn.Embed(VOCABULARY, STREAM)
        stream = embed(x) + self.param(
            "positions", nn.initializers.normal(), (LENGTH, STREAM)
        )
        if self.stacked:
            block = nn.scan(
                nn.remat(self.block, prevent_cse=False),
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            stream, _ = block()(stream, None)
        else:
            for _ in range(self.layers):
                stream, _ = self.block()(stream)
        stream = self.norm()(stream)
        return embed.attend(stream) if self.tied else nn.Dense(2)(stream.mean(axis=1))


def transformer(**options):
    return lambda: linen(Transformer(**options), IDS)


def _attend(q, k, v):
    scores = jnp.einsum("nqhd,nkhd->nhqk", q, k) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones((LENGTH, LENGTH), bool)), scores, -1e9)
    return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), v)


def _rotate_halves(x):
    """Rotary positions: unit i turns with unit i + 2, at a pace of its own."""
    angles = jnp.arange(LENGTH)[:, None, None] / 10.0 ** jnp.arange(HEAD // 2)
    cos, sin = (jnp.concatenate([f(angles)] * 2, axis=-1) for f in (jnp.cos, jnp.sin))
    one, two = jnp.split(x, 2, axis=-1)
    return x * cos + jnp.concatenate([-two, one], axis=-1) * sin


def _rotate_pairs(x):
    """Rotary positions: unit 2i turns with unit 2i + 1."""
    angles = jnp.arange(LENGTH)[:, None, None] / 10.0 ** jnp.arange(HEAD // 2)
    one, two = x[..., ::2], x[..., 1::2]
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack([one * cos - two * sin, one * sin + two * cos], axis=-1)
    return turned.reshape(x.shape)


def rotary(rotate):
    """Causal attention with rotary positions; its q, k, v come from one matrix."""

    def apply(p, x):
        stream = p["embedding"][x]
        packed = jnp.split(stream @ p["qkv"], 3, axis=-1)
        q, k, v = (part.reshape(*x.shape, HEADS, HEAD) for part in packed)
        heads = _attend(rotate(q), rotate(k), v).reshape(*x.shape, -1)
        stream = stream + heads @ p["mix"]
        return stream[:, -1] @ p["out"]

    shapes = {
        "embedding": (VOCABULARY, STREAM),
        "qkv": (STREAM, 3 * HEADS * HEAD),
        "mix": (HEADS * HEAD, STREAM),
        "out": (STREAM, 2),
    }
    return lambda: plain(apply, IDS, **shapes)


def grouped_query():
    """Keys and values in 3 groups, each of them shared by 2 heads."""

    def apply(p, x):
        stream = p["embedding"][x]
        q = jnp.einsum("nld,dghe->nlghe", stream, p["query"])
        k, v = (
            jnp.einsum("nld,dge->nlge", stream, p[name]) for name in ("key", "value")
        )
        weights = jax.nn.softmax(jnp.einsum("nqghe,nkge->nghqk", q, k))
        mixed = jnp.einsum("nghqk,nkge->nqghe", weights, v)
        return jnp.einsum("nqghe,gheo->nqo", mixed, p["out"])

    shapes = {
        "embedding": (VOCABULARY, STREAM),
        "query": (STREAM, 3, 2, 4),
        "key": (STREAM, 3, 4),
        "value": (STREAM, 3, 4),
        "out": (3, 2, 4, 2),
    }
    return lambda: plain(apply, IDS, **shapes)


CASES = [
    # Of signs: the gains of 3 norms, the stream as a whole, and q/k and v/o units.
    Case(
        "transformer",
        transformer(),
        "11 3 3x4 3x4 13",
        "11 11 11 3x4 3x4",
        "11 11 11 1 3x4 3x4",
    ),
    Case(
        "transformer relu",
        transformer(block=functools.partial(Block, activation=nn.relu)),
        "11 3 3x4 3x4 13",
        "11 11 11 3x4 3x4 13",
        "11 11 11 1 3x4 3x4",
    ),
    # RMSNorm centres nothing, so each feature of the stream has its own sign.
    Case(
        "transformer rms norm",
        transformer(norm=nn.RMSNorm, block=functools.partial(Block, norm=nn.RMSNorm)),
        "11 3 3x4 3x4 13",
        "11 11 11 3x4 3x4",
        "11 11 11 11 3x4 3x4",
    ),
    # The last norm's gain meets the embedding, which is no longer free.
    Case(
        "transformer tied",
        transformer(tied=True),
        "11 3 3x4 3x4 13",
        "11 11 3x4 3x4",
        "11 11 1 3x4 3x4",
    ),
    Case(
        "transformer of 2 layers",
        transformer(layers=2),
        "11 3 3 3x4 3x4 3x4 3x4 13 13",
        "11 11 11 11 11 3x4 3x4 3x4 3x4",
        "11 11 11 11 11 1 3x4 3x4 3x4 3x4",
    ),
    Case(
        "transformer stacked",
        transformer(layers=2, stacked=True),
        "11 2x3 2x3x4 2x3x4 2x13",
        "11 2x11 2x11 2x3x4 2x3x4",
        "11 2x11 2x11 1 2x3x4 2x3x4",
    ),
    # Units that turn together share a scale and a sign, and have a pace of their own.
    Case(
        "rotary halves", rotary(_rotate_halves), "11 3 3x4", "11 3x2 3x4", "11 3x2 3x4"
    ),
    Case("rotary pairs", rotary(_rotate_pairs), "11 3 3x4", "11 3x2 3x4", "11 3x2 3x4"),
    Case(
        "grouped query",
        grouped_query(),
        "11 3 3x2 3x4 3x4",
        "11 3x4 3x4",
        "11 3x4 3x4",
    ),
]
