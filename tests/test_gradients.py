"""Gradient estimators: which examples they take, their mean and their noise.

Seeds are fixed; with others every test would fail less than once in 10^4 times.
"""

import itertools

import exact
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from scipy.stats import chi2

from symjax import gradients, mesh
from symjax.gradients import sources
from symjax.samplers import baoab, izmailov2021, sghmc, sgld, sgnht, sms_ubu
from symjax.types import Data


class Recorder:
    """The log density sum(params) over the examples' own numbers, times the weight."""

    def __call__(self, params, data):
        return mesh.sum_over_data(jnp.sum(jnp.where(data.mask, data.y, 0)) * params)

    def minibatch(self, key, params, data, batch_size):
        n = mesh.count_examples(data)
        indices = jax.random.randint(key, (batch_size,), 0, n)
        return self.batch(params, data, indices, n / batch_size)

    def batch(self, params, data, indices, weight):
        batch = mesh.take(data, indices)
        total = jnp.sum(jnp.where(batch.mask, batch.y, 0))
        return weight * mesh.sum_over_data(total) * params


def powers(num_examples):
    """Examples 1, 10, 100 and so on: a sum of them says which, and how often."""
    y = 10.0 ** np.arange(num_examples)
    return Data(y[:, None], y, np.ones(num_examples, bool))


def batches_of(name, num_examples, batch_size, num_steps, *, key=0, devices=None):
    """How often each example is in each batch, times its weight: `(step, example)`."""
    estimator = gradients.build(Recorder(), batch_size=batch_size, batches=name)
    data = powers(num_examples)
    position = jnp.zeros(())

    def run(keys, data):
        def advance(state, key):
            _, gradient, state = estimator.estimate(key, state, position, data)
            return state, gradient

        def chain(key):
            first = estimator.init(key, position, data)
            return jax.lax.scan(advance, first, jax.random.split(key, num_steps))[1]

        return jax.vmap(chain)(keys)

    keys = jax.random.key(key)[None]
    if devices is None:
        sums = jax.jit(run)(keys, data)
    else:
        made = mesh.make_mesh(1, jax.devices()[:devices])
        mapped = mesh.map_chains(made, run, P("chain"), P("data"))
        sums = jax.jit(mapped)(keys, mesh.place_data(made, data))
    return np.asarray(sums, np.float64)[0]


def digits(sums, weight, num_examples):
    """From a weighted sum of powers of ten to how often each is in it."""
    whole = np.rint(sums / weight).astype(np.int64)
    return whole[:, None] // 10 ** np.arange(num_examples) % 10


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("devices", [None, 2, 8])
def test_an_epoch_takes_every_example_once(batch_size, devices):
    """Also where the batch size does not divide the seven: none is left out."""
    with jax.enable_x64(True):
        sums = batches_of("epoch", 7, batch_size, 7 * 6, devices=devices)
    counts = digits(sums, 7 / batch_size, 7)
    assert np.all(counts.sum(axis=1) == batch_size)
    # 7 steps are `batch_size` whole epochs.
    whole = counts.reshape(6, 7, 7).sum(axis=1)
    np.testing.assert_array_equal(whole, batch_size)
    if batch_size in (1, 7):
        np.testing.assert_array_equal(counts.reshape(-1, 7 // batch_size, 7).sum(1), 1)
    assert batch_size == 7 or not np.array_equal(counts[:7], counts[7:14])


@pytest.mark.parametrize(("batch_size", "num_batches"), [(2, 4), (3, 3), (7, 1)])
@pytest.mark.parametrize("devices", [None, 2, 8])
def test_a_sweep_goes_there_and_back(batch_size, num_batches, devices):
    with jax.enable_x64(True):
        sums = batches_of("sweep", 7, batch_size, 6 * num_batches, devices=devices)
    counts = digits(sums, num_batches, 7).reshape(3, 2, num_batches, 7)
    # Every partition has each example once, the last batch what is left.
    np.testing.assert_array_equal(counts.sum(axis=2), 1)
    rest = 7 - batch_size * (num_batches - 1)
    sizes = [batch_size] * (num_batches - 1) + [rest]
    np.testing.assert_array_equal(counts[:, 0].sum(-1), [sizes] * 3)
    np.testing.assert_array_equal(counts[:, 1], counts[:, 0, ::-1])
    if num_batches > 1:
        assert not np.array_equal(counts[0], counts[1])


@pytest.mark.parametrize("name", ["replacement", "epoch", "sweep"])
def test_batches_are_the_same_on_any_number_of_devices(name):
    with jax.enable_x64(True):
        one = batches_of(name, 7, 3, 12)
        for devices in (2, 4, 8):
            many = batches_of(name, 7, 3, 12, devices=devices)
            np.testing.assert_allclose(one, many, rtol=1e-12)


def test_chains_have_their_own_orders():
    with jax.enable_x64(True):
        orders = [batches_of("epoch", 7, 1, 7, key=key) for key in range(5)]
    assert len({tuple(order) for order in orders}) == 5


def orders(num_examples, number):
    """Many shuffles, each a row."""
    words = jax.random.key_data(jax.random.key(0))
    places, count = jnp.arange(num_examples), jnp.array(num_examples)

    def order(number):
        code = sources._code(words, number)[None]
        return sources._shuffle(code, places, count)

    return np.asarray(jax.jit(jax.vmap(order))(jnp.arange(number)))


@pytest.mark.parametrize("num_examples", [2, 3, 5])
def test_all_orders_of_a_few_examples_are_equally_likely(num_examples):
    made = orders(num_examples, 40_000)
    every = list(itertools.permutations(range(num_examples)))
    counts = np.array([np.all(made == order, axis=1).sum() for order in every])
    assert counts.sum() == 40_000
    expected = 40_000 / len(every)
    statistic = np.sum((counts - expected) ** 2) / expected
    assert chi2.sf(statistic, len(every) - 1) > 1e-5


@pytest.mark.parametrize("places", [(0, 1), (3, 17), (35, 36)])
def test_two_places_hold_any_two_examples_equally_often(places):
    """All that the noise of a batch's gradient depends on."""
    made = orders(37, 40_000)
    np.testing.assert_array_equal(np.sort(made, axis=1), [np.arange(37)] * len(made))
    counts = np.zeros((37, 37))
    np.add.at(counts, tuple(made[:, places].T), 1)
    pairs = counts[~np.eye(37, dtype=bool)]
    expected = 40_000 / len(pairs)
    statistic = np.sum((pairs - expected) ** 2) / expected
    assert chi2.sf(statistic, len(pairs) - 1) > 1e-5


def estimates(name, anchor, distance, *, batch_size=10, num_chains=2000):
    """Values and gradients after 3 steps at one point, `(chain, ...)`; the exact ones.

    The chains start at the mode, and the point is so many standard deviations away.
    """
    data, mode, covariance = exact.regression(50)
    log_posterior = exact.log_posterior()
    estimator = gradients.build(
        log_posterior, batch_size=batch_size, batches=name, anchor=anchor
    )
    mode = jnp.asarray(mode[:, None], jnp.float32)
    point = mode + distance * np.sqrt(np.diag(covariance))[:, None].astype(np.float32)

    def chain(key):
        state = estimator.init(key, mode, data)
        for step_key in jax.random.split(key, 2):
            state = estimator.estimate(step_key, state, point, data)[2]
        value, gradient, _ = estimator.estimate(key, state, point, data)
        return value, gradient[:, 0]

    keys = jax.random.split(jax.random.key(1), num_chains)
    made = jax.tree.map(np.asarray, jax.jit(jax.vmap(chain))(keys))
    value, gradient = jax.value_and_grad(log_posterior)(point, data)
    return *made, np.asarray(value), np.asarray(gradient)[:, 0]


@pytest.mark.parametrize("anchor", [None, "start", 2])
@pytest.mark.parametrize("name", ["replacement", "epoch", "sweep"])
def test_values_and_gradients_are_unbiased(name, anchor):
    """Within 4.5 standard errors, of the third step."""
    values, grads, value, gradient = estimates(name, anchor, 2.0)
    for made, truth in ((values, value), (grads[:, 0], gradient[0])):
        error = made.std() / np.sqrt(len(made))
        # float32 sums of some hundred nats.
        assert abs(made.mean() - truth) < 4.5 * error + 1e-6 * abs(value)


def test_an_epoch_has_the_noise_of_drawing_without_replacement():
    """Smaller by (n - b) / (n - 1) than that with replacement."""
    spread = {
        name: estimates(name, None, 2.0, batch_size=16)[1].var(axis=0)
        for name in ("replacement", "epoch")
    }
    # 2,000 chains: the ratio of two variances is known to 5 %.
    ratio = (50 - 16) / (50 - 1)
    np.testing.assert_allclose(spread["epoch"] / spread["replacement"], ratio, rtol=0.2)


def test_control_variates_have_noise_that_grows_with_the_distance():
    """None at the anchor; on a linear regression linear in the distance from it."""
    plain = estimates("replacement", None, 0.5)[1].std(axis=0)
    at, near, far = (
        estimates("replacement", "start", distance)[1].std(axis=0)
        for distance in (0.0, 0.5, 2.0)
    )
    assert np.all(at < 1e-5 * plain)
    np.testing.assert_allclose(far / near, 4, rtol=1e-3)
    assert np.all(near < 0.2 * plain)


def test_svrg_moves_its_anchor_after_so_many_steps():
    """After two steps away from the start the third finds the anchor where it is."""
    assert np.all(estimates("replacement", 2, 2.0)[1].std(axis=0) < 1e-3)
    kept = estimates("replacement", 3, 2.0)[1].std(axis=0)
    start = estimates("replacement", "start", 2.0)[1].std(axis=0)
    np.testing.assert_allclose(kept, start, rtol=1e-6)


def test_svrg_takes_the_gradient_of_all_examples_only_when_it_is_due():
    """Of all chains of a device a branch that runs or doesn't, not a selection."""
    data, _, _ = exact.regression(20)
    start = jnp.ones((3, 2, 1))
    estimator = gradients.build(exact.log_posterior(), batch_size=2, anchor=10)
    keys = jax.random.split(jax.random.key(0), 3)
    state = jax.vmap(estimator.init, (0, 0, None))(keys, start, data)

    def estimate(key, state, params):
        return estimator.estimate(key, state, params, data)

    program = jax.make_jaxpr(mesh.vmap_chains(estimate, 0))(keys, state, start)
    branches = [e for e in program.eqns if e.primitive.name == "cond"]
    assert len(branches) == 1
    # All examples meet the parameters in one of its branches and nowhere else.
    texts = [str(branch) for branch in branches[0].params["branches"]]
    assert [("20" in text and "dot_general" in text) for text in texts].count(True) == 1
    outside = [str(e) for e in program.eqns if e is not branches[0]]
    assert not any("dot_general" in text and "f32[20," in text for text in outside)


VARIANTS = {
    "plain": {},
    "epoch": {"batches": "epoch"},
    "control variates": {"anchor": "start"},
    "svrg": {"anchor": 10},
}


def test_sgld_samples_a_posterior_better_with_less_noise():
    """Excess variance over the closed form, of batches of 5 out of 50."""
    data, mode, covariance = exact.regression(50)
    precision = np.linalg.inv(covariance)
    excess = {}
    for name, options in VARIANTS.items():
        algorithm = sgld.build(
            exact.log_posterior(), step_size=0.002, batch_size=5, **options
        )
        _, positions, _ = exact.simulate(algorithm, mode[:, None], 600, data=data)
        centred = positions[..., 0] - mode
        distance = np.einsum("csi,ij,csj->cs", centred, precision, centred)
        excess[name] = distance.mean() / 2 - 1
        error = distance.mean(axis=1).std() / np.sqrt(len(distance)) / 2
        assert error < 0.015
    assert excess["plain"] > 0.3
    assert excess["epoch"] < 0.5 * excess["plain"]
    assert excess["control variates"] < 0.5 * excess["plain"]
    assert excess["svrg"] < 0.5 * excess["plain"]


FRICTION = {"friction": 1.0}
SAMPLERS = {
    sgld: {},
    sghmc: FRICTION,
    sgnht: FRICTION,
    baoab: FRICTION,
    sms_ubu: FRICTION,
    izmailov2021: {"momentum_decay": 0.5},
}


@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda module: module.__name__)
def test_every_sampler_takes_one_batch_after_another(sampler):
    options = {"step_size": 1e-3, "batch_size": 2} | SAMPLERS[sampler]
    if sampler is not sms_ubu:
        options["batches"] = "sweep"
    algorithm = sampler.build(exact.log_posterior(), **options)
    data, mode, _ = exact.regression(10)
    state, _, _ = exact.simulate(algorithm, mode[:, None], 13, data=data, num_chains=2)
    # A sweep is ten batches.
    np.testing.assert_array_equal(state.estimate.round, 1)
    np.testing.assert_array_equal(state.estimate.place, 3)
    if sampler is izmailov2021:
        return
    algorithm = sampler.build(exact.log_posterior(), anchor=5, **options)
    state, _, _ = exact.simulate(algorithm, mode[:, None], 13, data=data, num_chains=2)
    np.testing.assert_array_equal(state.estimate.age, 3)
    np.testing.assert_array_equal(state.estimate.batches.place, 3)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "`batch_size` must be at least 1, got 0"),
        ({"batches": "shuffle"}, ValueError, "must be one of replacement, epoch, swe"),
        ({"anchor": "map"}, ValueError, "`anchor` must be start, a number of steps"),
        ({"anchor": 0}, ValueError, "`anchor` must be at least 1, got 0"),
    ],
)
def test_bad_options_are_named(options, error, message):
    with pytest.raises(error, match=message):
        gradients.build(exact.log_posterior(), **({"batch_size": 2} | options))


@pytest.mark.parametrize("name", ["replacement", "epoch"])
def test_a_batch_larger_than_the_data_is_refused(name):
    estimator = gradients.build(exact.log_posterior(), batch_size=21, batches=name)
    with pytest.raises(ValueError, match="at most the 20 examples of `data`, got 21"):
        estimator.init(jax.random.key(0), jnp.zeros((2, 1)), exact.regression(20)[0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batches": "epoch"}, "a `batch` estimate for `batches=epoch`, got Gaussian"),
        ({"anchor": "start"}, "must be callable for an `anchor`"),
    ],
)
def test_a_density_that_cannot_do_it_is_refused(options, message):
    with pytest.raises(TypeError, match=message):
        gradients.build(exact.Gaussian(), batch_size=1, **options)


def test_data_without_examples_cannot_be_shuffled():
    estimator = gradients.build(exact.log_posterior(), batch_size=1, batches="epoch")
    with pytest.raises(TypeError, match="`data` must be `Data` for `batches=epoch`"):
        estimator.init(jax.random.key(0), jnp.zeros((2, 1)), np.zeros(3))
