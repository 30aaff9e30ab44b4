"""Chains of a device that are computed in groups, one after another."""

from pathlib import Path

import cases
import jax
import numpy as np
import pytest
from commands import symjax
from jax.sharding import PartitionSpec

from symjax import mesh, run, store
from symjax.cli import chains, options, plan
from symjax.run import chunks
from symjax.run.signals import Signal


NUM_CHAINS = 4
BY_NAME = {case.name: case for case in (*cases.SAMPLERS, *cases.APPROXIMATIONS)}


def execute(name, num_devices, chains_at_once, kept=None):
    """A run of four chains, as many on each device."""
    case = BY_NAME[name]
    common = {
        "mesh": mesh.make_mesh(NUM_CHAINS, jax.devices()[:num_devices]),
        "chains_at_once": chains_at_once,
        "store": kept,
        "show_progress": False,
    }
    algorithm = case.build(cases.log_posterior(temperature=0.5))
    start = cases.start(jax.random.key(3), NUM_CHAINS)
    if case in cases.APPROXIMATIONS:
        common["num_steps"] = 15
        return run.fit(jax.random.key(7), algorithm, start, cases.data(), **common)
    common |= {"num_draws": 12, "thinning": 2, "num_burn_in": 3}
    return run.sample(jax.random.key(7), algorithm, start, cases.data(), **common)


def difference(one, other):
    """The largest one, of draws and of what the chains log."""
    pairs = zip(
        jax.tree.leaves((one.draws, one.info)),
        jax.tree.leaves((other.draws, other.info)),
        strict=True,
    )
    return max(np.abs(np.subtract(a, b, dtype=float)).max() for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "chains_at_once", "layouts"),
    [
        ("hmc", 1, (1, 2)),
        ("sghmc", 2, (1, 2)),
        pytest.param("nuts", 1, (1, 2, 4), marks=pytest.mark.slow),
        pytest.param("swag", 1, (1, 2, 4), marks=pytest.mark.slow),
    ],
)
def test_draws_of_groups_are_bit_for_bit_those_of_every_layout(
    name, chains_at_once, layouts
):
    """Which they are not with all chains of a device together: 3e-8 is between them."""
    made = [execute(name, number, chains_at_once) for number in layouts]
    for other in made[1:]:
        assert difference(made[0], other) == 0


def test_groups_over_several_devices_of_a_chain():
    """Their sums are rounded otherwise; the groups change nothing else."""
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:8], (2, 4))
    number = mesh.compile_for_chains(
        made,
        mesh.vmap_chains(
            lambda value, data: mesh.sum_over_data(value * data.y[:, 0].sum()),
            (0, None),
        ),
        jax.P("chain"),
        jax.P("data"),
        chains_at_once=1,
    )
    values, data = np.arange(4.0), cases.data()
    padded = mesh.place_data(made, data._replace(y=np.where(data.mask[:, None], 1, 0)))
    total = number(mesh.place_chains(made, values), padded)
    # The padding repeats the first row.
    np.testing.assert_array_equal(total, 24 * values)
    assert total.sharding == mesh.place_chains(made, values).sharding


def test_a_run_goes_on_bit_for_bit_on_other_devices(tmp_path, monkeypatch):
    whole = execute("sghmc", 1, 1)
    together = execute("sghmc", 1, None)
    pairs = map(jax.tree.leaves, (whole.draws, together.draws))
    for one, other in zip(*pairs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)
    monkeypatch.setattr("symjax.run.loop.CHUNK_SECONDS", 0.0)

    class StopAtOnce(Signal):
        kind = Signal.INTERRUPT

    with monkeypatch.context() as patch:
        patch.setattr("symjax.run.signals.Signal", StopAtOnce)
        with pytest.raises(run.Stopped):
            execute("sghmc", 1, 1, run.NewRun(tmp_path / "run"))
    kept = store.open(tmp_path / "run")
    assert 0 < kept.committed.iteration < 27
    execute("sghmc", 2, 1, kept)
    like = jax.tree.map(lambda leaf: leaf[0, 0], whole.draws)
    read = store.open(tmp_path / "run").read(like=like)
    jax.tree.map(np.testing.assert_array_equal, read, whole.draws)


def test_a_group_takes_the_memory_of_its_own_chains():
    """Of the compiled program: the scratch of one gradient, not of four."""
    made = mesh.make_mesh(NUM_CHAINS, jax.devices()[:1])
    start = cases.start(jax.random.key(3), NUM_CHAINS)

    def scratch(chains_at_once):
        programs = chunks.compile_chunks(
            jax.random.key(0),
            BY_NAME["hmc"].build(cases.log_posterior()),
            start,
            cases.data(20_000),
            chunks.Plan(0, 4, 1),
            made,
            chains_at_once,
        )
        given = programs.keys[:, 0], programs.params, programs.data
        init = programs.init
        if chains_at_once is not None:
            init = init._programs[0]
            one_chain = jax.tree.map(lambda leaf: leaf[:1], given[:2])
            given = *one_chain, programs.data
        return init.lower(*given).compile().memory_analysis().temp_size_in_bytes

    assert scratch(1) < 0.4 * scratch(None)


def test_groups_take_arrays_that_lie_elsewhere():
    layout = mesh.make_mesh(NUM_CHAINS, jax.devices()[:2])
    double = mesh.compile_for_chains(
        layout, lambda x: 2 * x, PartitionSpec("chain"), chains_at_once=1
    )
    values = jax.device_put(np.arange(NUM_CHAINS), jax.devices()[5])
    np.testing.assert_array_equal(double(values), [0, 2, 4, 6])


def test_a_group_begins_when_the_one_before_has_ended(monkeypatch):
    """Or all have their memory at once."""
    layout = mesh.make_mesh(NUM_CHAINS, jax.devices()[:2])
    double = mesh.compile_for_chains(
        layout, lambda x: 2 * x, PartitionSpec("chain"), chains_at_once=1
    )
    values = mesh.place_chains(layout, np.arange(NUM_CHAINS, dtype=np.float32))
    np.testing.assert_array_equal(double(values), [0, 2, 4, 6])
    seen, wait = [], jax.block_until_ready
    seeing = lambda what, call: lambda *args: (seen.append(what), call(*args))[1]
    double._programs = [seeing("group", one) for one in double._programs]
    monkeypatch.setattr(jax, "block_until_ready", seeing("wait", wait))
    double(values)
    assert seen == ["group", "group", "wait"] * 2


@pytest.mark.parametrize("name", [n for n, case in BY_NAME.items() if case.meets])
def test_chains_that_look_at_one_another_are_refused(name, tmp_path):
    """Before a run directory is laid out."""
    with pytest.raises(ValueError, match="`chains_at_once` must be left out for symj"):
        execute(name, 1, 1, run.NewRun(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_groups_must_fit():
    with pytest.raises(ValueError, match="divide the 4 chains of a device, got 3. The"):
        execute("sghmc", 1, 3)
    with pytest.raises(ValueError, match="must be at least 1, got 0."):
        execute("sghmc", 2, 0)


def test_the_command_that_continues_a_run_has_its_groups():
    """Or it would take other memory, and go on with other last bits."""
    how = options.Processes(mesh="chain=2,data=4", chains_at_once=1)
    for command in (options.Sample(processes=how), options.Fit(processes=how)):
        words = chains._how_to_continue(command, Path("a run")).split(" --", 1)[1]
        assert words == "resume 'a run' --mesh chain=2,data=4 --chains-at-once 1"


OPTIONS = ["--data", "wine", "--widths", "4", "--num-chains", "8", "--dry-run"]


def test_the_command_takes_groups_and_refuses_those_that_do_not_fit(
    monkeypatch, capsys
):
    monkeypatch.setattr(plan, "_time_gradient", lambda *_: plan._Timed(0.1, 1000))
    command = ["sample", *OPTIONS, "--mesh", "chain=2,data=4", "--chains-at-once"]
    symjax(*command, 2)
    said = " ".join(capsys.readouterr().out.split())
    assert "devices, in 2 groups one after another" in said
    symjax("sweep", *command[1:], 1)
    said = " ".join(capsys.readouterr().out.split())
    assert "devices, in 4 groups one after another" in said
    symjax("sweep", *command[1:], 1, "--distributed", "localhost:1,2,0", code=2)
    assert "symjax sweep runs on one process" in capsys.readouterr().err
    symjax(*command, 3, code=2)
    assert "divide the 4 chains of a device, got 3" in capsys.readouterr().err
    symjax(*command, 1, "--sampler", "chees", code=2)
    assert "must be left out for --sampler chees" in capsys.readouterr().err
