"""`symjax symmetries` as a user types it."""

import dataclasses
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import symjax

from symjax import symmetry


MODEL = """
from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
from beside import WIDTH


module = nn.Sequential([nn.Dense(7), nn.tanh, nn.Dense(2)])
number = 3


def gated():
    params = {"gate": jnp.float32(0.5), "in": jnp.ones((3, 5)), "out": jnp.ones((5, 2))}
    apply = lambda p, x: p["gate"] * jax.nn.relu(x @ p["in"]) @ p["out"]
    return apply, params, jnp.ones((4, 3))


def spectral():
    apply = lambda p, x: jnp.abs(jnp.fft.fft(x @ p))
    return apply, jnp.ones((3, 5)), jnp.ones((4, 3))


class Words(nn.Module):
    width: int = WIDTH

    @nn.compact
    def __call__(self, ids):
        return nn.Dense(2)(nn.RNN(nn.LSTMCell(3))(nn.Embed(2, self.width)(ids)))


class Narrow(nn.Module):
    @nn.compact
    def __call__(self, x):
        hidden = nn.tanh(nn.Dense(32, dtype=jnp.bfloat16)(x))
        return nn.Dense(2, dtype=jnp.bfloat16)(hidden)


class Trained(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        return nn.Dense(2)(x)


trained = Trained()


def needs(width):
    return width


def broken():
    raise RuntimeError("no weights found")


def script():
    raise SystemExit(3)


def swapped():
    return {}, module.apply, jnp.ones(3)


class Called:
    def __call__(self, x):
        return x


called = Called()


def unsplit():
    params = {"w": jnp.ones((3, 2)), "act": jnp.tanh}
    return lambda p, x: p["act"](x @ p["w"]), params, jnp.ones((4, 3))


def named():
    return lambda p, x: x, {}, {"x": jnp.ones(3), "from": "disk"}


def mixed():
    params = {
        "key": jax.random.key(0), "mask": jnp.ones(5, bool), "times": 2, "number": 0.5,
        "in": jnp.ones((3, 5), jnp.bfloat16), "out": jnp.ones((5, 2), jnp.complex64),
    }
    def apply(p, x):
        hidden = jnp.tanh(p["times"] * (x[0] @ p["in"])) * p["mask"]
        return p["number"] * (hidden @ p["out"]), p["key"]
    return apply, params, (jnp.ones((4, 3)), jax.random.key(1))


def fixed():
    return lambda p, x: jnp.sin(x @ p), jnp.ones((3, 2)), jnp.ones((4, 3))


def counts():
    return lambda p, x: x * jnp.sum(p**2), jnp.ones(4, int), jnp.ones(3)


def infinite():
    apply = lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"] / 0
    return apply, {"in": jnp.ones((3, 5)), "out": jnp.ones((5, 2))}, jnp.ones((4, 3))


def shapes():
    apply, params, x = gated()
    return apply, jax.eval_shape(lambda: params), x
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    (tmp_path / "beside.py").write_text("WIDTH = 4")
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
    assert "pinned by fft at network.py:21" in capsys.readouterr().out
    symjax("symmetries", "--model", f"{file}:spectral", "--strict", code=1)
    assert "`fft`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("mpl", "`--model` must be mlp"),
        ("{file}", "`--model` must be .* Name what is in it: .*network.py:name"),
        ("{file}:", "`--model` must be .* Name what is in it: .*network.py:name"),
        (":name", "`--model` must be mlp, .* or path/to/file.py:name, got ':name'"),
        ("{file}:nothing", "has no `nothing`; it has WIDTH|it has .*gated"),
        ("{file}x:module", "no file"),
        ("{file}:module", "--input-shape"),
        ("{file}:number", r"\(apply, params, x\); it gave int"),
        ("{file}:swapped", r"it gave tuple of \(dict, method, ArrayImpl\)"),
        ("{file}:needs", "network.py:needs could not .* argument: 'width' It must be"),
        ("{file}:broken", r"broken .* RuntimeError: no weights found \(line 54\)"),
        ("{file}:script", "SystemExit: 3"),
        ("{file}:called", r"TypeError: .*apply, params, x.* eqx.partition\(model"),
        ("{file}:unsplit", "params of .* at `act`.* eqx.partition.model, eqx.is_array"),
        ("{file}:named", "x of .* must be a pytree of arrays, got a str at `from`"),
        ("{file}:shapes --check", "needs numbers"),
        ("{file}:trained --input-shape 3", "`--model` .*trained .*: 'train'"),
        ("{file}:Words --input-shape 3", "`--input-shape` 3.*`--input-dtype int32`"),
        ("{file}:gated --input-shape 3", "returns its own input"),
        ("{file}:gated --input-dtype int32", "returns its own input"),
        ("lenet --input-shape 3", "`--model` lenet .*must hold images"),
        ("mlp --input-shape -3", "`--input-shape` must be at least 1, got -3"),
        ("mlp --input-shape 3 0", "`--input-shape` must be at least 1, got 0"),
        ("mlp --num-outputs 0", "`--num-outputs` must be"),
        ("mlp --seed -1", "`--seed` must be"),
    ],
)
def test_what_can_not_be_meant_is_explained(file, model, said, capsys):
    symjax("symmetries", "--model", *model.format(file=file).split(), code=2)
    assert re.search(said, capsys.readouterr().err.replace("\n", " "))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        # Its loop starts from float32, and so can't run in float64.
        ("Words --input-shape 3 --input-dtype int32", "in float32, the narrowest"),
        ("Narrow --input-shape 3", "in bfloat16, the narrowest type"),
        ("mixed", "in float64"),
        ("fixed", "nothing to check"),
        (
            "counts",
            "Not tried, as what it moves are equal numbers: permutation of params",
        ),
    ],
)
def test_networks_of_all_types_are_checked(file, model, said, capsys):
    symjax("symmetries", "--check", "--model", *f"{file}:{model}".split())
    printed = capsys.readouterr().out
    assert said in printed
    still = re.search(r"0\.0e\+00 +│\n", printed) is not None
    assert still == (model == "counts")


def test_outputs_that_are_not_finite_are_no_defect(file, capsys):
    symjax("symmetries", "--check", "--model", f"{file}:infinite", code=1)
    assert "not finite" in capsys.readouterr().err


@pytest.mark.parametrize("model", ["Narrow", "module"])
def test_a_wrong_group_is_caught_in_any_precision(file, model, monkeypatch, capsys):
    infer = symmetry.infer

    def wrong(*args, **options):
        spec = infer(*args, **options)
        group = spec.permutations[0]
        part = dataclasses.replace(group, axes=group.axes[:-1])
        return dataclasses.replace(spec, permutations=(part,))

    monkeypatch.setattr(symmetry, "infer", wrong)
    words = ("--model", f"{file}:{model}", "--input-shape", 3, "--check")
    symjax("symmetries", *words, code=1)
    assert "defect" in capsys.readouterr().err


def test_the_help_breaks_no_line_where_its_source_does(capsys):
    symjax("symmetries", "--help")
    printed = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "a flax.linen module or a function" in printed


def test_the_readme_s_snippet_prints_what_the_readme_shows():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    section = readme.partition("## Symmetries")[2].partition("\n## ")[0]
    program, shown = re.findall(r"```(?:python)?\n(.*?)```", section, re.DOTALL)
    run = [sys.executable, "-c", program]
    printed = subprocess.run(run, capture_output=True, text=True, check=True).stdout
    *lines, change = printed.splitlines()
    assert lines == shown.splitlines()[:-1]
    assert 0 < float(change) < 1e-5
