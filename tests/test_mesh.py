"""Chains and examples over the devices."""

import re
from dataclasses import dataclass

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from symjax import mesh, run
from symjax.mesh import layout, reading
from symjax.run import chunks
from symjax.samplers import hmc


@pytest.mark.parametrize(
    ("num_chains", "num_devices", "shape"),
    [(4, 1, (1, 1)), (4, 8, (4, 2)), (8, 4, (4, 1)), (3, 8, (1, 8)), (6, 4, (2, 2))],
)
def test_chains_get_devices_first(num_chains, num_devices, shape):
    made = mesh.make_mesh(num_chains, jax.devices()[:num_devices])
    assert (made.shape["chain"], made.shape["data"]) == shape


@dataclass(frozen=True)
class Device:
    """What a mesh asks of a device of several hosts."""

    process_index: int
    id: int
    platform: str = "cpu"
    device_kind: str = "cpu"


@pytest.mark.parametrize(("num_chains", "shape"), [(4, None), (8, None), (8, (4, 2))])
def test_devices_that_share_a_chain_are_of_one_host(num_chains, shape):
    """Whatever the order in which they come."""
    devices = [Device(i // 2, i) for i in (3, 0, 7, 1, 6, 2, 5, 4)]
    made = mesh.make_mesh(num_chains, devices, shape).devices
    assert set(made.flat) == set(devices)
    for group in made:
        assert len({device.process_index for device in group}) == 1
    if num_chains == 4:
        assert [group[0].process_index for group in made] == [0, 1, 2, 3]


def test_a_mesh_needs_chains():
    with pytest.raises(ValueError, match="`num_chains` must be at least 1, got 0"):
        mesh.make_mesh(0)


def test_a_shape_by_hand_must_fit():
    made = mesh.make_mesh(4, jax.devices()[:8], mesh.parse_shape("chain=2,data=4"))
    assert (made.shape["chain"], made.shape["data"]) == (2, 4)
    fitting = "got chain=3,data=2. These fit: chain=1,data=8; chain=2,data=4; chain=4,d"
    with pytest.raises(ValueError, match=fitting):
        mesh.make_mesh(4, jax.devices()[:8], (3, 2))
    with pytest.raises(ValueError, match="must be like chain=4,data=8, got '4x8'"):
        mesh.parse_shape("4x8")


def test_chains_that_do_not_fit_the_mesh_are_refused():
    with pytest.raises(ValueError, match="4 groups of devices"):
        mesh.place_chains(mesh.make_mesh(4, jax.devices()[:4]), jnp.zeros((6, 2)))


def test_padding_is_masked_and_nothing_is_dropped():
    data = cases.data(21)
    placed = mesh.place_data(mesh.make_mesh(1, jax.devices()[:8]), data)
    assert placed.x.shape == (24, 3)
    assert placed.mask.sum() == 21
    np.testing.assert_array_equal(placed.x[placed.mask], data.x)
    np.testing.assert_array_equal(placed.y[placed.mask], data.y)
    # Of a likelihood, zeros may be impossible.
    np.testing.assert_array_equal(placed.x[21:], np.repeat(data.x[:1], 3, axis=0))


def test_padding_may_be_all_that_a_device_has():
    """Of nine rows on eight devices: of several hosts each makes its own."""
    leaf = np.arange(18.0).reshape(9, 2)
    parts = [layout._rows(leaf, slice(2 * i, 2 * i + 2)) for i in range(8)]
    expected = np.concatenate([leaf, np.repeat(leaf[:1], 7, axis=0)])
    np.testing.assert_array_equal(np.concatenate(parts), expected)


@pytest.mark.parametrize("batch_size", [1, 5, 8, 16])
def test_take_gathers_the_same_batch_from_any_number_of_devices(batch_size):
    data = cases.data(21)
    indices = jax.random.randint(jax.random.key(0), (batch_size,), 0, 21)
    made = mesh.make_mesh(1, jax.devices()[:8])

    def gather(data):
        return jax.tree.map(
            lambda leaf: jax.lax.all_gather(leaf, "data", tiled=True)[None],
            mesh.take(data, indices),
        )

    batch = mesh.map_chains(made, gather, P("data"))(mesh.place_data(made, data))
    batch = jax.tree.map(lambda leaf: np.asarray(leaf[0]), batch)
    assert batch.mask.sum() == batch_size
    np.testing.assert_array_equal(batch.x[batch.mask], data.x[np.asarray(indices)])
    np.testing.assert_array_equal(batch.y[batch.mask], data.y[np.asarray(indices)])


@pytest.mark.parametrize("num_devices", [None, 1, 8])
def test_what_is_masked_and_no_example_stay_masked_in_a_batch(num_devices):
    """Whatever device has the row; each example once and with its own target."""
    data = cases.data(21)
    data.mask[[0, 4, 20]] = False
    indices = jnp.array([20, 7, mesh.NO_EXAMPLE, 0, 13, 4, 19])

    def gather(data):
        batch = mesh.take(data, indices)
        if num_devices is None:
            return batch
        every = lambda leaf: jax.lax.all_gather(leaf, "data", tiled=True)[None]
        return jax.tree.map(every, batch)

    if num_devices is None:
        batch = gather(data)
    else:
        made = mesh.make_mesh(1, jax.devices()[:num_devices])
        placed = mesh.place_data(made, data)
        mapped = mesh.map_chains(made, gather, P("data"))(placed)
        batch = jax.tree.map(lambda leaf: leaf[0], mapped)
    mask = np.asarray(batch.mask)
    assert mask.sum() == 3
    np.testing.assert_array_equal(np.asarray(batch.x)[mask], data.x[[7, 13, 19]])
    np.testing.assert_array_equal(np.asarray(batch.y)[mask], data.y[[7, 13, 19]])


class Foreign:
    """What one of several hosts sees of an array: the parts on its own devices."""

    is_fully_addressable = False

    def __init__(self, array, devices):
        self.shape, self.dtype = array.shape, array.dtype
        shards = array.addressable_shards
        self.addressable_shards = [s for s in shards if s.device in devices]


@pytest.mark.parametrize("shape", [(4, 2), (2, 4), (8, 1), (1, 8)])
@pytest.mark.parametrize("order", [range(8), [5, 0, 3, 6, 1, 7, 2, 4]])
def test_every_chain_is_read_once_by_one_host(shape, order, monkeypatch):
    """Also where several devices, of one host or of two, have copies of it."""
    for name in ("_shards", "_read"):  # which ask for JAX's own arrays
        plain = getattr(reading, name).__wrapped__
        monkeypatch.setattr(reading, name, plain)
    devices = [jax.devices()[i] for i in order]
    made = jax.sharding.Mesh(np.array(devices).reshape(shape), ("chain", "data"))
    values = {"a": jnp.arange(24.0).reshape(8, 3), "b": jnp.arange(8)}
    placed = mesh.place_chains(made, values)
    seen = []
    for host in (jax.devices()[:4], jax.devices()[4:]):
        own = mesh.read_own(jax.tree.map(lambda leaf, d=host: Foreign(leaf, d), placed))
        np.testing.assert_array_equal(own.chains, np.sort(own.chains))
        for name, leaf in values.items():
            np.testing.assert_array_equal(own.values[name], leaf[own.chains])
        seen += own.chains.tolist()
    assert sorted(seen) == list(range(8))


EVERY = [*cases.SAMPLERS, *cases.TRAJECTORIES, *cases.APPROXIMATIONS]


@pytest.mark.parametrize(
    ("case", "micro_batch"),
    [(cases.SAMPLERS[0], None), *((case, 2) for case in EVERY)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_a_gradient_costs_one_all_reduce_and_no_all_gather(case, micro_batch):
    """Reads the compiled program: where parameters are reduced, and how often."""
    programs = chunks.compile_chunks(
        jax.random.key(0),
        case.build(cases.log_posterior(micro_batch=micro_batch)),
        cases.start(jax.random.key(1), 4),
        cases.data(),
        chunks.Plan(0, 4, 1),
        mesh.make_mesh(2, jax.devices()[:8]),
    )
    state = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(
            leaf.shape, leaf.dtype, sharding=programs.sharding
        ),
        jax.eval_shape(
            programs.init, programs.keys[:, 0], programs.params, programs.data
        )[0],
    )
    text = (
        programs.advance.lower(programs.keys[:, 1], state, programs.data, 0, 4, 1)
        .compile()
        .as_text()
    )
    every = re.findall(r"= (.*) all-reduce(?:-start)?\((.*)", text)
    # Over the examples of a chain, as XLA writes them from JAX 0.11 on, and as before;
    # others are over the chains.
    over_data = re.compile(r"replica_groups=(mesh\[[^]]*\] \{'data'\}|\{\{0,1,2,3\})")
    reductions = [one for one in every if over_data.search(one[1])]
    gathers = re.findall("all-gather|all-to-all|collective-permute", text)
    assert bool(gathers or len(every) > len(reductions)) == case.meets
    of_arrays = [name for shape, name in reductions if "3,4" in shape]
    # The kernel's gradients, and of each the other arrays with it. They stand in the
    # iterations of a draw, the draws of a chunk, and loops of a step: HMC's leapfrogs.
    depths = [2 + case.loops] * (case.gradients + case.rare)
    # What XLA joined has several paths, of which the first is whole.
    paths = [name.split(":")[0] for name in of_arrays]
    assert sorted(path.count("while/body") for path in paths) == depths
    # Others may be of a number: HMC's change of energy, the number of examples.
    assert len(reductions) <= case.numbers + len(depths)


def test_a_density_that_forgets_to_sum_over_devices_is_refused():
    def log_density(params, data):
        return -jnp.sum((data.y - cases.apply(params, data.x)) ** 2)

    with pytest.raises(ValueError, match="mesh.sum_over_data"):
        run.sample(
            jax.random.key(0),
            hmc.build(log_density, step_size=0.01, num_steps=2),
            cases.start(jax.random.key(1), 2),
            cases.data(),
            num_draws=1,
            mesh=mesh.make_mesh(2, jax.devices()[:4]),
            show_progress=False,
        )


def test_one_number_that_differs_between_devices_is_enough():
    """Of gradients most may be equal, as the zeros of units that are off."""
    made = mesh.make_mesh(1, jax.devices()[:4])

    def differ(at):
        here = jax.lax.axis_index("data")
        own = jnp.zeros(5).at[at].set(jnp.where(here == 3, 1.0, 0.0) * (at >= 0))
        tree = {"a": jnp.ones(2), "b": own, "c": here}
        return mesh.differs_along_data(tree)[None]

    mapped = jax.jit(mesh.map_chains(made, differ, P()))
    assert mapped(jnp.array(2))
    # Whole numbers, such as a place, may.
    assert not mapped(jnp.array(-1))


@pytest.mark.parametrize("num_devices", [1, 2, 8])
def test_chains_know_of_each_other(num_devices):
    """Eight chains on any devices: their number, their sum, and all their values."""
    made = mesh.make_mesh(8, jax.devices()[:num_devices])
    values = jnp.arange(8.0)

    def one(value):
        number = jnp.float32(mesh.num_chains())
        shared = mesh.same_in_all_chains(jnp.array(3)).astype(float)
        index = mesh.chain_index().astype(float)
        facts = jnp.stack([number, index, mesh.sum_over_chains(value**2), shared])
        return facts, mesh.gather_chains(value)

    block = mesh.map_chains(made, mesh.vmap_chains(one, 0), P("chain"))
    facts, gathered = jax.jit(block)(mesh.place_chains(made, values))
    np.testing.assert_array_equal(facts[:, 0], 8)
    np.testing.assert_array_equal(facts[:, 1], values)
    np.testing.assert_array_equal(facts[:, 2], 140)
    np.testing.assert_array_equal(facts[:, 3], 3)
    np.testing.assert_array_equal(gathered, np.tile(values, (8, 1)))


@pytest.mark.parametrize("num_chains", [1, 2])
def test_a_single_chain_has_no_axis_in_products(num_chains):
    """Whose batch of one would be slower on a GPU."""
    weights = jax.random.normal(jax.random.key(0), (num_chains, 3, 2))
    x = jax.random.normal(jax.random.key(1), (4, 3))
    program = mesh.vmap_chains(lambda w, x: x @ w, (0, None))
    text = str(jax.make_jaxpr(program)(weights, x))
    made = re.findall(r"f32\[([0-9,]+)\] = dot_general", text)
    assert (made == ["4,2"]) == (num_chains == 1)
    np.testing.assert_allclose(program(weights, x), x @ weights, rtol=1e-6)


@pytest.mark.parametrize("num_chains", [1, 2])
def test_one_axis_is_that_of_every_argument(num_chains):
    values = jnp.arange(2.0 * num_chains).reshape(num_chains, 2)
    program = mesh.vmap_chains(lambda a, b: a["w"] * b, 0)
    np.testing.assert_array_equal(program({"w": values}, values), values**2)


@pytest.mark.parametrize("num_chains", [1, 2])
def test_numbers_that_are_no_arrays_are_those_of_every_chain(num_chains):
    program = mesh.vmap_chains(lambda value: (2.0, None, mesh.gather_chains(True)), 0)
    number, nothing, flags = program(jnp.ones(num_chains))
    np.testing.assert_array_equal(number, [2.0] * num_chains)
    assert nothing is None
    assert flags.shape == (num_chains, num_chains)


def test_arguments_of_other_numbers_of_chains_are_refused():
    """Rather than the first chain of one of them taken alone."""
    with pytest.raises(ValueError, match="inconsistent sizes"):
        mesh.vmap_chains(jnp.add, (0, 0))(jnp.ones(1), jnp.ones(3))
    with pytest.raises(ValueError, match="shorter"):
        mesh.vmap_chains(lambda *values: values, (0,))(jnp.ones(1), jnp.ones(1))


def test_a_chain_outside_the_mesh_is_alone():
    assert mesh.num_chains() == 1
    assert mesh.chain_index() == 0
    assert mesh.sum_over_chains(2.0) == 2.0
    assert mesh.gather_chains(jnp.arange(3)).shape == (1, 3)


def test_what_all_chains_share_decides_for_all_of_them():
    """One branch runs, where a chain's own copy of the number would run both."""

    def one(own, of_all):
        index = mesh.same_in_all_chains(own) if of_all else own
        return jax.lax.cond(index > 2, jnp.sin, jnp.cos, own * 1.0)

    for of_all in (True, False):
        program = jax.make_jaxpr(
            mesh.vmap_chains(lambda own, of_all=of_all: one(own, of_all), 0)
        )(jnp.ones(4, int))
        assert ("cond" in str(program)) == of_all
