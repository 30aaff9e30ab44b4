"""Networks: their sizes, that examples stay apart, and the errors of `build`."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from symjax import models, trees
from symjax.models.cnn_lstm import LSTM


def num_parameters(model, *shape):
    return trees.size(jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(shape)))


def test_parameter_counts_are_the_published_ones():
    assert num_parameters(models.build("mlp", 10), 1, 8, 8, 1) == 2_410
    mlp = models.build("mlp", 2, widths=[5, 7])
    assert num_parameters(mlp, 1, 3) == (3 + 1) * 5 + (5 + 1) * 7 + (7 + 1) * 2
    assert num_parameters(models.build("mlp", 3, widths=()), 1, 4) == 15
    # LeNet-5 on MNIST, with full connections throughout: the textbooks' number.
    assert num_parameters(models.build("lenet", 10), 1, 28, 28) == 61_706


@pytest.mark.parametrize(
    ("name", "classes", "expected"),
    [
        # Izmailov et al. (2021), and their code.
        ("resnet20_frn", 10, 274_042),
        ("resnet20_frn", 100, 279_892),
        ("lenet_maxpool", 10, 142_646),
        ("cnn_lstm", 2, 2_700_098),
        ("alexnet", 10, 1_488_202),
        # PyTorch's count of weights, and a mean and a variance a channel.
        ("resnet18", 10, 11_173_962 + 2 * 4_800),
        ("resnet20", 10, 272_474 + 2 * 784),
        # Biases and thresholds in place of means and variances.
        ("resnet18_frn", 10, 11_173_962 + 2 * 4_800),
    ],
)
def test_parameters_are_as_many_as_published(name, classes, expected):
    shape = (1, 100) if name == "cnn_lstm" else (1, 32, 32, 3)
    model = models.build(name, classes)
    x = jnp.zeros(shape, int if name == "cnn_lstm" else float)
    params = jax.eval_shape(model.init, jax.random.key(0), x)
    assert trees.size(params) == expected


def test_multilayer_perceptrons_have_their_parameters():
    mnist = models.build("mlp", 10, widths=(256, 256))
    assert num_parameters(mnist, 1, 28, 28) == 269_322
    # A mean and a scale of 13 columns, from one hidden layer and from two.
    assert num_parameters(models.build("mlp", 2, widths=(50,)), 1, 13) == 802
    assert num_parameters(models.build("mlp", 2, widths=(100, 100)), 1, 13) == 11_702


def test_a_transformer_has_its_parameters():
    """Of each block four square matrices and two of the hidden layer, with biases."""
    width, patches = 64, 64
    block = 4 * (width + 1) * width + (width + 1) * 4 * width + (4 * width + 1) * width
    expected = (48 + 1 + patches) * width + 4 * (block + 4 * width) + 2 * width
    model = models.build("vit", 10)
    assert num_parameters(model, 1, 32, 32, 3) == expected + (width + 1) * 10 == 207_946


def test_a_transformer_is_its_formula():
    """In NumPy, float64: normalised before each layer, four heads, the mean at last."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 4, 6, 2))
    model: Any = models.build("vit", 3, width=8, depth=2, patch=2)
    shapes = jax.eval_shape(model.init, jax.random.key(0), x)
    params = jax.tree.map(lambda leaf: generator.normal(size=leaf.shape), shapes)
    own = params["params"]

    def dense(name, x):
        return x @ own[name]["kernel"] + own[name]["bias"]

    def norm(name, x):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)
        return x * own[name]["scale"] + own[name]["bias"]

    def attend(name, x):
        query, key, value = (
            np.einsum("npw,whd->nhpd", x, own[name][part]["kernel"])
            + own[name][part]["bias"][:, None]
            for part in ("query", "key", "value")
        )
        weights = special.softmax(query @ key.swapaxes(2, 3) / np.sqrt(2), axis=-1)
        out = np.einsum("nhpd,hdw->npw", weights @ value, own[name]["out"]["kernel"])
        return out + own[name]["out"]["bias"]

    squares = x.reshape(2, 2, 2, 3, 2, 2).swapaxes(2, 3).reshape(2, 6, 2, 2, 2)
    stream = np.einsum("npijc,ijcw->npw", squares, own["patches"]["kernel"])
    stream += own["patches"]["bias"] + own["position"]
    for i in range(2):
        layer = norm(f"LayerNorm_{2 * i}", stream)
        stream = stream + attend(f"MultiHeadDotProductAttention_{i}", layer)
        hidden = dense(f"Dense_{2 * i}", norm(f"LayerNorm_{2 * i + 1}", stream))
        # Flax's gelu is the approximation by tanh.
        cube = np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)
        stream = stream + dense(f"Dense_{2 * i + 1}", hidden / 2 * (1 + np.tanh(cube)))
    expected = dense("Dense_4", norm("LayerNorm_4", stream).mean(axis=1))
    single = jax.tree.map(lambda leaf: leaf.astype(np.float32), (params, x))
    scale = abs(expected).max()
    np.testing.assert_allclose(
        jax.jit(model.apply)(*single), expected, atol=1e-5 * scale
    )


@pytest.mark.parametrize(("channels", "width", "classes"), [(3, 16, 10), (1, 4, 2)])
def test_resnet20_has_its_parameters(channels, width, classes):
    """Convolutions with biases, three vectors a normalisation, and one dense layer."""

    def layer(kernel, before, after):
        return kernel**2 * before * after + after + 3 * after

    expected = layer(3, channels, width) + 6 * layer(3, width, width)
    for w in (width, 2 * width):
        expected += layer(3, w, 2 * w) + layer(1, w, 2 * w) + 5 * layer(3, 2 * w, 2 * w)
    expected += (4 * width + 1) * classes
    model = models.build("resnet20_frn", classes, width=width)
    assert num_parameters(model, 1, 32, 32, channels) == expected
    if width == 16:
        assert expected == 274_042


@pytest.mark.parametrize(
    ("name", "shape", "options"),
    [
        ("mlp", (8, 8, 1), {"widths": (5, 4), "activation": "tanh"}),
        ("lenet", (8, 8), {"activation": "gelu"}),
        ("resnet20_frn", (8, 8, 2), {"width": 3, "activation": "silu"}),
        ("vit", (4, 8), {"width": 4, "depth": 1}),
        ("lenet_maxpool", (15, 15), {"activation": "silu"}),
    ],
)
def test_an_output_depends_on_its_example_and_on_every_parameter(name, shape, options):
    model: Any = models.build(name, 3, **options)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(4, *shape)).astype(np.float32)
    params = jax.tree.map(
        lambda leaf: 0.5 * generator.normal(size=leaf.shape).astype(np.float32),
        jax.eval_shape(model.init, jax.random.key(0), x),
    )
    assert set(params) == {"params"}

    @jax.jit
    def outputs_and_gradient(params, x):
        outputs, pullback = jax.vjp(lambda params: model.apply(params, x), params)
        return outputs, pullback(jnp.ones_like(outputs))[0]

    outputs, gradient = outputs_and_gradient(params, x)
    assert outputs.shape == (4, 3)
    assert outputs.dtype == jnp.float32
    leaves = zip(trees.paths(gradient), jax.tree.leaves(gradient), strict=True)
    assert [path for path, leaf in leaves if not np.any(leaf)] == []

    x[2] = np.nan
    others, _ = outputs_and_gradient(params, x)
    assert np.all(np.isnan(others[2]))
    np.testing.assert_array_equal(np.delete(others, 2, 0), np.delete(outputs, 2, 0))


@pytest.mark.parametrize("name", ["relu", "tanh", "silu", "gelu"])
def test_an_activation_is_found_by_name(name):
    model: Any = models.build("mlp", 1, widths=(1,), activation=name)
    x = jnp.array([[-2.0], [-0.1], [0.7]])
    one = {"kernel": jnp.ones((1, 1)), "bias": jnp.zeros(1)}
    outputs = model.apply({"params": {"Dense_0": one, "Dense_1": one}}, x)
    np.testing.assert_allclose(outputs, getattr(jax.nn, name)(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["mlp"], {"widths": (32,), "activation": "silu"}),
        (["lenet"], {"activation": "tanh"}),
        (["resnet20_frn", "resnet18_frn"], {"activation": "silu"}),
        (["resnet20", "resnet18"], {"activation": "relu"}),
        (["lenet_maxpool", "alexnet", "cnn_lstm"], {"activation": "relu"}),
        (["vit"], {"activation": "gelu"}),
        (["linear"], {}),
    ],
)
def test_networks_are_as_documented_if_nothing_is_said(names, expected):
    for name in names:
        assert models.defaults(name) == expected


def test_small_images_are_framed_evenly():
    """Of 12 x 12 pixels, one more below and on the right where they are odd."""
    model: Any = models.build("lenet", 3)
    x = np.random.default_rng(0).normal(size=(2, 8, 9)).astype(np.float32)
    params = model.init(jax.random.key(0), x)
    framed = np.pad(x, ((0, 0), (2, 2), (1, 2)))
    np.testing.assert_allclose(
        model.apply(params, x), model.apply(params, framed), rtol=1e-5, atol=1e-6
    )


def test_filter_response_normalisation_is_its_formula():
    x = np.random.default_rng(0).normal(size=(2, 3, 5, 4)).astype(np.float32)
    x[1] *= 1e-3  # What is added to the mean square is felt.
    gamma, beta, tau = np.linspace(-1, 2, 12, dtype=np.float32).reshape(3, 4)
    params = {"params": {"gamma": gamma, "beta": beta, "tau": tau}}
    layer: Any = models.FilterResponseNorm()
    outputs = layer.apply(params, jnp.asarray(x))
    for example in range(2):
        for channel in range(4):
            image = x[example, :, :, channel].astype(float)
            y = image / np.sqrt(np.mean(image**2) + 1e-6)
            y = np.maximum(y * gamma[channel] + beta[channel], tau[channel])
            np.testing.assert_allclose(
                outputs[example, :, :, channel], y, rtol=1e-5, atol=1e-6
            )


def test_bad_models_are_named():
    with pytest.raises(ValueError, match="one of mlp, lenet, .*resnet18.*, got 'vgg'"):
        models.build("vgg", 10)
    with pytest.raises(ValueError, match="`width` is no option of mlp, which takes ac"):
        models.build("mlp", 10, width=3)
    with pytest.raises(ValueError, match="`widths` must be at least 1, got 0"):
        models.build("mlp", 10, widths=(3, 0))
    with pytest.raises(ValueError, match="`num_outputs` must be at least 1, got 0"):
        models.build("lenet", 0)
    with pytest.raises(ValueError, match="relu, tanh, silu, gelu, got 'swoosh'"):
        models.build("resnet20_frn", 10, activation="swoosh")
    with pytest.raises(ValueError, match=r"got shape \(1, 64\). Use the model mlp"):
        num_parameters(models.build("lenet", 10), 1, 64)
    with pytest.raises(ValueError, match="at least 15 x 15 pixels, got 8 x 8. Use the"):
        num_parameters(models.build("lenet_maxpool", 10), 1, 8, 8)
    with pytest.raises(ValueError, match="`patch` must divide .* got 4, 9 x 8 and 64"):
        num_parameters(models.build("vit", 10), 1, 9, 8)
    model = models.build("cnn_lstm", 2)
    with pytest.raises(ValueError, match=r"`x` must hold ids .* got shape \(1, 7\)"):
        jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 7), int))
    with pytest.raises(ValueError, match="`depth` must be at least 1, got 0"):
        models.build("vit", 10, depth=0)


def test_a_gpu_takes_the_steps_of_an_lstm_without_a_loop(monkeypatch):
    model, x = LSTM(3), jax.random.normal(jax.random.key(0), (2, 5, 4))
    params = model.init(jax.random.key(1), x)

    def run(like):
        lowered = jax.jit(lambda params: model.apply(params, x)).lower(params)
        np.testing.assert_allclose(lowered.compile()(params), like, rtol=1e-5)
        return "stablehlo.while" in lowered.as_text()

    in_a_loop = model.apply(params, x)
    assert run(in_a_loop)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert not run(in_a_loop)
