"""Axes whose order shows: entries that are told apart by their position."""

import jax
import jax.numpy as jnp
import numpy as np

from zoo.control import ORDER, PERMUTED, SHAPES, hidden, permuted, whole
from zoo.network import inputs, tokens


def _half_bias(h, p):
    return jnp.tanh(jnp.concatenate([h[:, :3] + p["bias"], h[:, 3:]], axis=1))


def _in_place_bias(h, p):
    return jnp.tanh(h.at[:, :3].add(p["bias"]))


def _ramp(h, p):
    return jnp.tanh(h * jnp.arange(7))


def _iota_mask(h, p):
    return jnp.where(jnp.arange(7) < 3, h, 0)


def _random_mask(h, p):
    kept = jax.random.bernoulli(jax.random.key(0), 0.5, h.shape)
    return jnp.where(kept, h, 0)


def _window(h, p):
    return jax.lax.reduce_window(jnp.tanh(h), 0.0, jax.lax.add, (1, 3), (1, 1), "SAME")


def _overlap(h, p):
    return jnp.tanh(h[:, :6]) + jnp.tanh(h[:, 1:])


def _triangular(h, p):
    return jnp.tanh(h @ jnp.tril(p["w"]))


def _custom(h, p):
    @jax.custom_vjp
    def shifted(h):
        return jnp.tanh(h) + jnp.roll(h, 1, axis=1)

    shifted.defvjp(lambda h: (shifted(h), None), lambda _, t: (t,))
    return shifted(h)


def _cond(h, p):
    return jax.lax.cond(h[0, 0] > 0, jnp.tanh, lambda h: jnp.tanh(h[:, ::-1]), h)


def _branch(h, p):
    return jax.lax.cond(
        p["switch"] > 0, lambda h: jnp.tanh(h) + h[:, ::-1], jnp.tanh, h
    )


def _while(h, p):
    def body(state):
        return state[0] + 1, jnp.tanh(jnp.roll(state[1], 1, axis=1)) + state[1]

    return jax.lax.while_loop(lambda state: state[0] < 2, body, (0, h))[1]


def _counted(h, p):
    """The number of steps is the place of the largest unit."""
    return jax.lax.while_loop(
        lambda state: state[0] < jnp.argmax(h[0]),
        lambda state: (state[0] + 1, state[1] + jnp.tanh(state[1])),
        (0, h),
    )[1]


def _scan_roll(h, p):
    def step(h, _):
        return jnp.tanh(h) + h[:, ::-1], None

    return jax.lax.scan(step, h, None, length=2)[0]


def _mutable(h, p):
    ref = jax.new_ref(jnp.zeros_like(h))
    ref[...] = h * jnp.arange(7)
    return jnp.tanh(h) + jnp.sum(ref[...], axis=1, keepdims=True)


def _signed_zeros(h, p):
    zeros = jnp.asarray(np.where(np.arange(7) < 3, 0.0, -0.0))
    return h + jnp.arctan(1 / zeros)


def _spectrum(h, p):
    return jnp.abs(jnp.fft.fft(h, axis=1))


def _cholesky(h, p):
    factor = jnp.linalg.cholesky(h.T @ h + jnp.eye(7))
    return jnp.tanh(h) @ factor


def _callback(h, p):
    shape = jax.ShapeDtypeStruct(h.shape, h.dtype)
    return jax.pure_callback(lambda h: np.cumsum(h, axis=1, dtype=h.dtype), shape, h)


def _argmax(p, x):
    return jnp.argmax(x @ p["in"], axis=1) * p["gain"]


def _dynamic_slice(h, p):
    return jax.lax.dynamic_slice(jnp.tanh(h), (0, jnp.argmax(h[0]) % 3), (4, 5))


def _slice_of_units(h, p):
    start = jnp.argmax(jnp.sum(h, axis=1)) % 3
    return jax.lax.dynamic_slice(jnp.tanh(h), (0, start), (len(h), 5))


def _scattered(h, p):
    return jnp.tanh(h).at[np.array([3, 1, 0, 2])].set(jnp.tanh(p["rows"]))


def _scattered_by(h, p):
    """A parameter says where rows are written, later ones over earlier ones."""
    return jnp.tanh(h).at[jnp.argmax(p["places"], axis=1)].add(p["rows"])


def _update_slice(h, p):
    start = jnp.argmax(jnp.sum(h, axis=1)) % 3
    return jax.lax.dynamic_update_slice(jnp.tanh(h), jnp.tanh(p["rows"]), (start, 0))


def _shifted_pad(h, p):
    return jnp.tanh(h) + jnp.pad(h, ((0, 0), (1, 0)))[:, :7]


def _shifted_pad_above(h, p):
    return jnp.tanh(h) + jnp.pad(h, ((0, 0), (0, 1)))[:, 1:]


def _keys(h, p):
    with jax.ensure_compile_time_eval():
        keys = jax.random.split(jax.random.key(0), 7)
    return jnp.where(keys == keys[0], h, 2 * h)


def _stacked(h, to):
    """Units and their mirror images are told apart by what they are added to."""
    both = jnp.stack([h, h[:, ::-1]], axis=1) + to
    one, two = jnp.unstack(jnp.tanh(both), axis=1)
    return one + 2 * two


def _mixed(p, x):
    """Units and examples are mixed by a reshape."""
    return jnp.tanh(x @ p["in"]).reshape(-1, 4) @ p["out"]


def _shuffled(h, p):
    """The order of blocks and of the units in them is exchanged."""
    return jnp.tanh(h) + h.reshape(-1, 2, 3).swapaxes(1, 2).reshape(-1, 6)


def _flat(p, x):
    """A convolution without padding, whose maps are flattened."""
    maps = jax.lax.conv_general_dilated(
        x, p["filters"], (1,), "VALID", dimension_numbers=("NWC", "WIO", "NWC")
    )
    return jnp.tanh(maps).reshape(len(x), -1) @ p["out"]


def _channels_first(p):
    """Permute rows of the flattened axis as if channels came before positions."""
    rows = (4 * ORDER[:, None] + np.arange(4)).ravel()
    return permuted(filters=2)(permuted(rows, out=0)(p))


def _embedding(p, x):
    return jnp.tanh(p["embedding"][x]) @ p["out"]


def _stream(p, x):
    return (x + jnp.tanh(x @ p["up"]) @ p["down"]) @ p["out"]


def _no_head(h, p):
    """Biases of 1 and of 5 units on three heads of 2."""
    heads = h.reshape(len(h), 3, 2) * p["gain"][:, None]
    biases = jnp.concatenate([p["one"], p["five"]])
    return jnp.tanh(heads.reshape(h.shape) + biases)


def _other_blocks(p, x):
    """Two blocks of 3 units are added to three blocks of 2."""
    one, two = jnp.tanh(x @ p["one"]), jnp.tanh(x @ p["two"])
    one = (one.reshape(-1, 2, 3) * p["gain"][:, None]).reshape(-1, 6)
    two = (two.reshape(-1, 3, 2) * p["other"][:, None]).reshape(-1, 6)
    both = jnp.concatenate([one, two], axis=1).reshape(-1, 2, 6)
    return jnp.einsum("nku,kuo->no", both, p["out"])


def _learned_image(p, x):
    maps = jax.lax.conv_general_dilated(
        jnp.tanh(p["image"]),
        p["filters"],
        (1,),
        "VALID",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    return x * jnp.tanh(maps).sum(axis=(0, 1)) @ p["out"]


def _parts_of_inputs(p, x):
    return jnp.einsum("nij,ijo->no", jnp.tanh(x.reshape(-1, 2, 3)), p["out"])


def _batch_groups(p, x):
    """The first filters see the first examples, the others the others."""
    maps = jax.lax.conv_general_dilated(
        x,
        p["filters"],
        (1,),
        "VALID",
        dimension_numbers=("NWC", "WIO", "NWC"),
        batch_group_count=2,
    )
    return jnp.tanh(maps) @ p["out"]


def _looked_up(p, x):
    """Examples of each unit in the order of another unit's."""
    units, others = (jnp.einsum("ni,lic->lnc", x, p[name]) for name in ("in", "by"))
    order = jnp.argsort(others, axis=1)
    looked_up = jnp.take_along_axis(jnp.tanh(units), order, axis=1)
    return jnp.einsum("lnc,lco->no", looked_up, p["out"])


def _both_out(p, x):
    units = jnp.tanh(x @ p["in"])
    return units @ p["out"], units


def _blocks_exchanged(h):
    return h.reshape(-1, 2, 3).swapaxes(1, 2).reshape(-1, 6)


SHUFFLED = {
    "and added": lambda h, p: h + _blocks_exchanged(h),
    "and chosen": lambda h, p: jnp.where(h[:, :1] > 0, h, _blocks_exchanged(h)),
    "and joined": lambda h, p: jnp.concatenate([h, _blocks_exchanged(h)]),
    "and written": lambda h, p: jax.lax.dynamic_update_slice(
        h, _blocks_exchanged(h[:4]), (2, 0)
    ),
    "and scattered": lambda h, p: h.at[3].set(_blocks_exchanged(h)[0]),
    "in a product": lambda h, p: h * (h * _blocks_exchanged(h)).sum(1, keepdims=True),
    "in a contraction": lambda h, p: (
        h * jnp.einsum("nu,nu->n", h, _blocks_exchanged(h))[:, None]
    ),
    "in a loop": lambda h, p: jax.lax.scan(
        lambda h, _: (_blocks_exchanged(h), None), h, None, length=3
    )[0],
}

NO_RULE = {"fft": _spectrum, "cholesky": _cholesky, "pure_callback": _callback}

CONTROLS = [
    hidden("half a bias", _half_bias, PERMUTED, "3 4", "", "3 4", bias=(3,)),
    hidden("half a bias in place", _in_place_bias, PERMUTED, bias=(3,)),
    hidden("times arange", _ramp, PERMUTED, "", "", "7"),
    hidden("varying constant", lambda h, p: jnp.tanh(h + np.eye(7)[3]), PERMUTED),
    hidden("iota mask", _iota_mask, PERMUTED, "", "7", "7"),
    hidden("dropout mask", _random_mask, PERMUTED, "", "7", "7"),
    hidden("reversed", lambda h, p: jnp.tanh(h) + h[:, ::-1], PERMUTED),
    hidden("rolled", lambda h, p: jnp.tanh(h) + jnp.roll(h, 2, axis=1), PERMUTED),
    hidden("shifted by padding", _shifted_pad, PERMUTED),
    hidden("shifted by padding above", _shifted_pad_above, PERMUTED),
    hidden(
        "every other",
        lambda h, p: jnp.tanh(h)[:, ::2],
        permuted(**{"in": 1}),
        signs="1",
        out=(4, 2),
    ),
    hidden(
        "every other of four",
        lambda h, p: jnp.sum(jnp.tanh(h)[:, 0:4:2], axis=1, keepdims=True),
        permuted([2, 0, 5, 1, 3, 4], **{"in": 1}),
        out=(1, 2),
        **{"in": (3, 6)},
    ),
    hidden("keys", _keys, PERMUTED, "", "1 6", "1 6"),
    hidden("stacked", lambda h, p: _stacked(h, p["to"]), PERMUTED, to=(2, 7)),
    hidden("sort", lambda h, p: jnp.sort(h, axis=1), PERMUTED),
    hidden("top k", lambda h, p: jax.lax.top_k(h, 7)[0], PERMUTED),
    hidden("cumsum", lambda h, p: jnp.cumsum(h, axis=1), PERMUTED),
    hidden("cummax", lambda h, p: jax.lax.cummax(h, axis=1), PERMUTED),
    hidden("window along units", _window, PERMUTED),
    hidden(
        "slice",
        lambda h, p: h[:, :3] @ p["w"],
        permuted(**{"in": 1}),
        "3 4 7",
        "3 4 7",
        "3 4 7",
        w=(3, 7),
    ),
    hidden("overlapping slices", _overlap, permuted(**{"in": 1}), out=(6, 2)),
    hidden("dynamic slice", _dynamic_slice, permuted(**{"in": 1}), out=(5, 2)),
    *(
        hidden(
            f"shuffled {name}",
            layer,
            permuted([1, 2, 0, 4, 5, 3], **{"in": 1, "out": 0}),
            **{"in": (3, 6), "out": (6, 2)},
        )
        for name, layer in SHUFFLED.items()
    ),
    hidden(
        "dynamic slice of units", _slice_of_units, permuted(**{"in": 1}), out=(5, 2)
    ),
    hidden(
        "rows written by index",
        _scattered,
        permuted([1, 2, 0, 3], rows=0),
        "7",
        "",
        None,
        rows=(4, 7),
    ),
    hidden(
        "rows written where a parameter says",
        _scattered_by,
        permuted([1, 2, 0, 3], places=0),
        "7",
        None,
        None,
        rows=(4, 7),
        places=(4, 9),
    ),
    hidden(
        "rows written in place",
        _update_slice,
        permuted([1, 2, 0, 3], rows=0),
        "7",
        "",
        None,
        rows=(4, 7),
    ),
    hidden("tril", _triangular, PERMUTED, "", "7", "7 7", w=(7, 7)),
    hidden("mutable array", _mutable, PERMUTED),
    hidden("zeros of both signs", _signed_zeros, PERMUTED),
    *(hidden(name, layer, PERMUTED) for name, layer in NO_RULE.items()),
    hidden("custom vjp", _custom, PERMUTED),
    hidden("cond", _cond, PERMUTED),
    hidden("cond on a parameter", _branch, PERMUTED, switch=()),
    hidden("while", _while, PERMUTED),
    hidden("counted by units", _counted, PERMUTED),
    hidden("scan", _scan_roll, PERMUTED),
    hidden(
        "shuffled",
        _shuffled,
        permuted([1, 2, 0, 4, 5, 3], **{"in": 1, "out": 0}),
        **{"in": (3, 6), "out": (6, 2)},
    ),
    whole(
        "argmax",
        _argmax,
        {"in": (3, 7), "gain": ()},
        permuted(**{"in": 1}),
        x=inputs(31, 3),
    ),
    whole(
        "mixed with examples",
        _mixed,
        {"in": (3, 8), "out": (4, 2)},
        permuted([3, 0, 2, 1], out=0),
        "4",
        "",
        "4",
    ),
    hidden(
        "parts that fit no head",
        _no_head,
        permuted([1, 0, 2, 3, 4, 5], **{"in": 1, "out": 0}),
        **{"in": (3, 6), "out": (6, 2)},
        gain=(3,),
        one=(1,),
        five=(5,),
    ),
    whole(
        "blocks of other shapes",
        _other_blocks,
        {"one": (3, 6), "two": (3, 6), "gain": (2,), "other": (3,), "out": (2, 6, 2)},
        permuted([1, 2, 0, 3, 4, 5], two=1),
        "",
        None,
        None,
        x=inputs(16, 3),
    ),
    whole(
        "learned image",
        _learned_image,
        {"image": (1, 5, 3), "filters": (3, 3, 7), "out": (7, 2)},
        permuted([2, 0, 4, 1, 3], image=1),
        "3",
        "",
        "7 3",
        x=inputs(16, 7),
    ),
    whole(
        "parts of inputs",
        _parts_of_inputs,
        {"out": (2, 3, 2)},
        permuted([1, 2, 0], out=1),
        x=inputs(16, 6),
    ),
    whole(
        "batch groups",
        _batch_groups,
        {"filters": (3, 3, 6), "out": (6, 2)},
        permuted([0, 3, 2, 1, 4, 5], filters=2, out=0),
        "",
        "",
        "",
        x=inputs(4, 5, 3),
    ),
    whole(
        "flattened, channels last",
        _flat,
        {"filters": (3, 3, 7), "out": (28, 2)},
        _channels_first,
        "7",
        "",
        "7",
        x=inputs(4, 6, 3),
    ),
    whole(
        "tokens",
        _embedding,
        {"embedding": (5, 7), "out": (7, 2)},
        permuted([4, 2, 0, 1, 3], embedding=0),
        "7",
        "",
        "7",
        x=tokens(5, 4),
    ),
    whole(
        "stream of inputs",
        _stream,
        {"up": (3, 7), "down": (7, 3), "out": (3, 2)},
        permuted([2, 0, 1], up=0, down=1, out=0),
        "7",
        "",
        "7",
    ),
    whole(
        "looked up",
        _looked_up,
        {"in": (3, 3, 4), "by": (3, 3, 4), "out": (3, 4, 2)},
        permuted([1, 2, 0], **{"in": 0, "out": 0}),
        "3x4 3",
        None,
        None,
    ),
    whole("outputs", _both_out, SHAPES, PERMUTED),
]
