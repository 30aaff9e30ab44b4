"""Every subcommand of the benchmark, at its smallest scale."""

import collections
import importlib
import itertools
import json
import shlex
import time
import types
import unittest.mock
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from symjax import interop, mesh, run
from symjax.types import Data


COMMANDS = {
    "leapfrog": "--contenders symjax numpyro",
    "gradient": "--forces float32 bfloat16 --micro-batches 30 --num-gradients 100",
    "chains": "--counts 1 3 --meshes chain=1,data=2",
    "memory": "--contenders symjax --problems digits --micro-batches 30 --num-chains 2",
    "store": "",
    "rebasin": "",
    "diagnostics": "",
    "evaluate": "",
    "blas": "",
    "peers": "--peers symjax torch",
    "precision": "--forces bfloat16",
    "samplers": "--only 'symjax HMC'",
    "recovery": "",
    "assignment": "",
    "infer": "",
    # Last, as it empties the caches.
    "startup": "",
}
FIGURES = {
    "leapfrog": {
        "bare gradient": [1e3 / (2 * 2)],
        "symjax over bare gradients": [2],
        "numpyro over bare gradients": [3],
        "symjax over numpyro": [2 / 3],
    },
    "gradient": {
        "copy": [8 * 2**20 / 1e9],
        "matrices, float32": [2 * 64**3 / 2 / 1e12],
        "matrices, bfloat16": [2 * 64**3 / 3 / 1e12],
        "a gradient": [1e3 * one / 100 for one in (4, 5, 6)],
        "faster than the first, float32": [4 / 5, 4 / 6],
    },
    "chains": {
        "draws of all chains": [2 * 1, 2 * 3 / 2],
        "as fast as 1 chains": [3 / 2],
        "a leapfrog of all chains": [1e3 * one / (2 * 2) for one in (3, 4)],
        "share of the sums over devices": [100 * 6 / 4],
        "strong efficiency": [100 * 3 / 2 / 4],
    },
    "store": {
        "reading all of them": [1],
        "the same": [4 * 24 * 100 / 1e9],
        "reading a tenth of a chain": [2],
    },
    "rebasin": {
        "alignment": [1, 2, 3, 4, 5],
        "over 2 draws of 784-3-10": [3 / 2],
        "over a pair of 784-2-2-10": [5 / 4],
    },
    # Of 19 measures.
    "evaluate": {
        "all together": [sum(range(1, 20)), sum(range(20, 39))],
        "all together, over 10 draws": [551 / 190],
        "accuracy": [22],
    },
    "diagnostics": {"summarise": [1, 2], "over 10 quantities": [2]},
    "blas": {
        "a gradient, bare gradients": [1e6 / 2],
        "a gradient, NumPy, side by side": [4e6 / 2],
        "bare gradients over NumPy, chain by chain": [1 / 3],
        "HMC over NumPy, chain by chain": [2 / 3],
    },
    "assignment": {
        "SciPy, a loop": [1e3, 6e3],
        "symjax, over SciPy": [3, 8 / 6],
    },
}
"""Medians of a clock whose calls take 1, 2, 3 ... seconds, by name."""
CHECKS = {
    # Bytes of a gradient: 100 inputs of 64 numbers, several times.
    "gradient": lambda of: (
        3e4
        < of["share of the copy rate"] / 100 * of["copy"] * 1e9 * of["a gradient"] / 1e3
        < 3e6
    ),
    "memory": lambda of: 5 < of["copies a chain, symjax"] < 10,
    "precision": lambda of: (
        of["error of the accept step's"] < 1e-3
        and np.isclose(
            of["a leapfrog of all chains"],
            1e3 / (10 * np.ceil(0.05 / of["step size"] - 1e-6)),
        )
    ),
    "samplers": lambda of: np.isclose(of["a gradient"], 1e6 / of["gradients"]),
    "infer": lambda of: np.isclose(of["an equation"], 1e3 * of["infer"] / 103),
}
"""What must hold of the last medians of a name."""


@pytest.fixture(scope="module")
def scripts():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "scripts"))
        yield importlib.import_module


def test_every_subcommand_is_tried(scripts):
    assert set(COMMANDS) == set(scripts("benchmark").NAMES)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_benchmark_prints_its_table_and_writes_its_figures(
    scripts, name, tmp_path, monkeypatch, capsys
):
    words = f"benchmark {name} --scale tiny {COMMANDS[name]} --out {tmp_path}"
    monkeypatch.setattr("sys.argv", shlex.split(words))
    figures, ticks = scripts("benchmarks.figures"), itertools.count(1)
    seconds = lambda call: (jax.block_until_ready(call()), float(next(ticks)))[1]
    monkeypatch.setattr(figures, "seconds", seconds)
    scripts("benchmark").main()
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["benchmark"] == name
    assert "cpu" in found["device"]
    assert found["versions"]["jax"] == jax.__version__
    assert found["figures"]
    said = capsys.readouterr().out
    short = figures._short
    for one in found["figures"]:
        assert one["median"] is None or short(one["median"]) in said
        assert one["name"][:20] in said
        values = [one[key] for key in ("low", "median", "high")]
        assert None in values or values == sorted(values)
        assert one["is_met"] is None
    for figure, expected in FIGURES.get(name, {}).items():
        medians = [one["median"] for one in found["figures"] if one["name"] == figure]
        assert medians == pytest.approx(expected), figure
    check = CHECKS.get(name, lambda of: True)
    assert check({one["name"]: one["median"] for one in found["figures"]})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("leapfrog --num-chains -1", "`--num-chains` must be at least 1, got -1."),
        ("leapfrog --repeats 0", "`--repeats` must be at least 1, got 0."),
        ("leapfrog --force float64", "`--force` must be one of float32, tensorfloat32"),
        ("gradient --forces float32 nope", "`--forces` must be one of float32, tensor"),
        ("gradient --forces 'float32, fused'", "'float16x2, fused', got 'float32, fus"),
        ("precision --forces 'float16x2, fused'", "for resnet, on a GPU"),
        ("gradient --forces", "`--forces` must have a value, got none."),
        ("gradient --micro-batches 30 0", "`--micro-batches` must be at least 1"),
        ("chains --scale full", "Give `--counts`, `--meshes` or both"),
        ("chains --meshes chain=2", "`mesh` must be like chain=4,data=8"),
        ("chains --meshes chain=3,data=5", "`mesh` must share 1 chains out over 8"),
        ("store --seconds-a-draw nan", "`--seconds-a-draw` must be a positive number"),
        ("precision --num-draws 0 --num-energies 0 --num-climb 1", "Nothing was meas"),
        ("store --seconds-a-draw inf", "`--seconds-a-draw` must be a positive number"),
        ("memory --micro-batches 9", "`--micro-batches` are those of `--problems`"),
        ("store --num-draws 0", "`--num-draws` must be at least 1, got 0."),
        ("precision --target 1.5", "`--target` must be between 0 and 1, got 1.5."),
        ("precision --forces 'float16, fused'", "for resnet, on a GPU"),
        ("samplers --only nope", "`--only` must be of symjax HMC, symjax NUTS"),
        ("samplers --only 'blackjax HMC'", "`--only` must hold symjax HMC beside"),
        ("infer --out /dev/null/there", "`--out` must be a folder that can be made"),
        ("recovery --models nope", "`--models` must be of MLP, relu"),
    ],
)
def test_a_mistake_is_answered_without_a_traceback(
    scripts, words, message, tmp_path, monkeypatch, capsys
):
    words = f"benchmark {words}" + ("" if "--out" in words else f" --out {tmp_path}")
    scale = "" if "--scale" in words else " --scale tiny"
    monkeypatch.setattr("sys.argv", shlex.split(words + scale))
    with pytest.raises(SystemExit) as ended:
        scripts("benchmark").main()
    assert message in capsys.readouterr().err + str(ended.value)
    assert not list(tmp_path.iterdir())


def test_what_is_typed_stands_at_the_tiny_scale_too(scripts, monkeypatch):
    inputs, gradient = scripts("benchmarks.inputs"), scripts("benchmarks.gradient")
    usual = gradient.Gradient()
    words = f"benchmark gradient --scale tiny --repeats {usual.repeats}"
    monkeypatch.setattr("sys.argv", words.split())
    made = inputs.prepare(gradient, gradient.Gradient(scale="tiny"))
    assert (made.scale, made.repeats, made.matrix) == ("tiny", usual.repeats, 64)


def test_efficiency_is_of_the_work_that_a_device_has(scripts, monkeypatch):
    module = scripts("benchmarks.chains")
    # Seconds of a chain on a device, shared out without a loss.
    made = lambda problem, num, shape, options: (num / (shape[0] * shape[1]), 0.1)
    taken = lambda calls, repeats: {key: np.array([t]) for key, t in calls.items()}
    monkeypatch.setattr(module, "_program", made)
    monkeypatch.setattr(module.figures, "interleaved", taken)
    meshes = ("chain=1,data=2", "chain=2,data=1", "chain=2,data=2")
    options = module.Chains(meshes=meshes, num_chains=4)
    found = module._by_mesh(types.SimpleNamespace(name=""), options)
    shares = [one.median for one in found if "efficiency" in one.name]
    assert shares == pytest.approx([100] * 5)
    adding = {one.case.split(", ")[2] for one in found if "sums" in one.name}
    assert adding == {"chain=1,data=2", "chain=2,data=2"}


def test_draws_are_written_in_what_a_run_takes_more_than_its_first(
    scripts, monkeypatch
):
    module = scripts("benchmarks.store")
    taken = lambda options, num, seconds, place: 9 + num / 50
    monkeypatch.setattr(module, "_sample", taken)
    monkeypatch.setattr(module.stores, "open", lambda path: unittest.mock.MagicMock())
    found = module._write_and_read(module.Store(num_draws=400))
    assert (found[0].name, found[0].median) == ("draws written", pytest.approx(4 * 50))


def test_the_cost_of_a_store_is_what_it_adds(scripts, monkeypatch):
    module = scripts("benchmarks.store")
    made = lambda options, num, seconds, place: num * seconds * (1.25 if place else 1)
    monkeypatch.setattr(module, "_sample", made)
    assert module._delay(module.Store())[0].median == pytest.approx(25)


def test_peers_are_compared_for_each_chain(scripts, monkeypatch):
    module, random = scripts("benchmarks.peers"), np.random.default_rng(0)
    # Four seconds a call of two chains, one second of one.
    beats = itertools.accumulate(itertools.cycle([0, 4, 0, 1]))
    clock = types.SimpleNamespace(perf_counter=lambda: next(beats))
    monkeypatch.setattr(module, "time", clock)
    made = random.random((2, 40, 3))
    names = {"symjax": lambda: made, "numpyro MCMC": lambda: made[:1]}
    options = module.Peers(repeats=2, num_draws=40, num_leapfrogs=5)
    found = module._compare(types.SimpleNamespace(name=""), names, options, [])
    of = {one.name: one for one in found}
    assert of["symjax, a leapfrog of a chain"].median == pytest.approx(1e3 * 2 / 200)
    assert of["numpyro MCMC, a leapfrog of a chain"].median == pytest.approx(1e3 / 200)
    assert of["a leapfrog of symjax over numpyro MCMC"].median == pytest.approx(2)
    size = scripts("benchmarks.sampling").sample_size
    assert of["symjax, effective samples"].median == pytest.approx(size(made) / 4)
    # Which compiles again in each run.
    assert of["a leapfrog of symjax over numpyro MCMC"].is_met is None


def test_a_call_is_not_timed_before_it_is_compiled(scripts, monkeypatch):
    module, calls = scripts("benchmarks.peers"), []

    def call():
        calls.append(None)
        if len(calls) <= 2:  # As numpyro, for a state of other types.
            time.sleep(0.2)
        return np.random.default_rng(0).random((1, 10, 3))

    options = module.Peers(repeats=1, num_draws=10, num_leapfrogs=1)
    problem = types.SimpleNamespace(name="")
    found = module._compare(problem, {"symjax": call}, options, [])
    assert len(calls) == 3
    assert found[0].median < 10


def test_a_peer_that_stands_still_is_named(scripts):
    module, notes = scripts("benchmarks.peers"), []
    options = module.Peers(repeats=1, num_draws=10, num_leapfrogs=1)
    calls = {
        "symjax": lambda: np.random.default_rng(0).random((1, 10, 3)),
        "numpyro": lambda: np.ones((1, 10, 3)),
    }
    module._compare(types.SimpleNamespace(name=""), calls, options, notes)
    assert notes == ["numpyro moved no chain: its time is not that of a sampler."]


@pytest.mark.parametrize("name", ["symjax", "blackjax", "numpyro"])
def test_contenders_take_the_leapfrogs_asked_for(scripts, name):
    """Of N(0, 1) from 0: they end at sin(L a) / sin(a) e p, with cos a = 1 - e^2 / 2.

    numpyro's default length, 2 pi, makes other steps of it.
    """
    size, count = 0.3, 4
    build = scripts("benchmarks.contenders").CONTENDERS[name]
    density = lambda x, data: -jnp.sum(x**2) / 2 + 0 * data
    init, step = build(density, size, count)
    position = scripts("benchmarks.contenders").position

    def move(key):
        state = init(key, jnp.zeros(50), 0.0)
        return position(step(key, state, 0.0)[0])

    ends = jax.vmap(move)(jax.random.split(jax.random.key(0), 400))
    angle = np.arccos(1 - size**2 / 2)
    expected = size * np.sin(count * angle) / np.sin(angle)
    moved = np.any(np.asarray(ends) != 0, axis=1)
    assert moved.mean() > 0.5
    np.testing.assert_allclose(np.std(ends[moved]), expected, rtol=0.03)


def counting(counted):
    """N(0, 1) as a density that notes each gradient, of one chain, in `counted`."""

    def note(x):
        counted.append(None)
        return np.zeros_like(x)

    def noted(x):
        shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
        return jax.pure_callback(note, shape, x, vmap_method="sequential")

    density = jax.custom_vjp(lambda x: -jnp.sum(x**2) / 2)
    forward = lambda x: (density(x), x)
    density.defvjp(forward, lambda x, slope: (-slope * (x + noted(x)),))
    return lambda x, data: density(x)


def test_loops_are_as_long_as_they_say(scripts):
    problems, sampling = scripts("benchmarks.problems"), scripts("benchmarks.sampling")
    counted, data = [], Data(jnp.eye(3), jnp.arange(3), jnp.ones(3, bool))
    problem = problems.Problem("", counting(counted), data, None, None, data)
    problems.gradients(problem, 5)(jnp.ones((1, 4)), data)[1].block_until_ready()
    assert len(counted) == 5

    keys, starts = jax.random.split(jax.random.key(0)), jnp.array([0.0, 10.0])
    init, step = lambda key, x, data: x, lambda key, x, data: (x + 1, x)
    begin, advance = problems.transitions(init, step, 7)
    moved = advance(keys, begin(keys, starts, data), data)
    np.testing.assert_array_equal(moved, [7, 17])

    problem = problem._replace(apply=lambda x, examples: x * examples)
    begin, sample = sampling.sampler(problem, init, step, lambda x: x, 6)
    state, made, info = sample(keys, begin(keys, starts, data), data)
    np.testing.assert_array_equal(state, [6, 16])
    assert info.shape == (6, 2)
    at = starts[:, None] + jnp.arange(1, 7)
    expected = jnp.exp(at) / (jnp.exp(at) + 2)
    np.testing.assert_allclose(made, jnp.stack([expected] * 3, -1), rtol=1e-5)


def test_a_thinned_draw_counts_all_its_gradients(scripts):
    module = scripts("benchmarks.kernels")
    at = collections.namedtuple("at", "position")
    init = lambda key, x, data: at(x)
    step = lambda key, state, data: (at(state.position + 1), jnp.array(2))
    problem = types.SimpleNamespace(start=jnp.zeros(2), data=None)
    options = types.SimpleNamespace(seed=0, num_chains=2, num_draws=4)
    found = module.chains(problem, options, init, step, lambda info: info, 5, 3)
    draws, gradients = found.sample(0)
    np.testing.assert_array_equal(draws, [[8, 11, 14, 17]] * 2)
    assert gradients == 2 * 4 * 3 * 2


def test_effective_draws_are_for_gradients_and_seconds(scripts):
    one = {"seconds": 2, "gradients": 4000, "function": 10, "weights": 6, "spread": 0.5}
    columns = {name: np.array([value]) for name, value in one.items()}
    found = scripts("benchmarks.samplers")._figures("", columns, 0.25)
    assert [one.median for one in found] == [4000, 500, 2.5, 5, 1.5, 3, 2]


def test_sums_over_devices_are_taken_once_a_leapfrog(scripts):
    module, problems = scripts("benchmarks.chains"), scripts("benchmarks.problems")
    problem = problems.build("digits", "tiny")
    options = module.Chains(num_leapfrogs=3, num_transitions=2)
    _, adding = module._program(problem, 2, (1, 1), options)
    starts = problems.starts(problem, 2)  # Halved by each.
    halved = lambda one, other: np.testing.assert_allclose(one, other / 2 ** (3 * 2))
    jax.tree.map(halved, adding(), starts)


def test_chains_make_all_transitions_in_one_call(scripts, monkeypatch):
    module, problems = scripts("benchmarks.chains"), scripts("benchmarks.problems")
    problem, build = problems.build("digits", "tiny"), module.hmc.build

    def noted(*arguments, num_steps, **options):
        assert num_steps == 3
        return build(*arguments, num_steps=num_steps, **options)

    monkeypatch.setattr(module.hmc, "build", noted)
    for num_transitions in (1, 4):
        options = module.Chains(num_leapfrogs=3, num_transitions=num_transitions)
        call, _ = module._program(problem, 2, (1, 1), options)
        np.testing.assert_array_equal(call().iteration, [num_transitions] * 2)


def test_contenders_take_turns_after_one_round_that_is_not_timed(scripts):
    turns = []
    calls = {name: lambda name=name: turns.append(name) for name in "ab"}
    taken = scripts("benchmarks.figures").interleaved(calls, 2)
    assert turns == ["a", "b"] * 3
    assert [len(taken[name]) for name in "ab"] == [2, 2]


@pytest.mark.parametrize("num_chains", [1, 3])
def test_numpyros_nuts_is_compiled_once_and_told_its_gradients(
    scripts, num_chains, caplog
):
    module = scripts("benchmarks.samplers")
    counted, start = [], jnp.ones((num_chains, 4))
    problem = module.Problem(counting(counted), None, start, None)
    options = module.Samplers(num_chains=num_chains, num_draws=10, num_warmup=50)
    found = scripts("benchmarks.kernels").CONTENDERS["numpyro NUTS"](
        problem, options, {}
    )
    first, _ = found.sample(0)
    counted.clear()
    with jax.log_compiles():
        draws, told = found.sample(1)
    assert not [one for one in caplog.messages if "Compiling" in one]
    assert draws.shape == (num_chains, 10, 4)
    assert not np.any(np.asarray(first) == draws)
    # Of several, each waits for the longest trajectory.
    assert told == len(counted) if num_chains == 1 else told <= len(counted)


def test_blackjax_goes_on_from_where_symjax_is(scripts):
    module, samplers = scripts("benchmarks.kernels"), scripts("benchmarks.samplers")
    there, sizes = jnp.arange(6.0).reshape(2, 3), jnp.array([0.1, 0.2])
    found = {"ours": module.Chains(None, lambda: (there, sizes))}
    at = collections.namedtuple("at", "position")
    begin = lambda params, f, key: at(params)
    stay = lambda key, state, f, size: (state, size)
    problem = samplers.Problem(None, None, jnp.zeros((2, 3)), None)
    options = samplers.Samplers(num_chains=2, num_draws=4)
    start = module.direct("ours", lambda *_: (begin, stay), lambda size: 1)
    draws, _ = start(problem, options, found).sample(0)
    np.testing.assert_array_equal(draws[:, 0], there)


class Tensor(np.ndarray):
    """Of PyTorch, what a transition of HMC takes."""

    detach = np.ndarray.copy

    def square(self):
        return self**2

    def log(self):
        return np.log(self)


def test_pytorchs_hmc_takes_a_gradient_for_each_leapfrog(scripts, monkeypatch):
    module, counted = scripts("benchmarks.torch_hmc"), []
    random = np.random.default_rng(0)
    made, momenta = lambda values: np.asarray(values).view(Tensor), []

    def randn(shape, **_):
        momenta.append(made(random.standard_normal(shape)))
        return momenta[-1]

    fake = types.SimpleNamespace(
        randn=randn,
        rand=lambda shape, **_: made(random.random(shape)),
    )
    monkeypatch.setattr(module, "_torch", lambda: fake)
    monkeypatch.setattr(module, "device", lambda: None)

    class Normal(module.Sampler):
        def __init__(self):
            self.params, self.known = {"x": made(np.zeros(50))}, None
            self.random = None

        def gradient(self, params):
            counted.append(None)
            return -params["x"].square().sum() / 2, {"x": -params["x"]}

    chain: Any = Normal()
    accepted, angle = [], np.arccos(1 - 0.5**2 / 2)
    for _ in range(100):
        accepted.append(chain.transition(0.5, 3))
        if sum(accepted) == accepted[-1] == 1:  # The first from 0.
            end = 0.5 * np.sin(3 * angle) / np.sin(angle) * momenta[-1]
            np.testing.assert_allclose(chain.params["x"], end)
        np.testing.assert_array_equal(chain.known[1]["x"], -chain.params["x"])
    assert len(counted) == 3 * 100 + 1
    assert 0 < sum(accepted) < 100


def test_split_hmc_is_told_its_gradients_of_blocks(scripts):
    counted, num_draws = [], 6
    table = scripts("sampler_table")
    line, density = table.SAMPLERS["split HMC"], interop.Density(counting(counted))
    sampler = line.build(density, table.Shape(0.5, 1.0, 4), 0)
    result = run.sample(
        jax.random.key(0),
        sampler,
        jnp.ones((1, 4)),
        None,
        num_draws=num_draws,
        mesh=mesh.make_mesh(1, jax.devices()[:1]),
        show_progress=False,
    )
    assert int(line.gradients(result.info)) == len(counted) // 4


def test_chains_that_stand_still_have_no_effective_draws(scripts):
    sample_size = scripts("benchmarks.sampling").sample_size
    draws = np.random.default_rng(0).standard_normal((2, 50, 3))
    assert 30 < sample_size(draws) < 200
    draws[1] = draws[1, :1]
    assert np.isnan(sample_size(draws))


def test_a_problem_says_how_many_examples_there_are(scripts):
    made = scripts("benchmarks.problems").build("digits", "tiny", num_examples=10**6)
    assert made.name.startswith("digits, 1,437 examples")


@pytest.mark.slow
def test_all_peers_run_side_by_side(scripts, tmp_path, monkeypatch):
    words = f"benchmark peers --scale tiny --out {tmp_path}"
    monkeypatch.setattr("sys.argv", words.split())
    scripts("benchmark").main()
    text = (tmp_path / "peers.json").read_text()
    assert all(f"symjax over {name}" in text for name in ("numpyro MCMC", "blackjax"))


def test_a_figure_holds_quartiles_and_judges_the_median(scripts):
    figures = scripts("benchmarks.figures")
    values = [5.0, 1.0, 2.0, 3.0, 4.0]
    found = figures.figure("", "", "", values, at_most=3)
    assert (found.low, found.median, found.high) == (2, 3, 4)
    assert found.is_met
    assert not figures.figure("", "", "", values, at_most=2.9).is_met
    assert figures.figure("", "", "", values, at_least=3).is_met
    assert not figures.figure("", "", "", values, at_least=3.1).is_met


def test_operations_are_counted_by_hand(scripts):
    count = scripts("benchmarks.gradient").count_operations
    a, b = jnp.ones((3, 5)), jnp.ones((5, 7))
    assert count(lambda a, b: a @ b)(a, b) == 2 * 3 * 5 * 7
    both = count(jax.grad(lambda a, b: jnp.sum((a @ b) ** 2), (0, 1)))(a, b)
    assert both == 3 * (2 * 3 * 5 * 7)

    def repeated(a):
        return jax.lax.scan(lambda c, _: (c @ a, None), a, None, length=4)[0]

    assert count(repeated)(jnp.ones((3, 3))) == 4 * 2 * 27
    images, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 4))

    def conv(x, w, stride=1):
        names = ("NHWC", "HWIO", "NHWC")
        return jax.lax.conv_general_dilated(
            x, w, (stride, stride), "VALID", dimension_numbers=names
        )

    once = 2 * (2 * 6 * 6 * 4) * 27
    assert count(conv)(images, kernel) == once
    # Without padding, what comes back to the inputs is multiplied as often.
    back = count(jax.grad(lambda w: jnp.sum(conv(images, w) ** 2)))(kernel)
    assert back == 2 * once
