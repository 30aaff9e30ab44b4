"""Samples and checkpoints from elsewhere, and our networks against haiku's and SciPy's.

Haiku's networks here are written from the publications, with haiku's own layers.
"""

import collections
import json
import os
import pickle
import struct
import sys
import types
from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from commands import symjax
from haiku._src import data_structures

from symjax import interop, models, store
from symjax.interop import checkpoints, safetensors


class Frn(hk.Module):
    """Filter response normalisation."""

    def __call__(self, x):
        shape = (1, 1, 1, x.shape[-1])
        tau = hk.get_parameter("tau", shape, init=jnp.zeros)
        beta = hk.get_parameter("beta", shape, init=jnp.zeros)
        gamma = hk.get_parameter("gamma", shape, init=jnp.ones)
        size = jnp.sqrt(jnp.mean(x**2, (1, 2), keepdims=True) + 1e-6)
        return jnp.maximum(gamma * x / size + beta, tau)


def resnet20_frn(x):
    def layer(x, channels, kernel=3, stride=1):
        return Frn(name="frn")(hk.Conv2D(channels, kernel, stride)(x))

    x = jax.nn.swish(layer(x, 16))
    for stage, channels in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            y = layer(jax.nn.swish(layer(x, channels, 3, stride)), channels)
            x = jax.nn.swish(y + (layer(x, channels, 1, 2) if stride == 2 else x))
    return hk.Linear(10)(jnp.mean(x, (1, 2)))


def cnn_lstm(x):
    x = jax.nn.relu(hk.Conv1D(64, 5, padding="VALID")(hk.Embed(20_000, 128)(x)))
    x = hk.MaxPool(4, 4, "VALID", channel_axis=2)(x)
    core = hk.LSTM(128)
    start = core.initial_state(len(x))
    return hk.Linear(2)(hk.static_unroll(core, x.swapaxes(0, 1), start)[0][-1])


def lenet_maxpool(x):
    for channels in (6, 16, 120):
        x = jax.nn.relu(hk.Conv2D(channels, 5)(x))
        x = hk.MaxPool(3, 2, "VALID")(x)
    x = jax.nn.relu(hk.Linear(84)(hk.Flatten()(x)))
    return hk.Linear(10)(x)


def lenet(x):
    x = jnp.tanh(hk.Conv2D(6, 5)(x[..., None]))
    x = hk.AvgPool(2, 2, "VALID", channel_axis=3)(x)
    x = jnp.tanh(hk.Conv2D(16, 5, padding="VALID")(x))
    x = hk.Flatten()(hk.AvgPool(2, 2, "VALID", channel_axis=3)(x))
    for units in (120, 84):
        x = jnp.tanh(hk.Linear(units)(x))
    return hk.Linear(10)(x)


def alexnet(x):
    for channels, kernel in ((64, 3), (128, 3), (256, 2), (128, 2), (64, 2)):
        x = jax.nn.relu(hk.Conv2D(channels, kernel)(x))
        if kernel == 3:
            x = hk.MaxPool((2, 2, 1), (2, 2, 1), "VALID")(x)
    x = jax.nn.relu(hk.Linear(256)(hk.Flatten()(x)))
    x = jax.nn.relu(hk.Linear(256)(x))
    return hk.Linear(10)(x)


def random_like(shapes, seed=0, lead=()):
    """Parameters that are all felt: none zero, thresholds within reach."""
    generator = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (
            generator.normal(size=(*lead, *leaf.shape))
            * (1.5 / np.sqrt(max(1, np.prod(leaf.shape[:-1]))))
        ).astype(np.float32),
        shapes,
    )


def saved(path, value):
    path.write_bytes(pickle.dumps(value))
    return path


@pytest.mark.parametrize(
    ("name", "network", "shape"),
    [
        ("resnet20_frn", resnet20_frn, (2, 8, 8, 3)),
        ("cnn_lstm", cnn_lstm, (2, 21)),
        ("lenet_maxpool", lenet_maxpool, (2, 16, 15, 3)),
        ("alexnet", alexnet, (2, 8, 8, 3)),
        ("lenet", lenet, (2, 13, 12)),
    ],
)
def test_haikus_parameters_give_haikus_outputs(tmp_path, name, network, shape):
    """Three chains in a state, as HMC samples have been released."""
    x: Any = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    if name == "cnn_lstm":
        x = np.random.default_rng(1).integers(0, 20_000, shape, np.int32)
    theirs = hk.without_apply_rng(hk.transform(network))
    shapes = jax.eval_shape(theirs.init, jax.random.key(0), x)
    params = random_like(shapes, lead=(3,))
    file = saved(tmp_path / "state.p", {"params": params, "step_size": 1e-5})

    model: Any = models.build(name, 2 if name == "cnn_lstm" else 10)
    like = jax.eval_shape(model.init, jax.random.key(0), x)
    read = interop.read(file)
    assert checkpoints.suggest_model(read.arrays) == name
    ours = read.params(name, like)
    assert jax.tree.leaves(ours)[0].shape[:2] == (3, 1)
    chain = 1
    expected = jax.jit(theirs.apply)(jax.tree.map(lambda leaf: leaf[chain], params), x)
    found = jax.jit(model.apply)(jax.tree.map(lambda leaf: leaf[chain, 0], ours), x)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=2e-5 * scale, rtol=1e-4)


def convolved(x, kernel, stride=1):
    """PyTorch's convolution of (example, in, row, column) by (out, in, row, column)."""
    edge, size = kernel.shape[2] // 2, kernel.shape[2]
    x = np.pad(x, ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    rows, columns = (side - size + 1 for side in x.shape[2:])
    terms = [
        np.einsum(
            "nirc,oi->norc", x[:, :, i : i + rows, j : j + columns], kernel[..., i, j]
        )
        for i in range(size)
        for j in range(size)
    ]
    out = np.sum(terms, axis=0)
    return out[:, :, ::stride, ::stride]


def torch_forward(arrays, x, blocks):
    """A residual network by PyTorch's names, in float64; He et al. (2016)."""
    arrays = {name: array.astype(float) for name, array in arrays.items()}

    def norm(x, name):
        weight, bias, mean, variance = (
            arrays[f"{name}.{part}"][:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (x - mean) / np.sqrt(variance + 1e-5) * weight + bias

    def layer(x, conv, bn, stride=1):
        return norm(convolved(x, arrays[f"{conv}.weight"], stride), bn)

    x = np.maximum(layer(x.transpose(0, 3, 1, 2).astype(float), "conv1", "bn1"), 0)
    for stage, count in enumerate(blocks, start=1):
        for block in range(count):
            at, stride = f"layer{stage}.{block}.", 2 if stage > 1 and not block else 1
            y = np.maximum(layer(x, f"{at}conv1", f"{at}bn1", stride), 0)
            y = layer(y, f"{at}conv2", f"{at}bn2")
            if f"{at}shortcut.0.weight" in arrays:
                x = layer(x, f"{at}shortcut.0", f"{at}shortcut.1", stride)
            x = np.maximum(x + y, 0)
    return x.mean((2, 3)) @ arrays["linear.weight"].T + arrays["linear.bias"]


def torch_arrays(blocks, width, num_outputs, seed=0):
    """Random arrays under the names of published checkpoints, float16."""
    generator = np.random.default_rng(seed)
    arrays = {}

    def put(conv, bn, before, after, size):
        shape = (after, before, size, size)
        arrays[f"{conv}.weight"] = generator.normal(size=shape) / np.sqrt(before * size)
        arrays[f"{bn}.weight"] = 1 + 0.3 * generator.normal(size=after)
        arrays[f"{bn}.bias"] = 0.3 * generator.normal(size=after)
        arrays[f"{bn}.running_mean"] = 0.3 * generator.normal(size=after)
        arrays[f"{bn}.running_var"] = 0.5 + generator.random(after)

    put("conv1", "bn1", 3, width, 3)
    before = width
    for stage, count in enumerate(blocks, start=1):
        after = width * 2 ** (stage - 1)
        for block in range(count):
            at = f"layer{stage}.{block}."
            put(f"{at}conv1", f"{at}bn1", before, after, 3)
            put(f"{at}conv2", f"{at}bn2", after, after, 3)
            if before != after:
                put(f"{at}shortcut.0", f"{at}shortcut.1", before, after, 1)
            before = after
    arrays["linear.weight"] = generator.normal(size=(num_outputs, before))
    arrays["linear.bias"] = generator.normal(size=num_outputs)
    return {name: array.astype(np.float16) for name, array in arrays.items()}


def write_safetensors(path, arrays, **changes):
    """The format, written by its description."""
    codes = {
        "bool": "BOOL",
        "bfloat16": "BF16",
        "uint8": "U8",
        **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
        **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    }
    header, body = {"__metadata__": {"format": "pt"}}, b""
    for name, array in arrays.items():
        start, body = len(body), body + array.tobytes()
        header[name] = {
            "dtype": codes[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [start, len(body)],
        } | changes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


@pytest.mark.parametrize(
    ("name", "blocks", "prefix"),
    [("resnet20", (3, 3, 3), ""), ("resnet18", (2, 2, 2, 2), "core.model.")],
)
def test_pytorchs_parameters_give_pytorchs_outputs(tmp_path, name, blocks, prefix):
    """Sides that are odd, where paddings differ; a name before all, and counters."""
    arrays = torch_arrays(blocks, width=4, num_outputs=5)
    written = {f"{prefix}{key}": array for key, array in arrays.items()}
    written[f"{prefix}bn1.num_batches_tracked"] = np.array(7)
    file = write_safetensors(tmp_path / "net.safetensors", written)
    x = np.random.default_rng(1).normal(size=(2, 9, 12, 3)).astype(np.float32)
    model: Any = models.build(name, 5, width=4)
    like = jax.eval_shape(model.init, jax.random.key(0), x)
    read = interop.read(file)
    assert checkpoints.suggest_model(read.arrays) == name
    ours = read.params(name, like)
    found = jax.jit(model.apply)(jax.tree.map(lambda leaf: leaf[0, 0], ours), x)
    expected = torch_forward(arrays, x, blocks)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, atol=1e-5 * scale, rtol=1e-4)


def test_safetensors_are_read_whole_or_not_at_all(tmp_path):
    arrays = {
        "half": np.arange(6, dtype=np.float16).reshape(2, 3),
        "brain": np.array([1.5, -2], ml_dtypes.bfloat16),
        "number": np.array(7, np.int64),
        "none": np.zeros((0, 3), np.float32),
        "flags": np.array([True, False, True]),
        "bytes": np.array([0, 200, 255], np.uint8),
        **{
            f"int{bits}": np.array([-(2 ** (bits - 1)), 3], f"int{bits}")
            for bits in (8, 16, 32)
        },
        "double": np.array([1e300, -1.0]),
    }
    file = write_safetensors(tmp_path / "a.safetensors", arrays)
    found = safetensors.read_safetensors(file)
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    whole = file.read_bytes()
    some = {"a": np.ones(3, np.float32)}
    for change in (
        lambda: file.write_bytes(whole[:-1]),
        lambda: file.write_bytes(b"\xff" * 16),
        lambda: file.write_bytes(b""),
        lambda: write_safetensors(file, some, data_offsets=[-4, 8]),
        lambda: write_safetensors(file, some, shape=[2]),
        lambda: write_safetensors(file, some, dtype="F3"),
        lambda: write_safetensors(file, some, shape=None),
    ):
        change()
        with pytest.raises(ValueError, match="is no whole safetensors file"):
            safetensors.read_safetensors(file)


class Touches:
    """Whose pickle runs a command."""

    def __init__(self, function, *args):
        self.made = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.made


class OldFlatMapping(dict):
    """What haiku's was called, and how it was pickled."""

    def __reduce__(self):
        return OldFlatMapping, (dict(self),)


OldFlatMapping.__module__ = "haiku._src.data_structures"
OldFlatMapping.__qualname__ = "FlatMapping"


def reconstruct_device_array(*args):
    """Of JAX in 2021, which pickled an array as NumPy's with a state of its own."""


reconstruct_device_array.__module__ = "jax._src.device_array"


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_pickles_of_arrays_are_read(tmp_path, monkeypatch, protocol):
    """Those of haiku, and of old and new JAX and NumPy."""
    old = types.ModuleType("jax._src.device_array")
    monkeypatch.setattr(
        old, "reconstruct_device_array", reconstruct_device_array, False
    )
    monkeypatch.setitem(sys.modules, "jax._src.device_array", old)
    monkeypatch.setattr(data_structures, "FlatMapping", OldFlatMapping)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    made, args, state = array.__reduce__()
    value = {
        "params": OldFlatMapping({"a": {"w": array, "t": np.asfortranarray(array)}}),
        "jax": jnp.asarray(array),
        "old": Touches(
            reconstruct_device_array, made, args, state, {"weak_type": False}
        ),
        "scalar": np.float64(0.5),
        "others": [1, (2.5, None), "text", b"bytes", True],
        "kinds": [
            array.astype(">f8"),
            array.astype(ml_dtypes.bfloat16),
            np.zeros((0 if protocol > 2 else 1, 3), np.int64),
            np.array(3.5, np.float16),
            np.array(["one", "three"]),
            np.arange(24.0).reshape(2, 3, 4).transpose(1, 2, 0),
        ],
    }
    file = tmp_path / "state.p"
    file.write_bytes(pickle.dumps(value, protocol))
    found = interop.read_pickle(file)
    assert type(found["params"]) is dict
    for one in (found["params"]["a"]["w"], found["params"]["a"]["t"]):
        np.testing.assert_array_equal(one, array)
    for key in ("jax", "old"):
        assert type(found[key]) is np.ndarray
        np.testing.assert_array_equal(found[key], array)
    assert (found["scalar"], found["others"]) == (0.5, value["others"])
    for one, wanted in zip(found["kinds"], value["kinds"], strict=True):
        assert one.dtype == wanted.dtype
        np.testing.assert_array_equal(one, wanted)


def test_pickles_that_name_anything_else_are_refused(tmp_path):
    """Nothing is called: no command runs, no file is made, nothing is imported."""
    mark = tmp_path / "mark"
    sneaky = tmp_path / "sneaky.py"
    sneaky.write_text(f"open({str(mark)!r}, 'w')")
    state = np.ones(2).__reduce__()[2]
    attempts = {
        "posix.system": Touches(os.system, f"touch {mark}"),
        "builtins.eval": Touches(eval, f"open({str(mark)!r}, 'w')"),
        "builtins.getattr": Touches(getattr, "text", "upper"),
        "numpy.load": Touches(np.load, str(mark)),
        "collections.Counter": collections.Counter("a"),
        "for an array": Touches(
            jax._src.array._reconstruct_array, os.getcwd, (), state, {}
        ),
    }
    for said, attempt in attempts.items():
        file = saved(tmp_path / "bad.p", {"params": [attempt]})
        said = "posix.getcwd" if said == "for an array" else said
        with pytest.raises(ValueError, match=f"names {said}, which is not called"):
            interop.read_pickle(file)
    # Names that would be imported, and classes below allowed ones.
    for code in (
        b"csneaky\nx\n.",
        b"cnumpy\nndarray.tofile\n.",
        b"c_codecs\nencode\n(V\nVrot13\ntR.",
        b"P0\n.",
    ):
        file = tmp_path / "bad.p"
        file.write_bytes(code)
        sys.path.insert(0, str(tmp_path))
        try:
            with pytest.raises(ValueError, match=r"which is not called"):
                interop.read_pickle(file)
        finally:
            sys.path.pop(0)
    # What is allowed on the way to an array is no value itself.
    for value, kind in (({1, 2}, "set"), (collections.OrderedDict, "type")):
        with pytest.raises(ValueError, match=f"something of the type {kind}"):
            interop.read_pickle(saved(tmp_path / "bad.p", [value]))
    made, args, _ = np.ones(1).__reduce__()
    for value, kind in ((made, "partial"), (Touches(made, *args), "_Array")):
        with pytest.raises(ValueError, match=f"something of the type {kind}"):
            interop.read_pickle(saved(tmp_path / "bad.p", [value]))
    file = saved(tmp_path / "bad.p", np.array([{}], object))
    with pytest.raises(ValueError, match="names the dtype 'O8'"):
        interop.read_pickle(file)
    for content in (b"", b"text", pickle.dumps(np.ones(9))[:-20]):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="bad.p is no pickle of arrays"):
            interop.read_pickle(file)
    assert not mark.exists()


class Built(Touches):
    """Whose pickle gives the state, too."""

    def __reduce__(self):
        function, (state, *args) = self.made
        return function, tuple(args), state


def hostile_dtype(kind, fields):
    """One that NumPy takes for numbers, and whose bytes it follows as pointers."""
    names = None if fields is None else tuple(fields)
    return Built(np.dtype, (3, "|", None, names, fields, 8, 1, 0), kind, False, True)


@pytest.mark.parametrize(
    ("kind", "fields"), [("O8", None), ("V8", {"a": (np.dtype("O"), 0)}), ("f8", "V8")]
)
def test_bytes_do_not_become_pointers(kind, fields, tmp_path):
    scalar = np.float64(0).__reduce__()[0]
    if fields == "V8":  # Numbers at first, whose state makes them something else.
        fields = {"a": (np.dtype("f8"), 0)}
    dtype = hostile_dtype(kind, fields)
    made, args, _ = np.ones(1).__reduce__()
    for value in (
        Touches(scalar, dtype, b"A" * 8),
        Built(made, (1, (4,), dtype, False, b"A" * 32), *args),
        Touches(np.ndarray, (2, 3), dtype),
    ):
        file = saved(tmp_path / "bad.p", {"w": value})
        with pytest.raises(ValueError, match=r"names (the dtype '[OV]8'|a dtype of)"):
            interop.read_pickle(file)
    file = saved(tmp_path / "bad.p", {"w": Touches(np.ndarray, (2, 3))})
    with pytest.raises(ValueError, match="no pickle of arrays: TypeError"):
        interop.read_pickle(file)


def test_a_list_that_holds_one_list_often_is_read_once(tmp_path):
    value = [1.0]
    for _ in range(60):
        value = [value, value]
    found = interop.read_pickle(saved(tmp_path / "laughs.p", value))
    assert found[0] is found[1]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Small data, two draws of three chains of an MLP, images, and two ResNets."""
    folder = tmp_path_factory.mktemp("files")
    generator = np.random.default_rng(0)
    y = np.arange(30) % 3
    for name, shape in (("columns", (4,)), ("images", (8, 8, 3))):
        x = generator.normal(size=(30, *shape)).astype(np.float32)
        arrays = {"x_train": x, "y_train": y, "x_test": x[:20], "y_test": y[:20]}
        np.savez(folder / f"{name}.npz", **arrays)
    mlp = {
        "linear": {"w": np.zeros((4, 5)), "b": np.zeros(5)},
        "linear_1": {"w": np.zeros((5, 3)), "b": np.zeros(3)},
    }
    draws = [
        saved(folder / f"{i}.p", random_like(mlp, seed=i, lead=(3,))) for i in range(2)
    ]
    nets = []
    for seed in range(2):
        arrays = torch_arrays((3, 3, 3), 16, 3, seed)
        nets.append(write_safetensors(folder / f"{seed}.safetensors", arrays))
    return folder, draws, nets


def of_mlp(folder):
    words = ("--model", "mlp", "--widths", "5", "--micro-batch", 30)
    return ("--data", folder / "columns.npz", *words)


def test_imported_samples_are_evaluated_and_aligned(files, capsys):
    folder, draws, _ = files
    runs = folder / "runs"
    symjax("import", *draws, *of_mlp(folder), "--out", runs / "hmc")
    assert "2 draws of 3 chains" in capsys.readouterr().out
    kept = store.open(runs / "hmc")
    assert kept.committed.finished
    found = kept.read_leaf("params/Dense_1/kernel")
    assert found.shape == (3, 2, 5, 3)
    expected = pickle.loads(draws[1].read_bytes())["linear_1"]["w"]
    np.testing.assert_array_equal(found[:, 1], expected)
    np.testing.assert_array_equal(kept.info()["part"], [[0, 1]] * 3)
    symjax("evaluate", runs / "hmc", "--out", folder)
    symjax("align", runs / "hmc")
    assert store.open(runs / "hmc-aligned").committed.num_draws == 2
    symjax("list", runs)
    said = capsys.readouterr().out
    assert "Aligned" in said
    assert "2 of 2" in said
    symjax("sample", "--resume", runs / "hmc", code=2)
    assert "was imported and can't be continued" in capsys.readouterr().err
    # One that was killed is begun anew, a finished one stays.
    record = runs / "hmc" / "commit.json"
    finished = record.read_text()
    symjax("import", *draws, *of_mlp(folder), "--out", runs / "hmc", code=1)
    assert "already holds a run" in capsys.readouterr().err
    record.write_text(finished.replace("true", "false"))
    symjax("import", *draws, *of_mlp(folder), "--out", runs / "hmc")
    assert record.read_text() == finished


@pytest.mark.parametrize("lead", [(), (2,), (2, 3)])
def test_axes_before_those_of_arrays_are_chains_then_draws(tmp_path, lead):
    one = {"linear": {"w": np.zeros((4, 3)), "b": np.zeros(3)}}
    theirs = random_like(one, lead=lead)
    model: Any = models.build("mlp", 3, widths=())
    like = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 4)))
    ours = interop.read(saved(tmp_path / "a.p", theirs)).params("mlp", like)
    kernel = ours["params"]["Dense_0"]["kernel"]
    for chain, draw in np.ndindex(*(*lead, 1, 1)[:2]):
        at = (chain, draw)[: len(lead)]
        np.testing.assert_array_equal(kernel[chain, draw], theirs["linear"]["w"][at])
    assert kernel.shape == (*(*lead, 1, 1)[:2], 4, 3)


def test_numbers_past_the_largest_of_float32_are_not_finite(tmp_path):
    large = {"linear": {"w": np.full((4, 3), 1e300), "b": np.zeros(3)}}
    model: Any = models.build("mlp", 3, widths=())
    like = jax.eval_shape(model.init, jax.random.key(0), np.zeros((1, 4)))
    read = interop.read(saved(tmp_path / "a.p", large))
    with pytest.raises(ValueError, match="linear/w must be finite"):
        read.params("mlp", like)


def test_networks_that_were_imported_are_no_posterior(files, capsys):
    folder, _, nets = files
    data = ("--data", folder / "images.npz", "--micro-batch", 30)
    problem = (*data, "--model", "resnet20")
    symjax("import", *nets, *problem, "--out", folder / "nets")
    kept = store.open(folder / "nets")
    assert kept.read_leaf("params/stem/Conv_0/kernel").shape == (2, 1, 3, 3, 3, 16)
    capsys.readouterr()
    for command in ("sample", "fit"):
        symjax(command, *problem, "--out", folder / "no", code=2)
        assert "`--model` resnet20 has batch normalisation" in capsys.readouterr().err


def test_files_that_do_not_fit_are_named(files, tmp_path, capsys):
    folder, draws, nets = files
    one = pickle.loads(draws[0].read_bytes())
    fewer = saved(tmp_path / "a.p", jax.tree.map(lambda leaf: leaf[:2], one))
    more = saved(tmp_path / "b.p", one | {"linear_9": {"w": np.ones(3)}})
    bad = jax.tree.map(lambda leaf: np.where(leaf > 0.5, np.nan, leaf), one)
    wide = one | {"linear": {"w": np.ones((3, 9, 5)), "b": np.ones((3, 5))}}
    uneven = one | {"linear_1": {key: a[:2] for key, a in one["linear_1"].items()}}
    for words, message in (
        ((), "`files` must name at least one file"),
        ((draws[0], nets[0]), "must all end in .safetensors or all be pickles"),
        ((draws[0], fewer), "a.p holds 2 chains of 1 draws, but"),
        ((more,), "b.p holds linear_9/w, which is no part of mlp"),
        ((saved(tmp_path / "c.p", bad),), "must be finite"),
        ((saved(tmp_path / "d.p", [1]),), "must hold haiku's parameters"),
        ((tmp_path / "e.p",), "can't be read"),
        ((saved(tmp_path / "f.p", wide),), "linear/w must have the shape (4, 5), as"),
        ((saved(tmp_path / "g.p", uneven),), "must have as many chains and draws"),
        ((nets[0],), "its names are those of --model resnet20"),
    ):
        symjax("import", *words, *of_mlp(folder), "--out", tmp_path / "run", code=2)
        assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
