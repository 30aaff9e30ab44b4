"""`symjax symmetries` as a user types it."""

import pytest
from test_cli import symjax


MODEL = """
import flax.linen as nn
import jax
import jax.numpy as jnp


module = nn.Sequential([nn.Dense(7), nn.tanh, nn.Dense(2)])
number = 3


def gated():
    params = {"gate": jnp.float32(0.5), "in": jnp.ones((3, 5)), "out": jnp.ones((5, 2))}
    apply = lambda p, x: p["gate"] * jax.nn.relu(x @ p["in"]) @ p["out"]
    return apply, params, jnp.ones((4, 3))


def spectral():
    apply = lambda p, x: jnp.abs(jnp.fft.fft(x @ p))
    return apply, jnp.ones((3, 5)), jnp.ones((4, 3))
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "network.py"
    path.write_text(MODEL)
    return path


def test_a_named_network_is_described_and_checked(capsys):
    symjax("symmetries", "--model", "lenet", "--input-shape", 12, 12, 1, "--check")
    printed = capsys.readouterr().out
    assert "61,706" not in printed  # the frame of 12 x 12, not MNIST's
    assert "permutations: 4 groups" in printed
    assert "120  MLP_0/Dense_0/bias[0]" in printed
    assert "signs: 4 groups" in printed
    assert "float64" in printed


def test_a_network_of_the_users_file_is_described(file, capsys):
    symjax("symmetries", "--model", f"{file}:module", "--input-shape", 3)
    assert "7  layers_0/bias[0]" in capsys.readouterr().out
    symjax("symmetries", "--model", f"{file}:gated", "--check")
    printed = capsys.readouterr().out
    assert "5  in[1], out[0]^-1" in printed
    assert "6 free scales" in printed  # of the units, and of the gate against all


def test_what_was_given_up_is_said(file, capsys):
    symjax("symmetries", "--model", f"{file}:spectral")
    assert "pinned by fft at network.py:18" in capsys.readouterr().out
    symjax("symmetries", "--model", f"{file}:spectral", "--strict", code=1)
    assert "`fft`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mpl", "mlp"),
        ("{file}:nothing", "gated"),
        ("{file}x:module", "no file"),
        ("{file}:module", "--input-shape"),
        ("{file}:number", "(apply, params, x)"),
    ],
)
def test_a_model_that_is_none_is_explained(file, model, said, capsys):
    symjax("symmetries", "--model", model.format(file=file), code=2)
    assert said in capsys.readouterr().err.replace("\n", " ")
