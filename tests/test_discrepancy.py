import math
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.spatial.distance import cdist, pdist

from symjax import store
from symjax.evaluation import discrepancy, reading
from symjax.evaluation.discrepancy import (
    chains as chains_module,
    kernels,
    projections,
)


RNG = np.random.default_rng(0)
KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def same_numbers(monkeypatch):
    """The same numbers whichever tests ran before."""
    monkeypatch.setattr(sys.modules[__name__], "RNG", np.random.default_rng(0))


def mmd_by_hand(one, two):
    """Gretton et al. (2012), lemma 6, in three sums over pairs of draws."""
    median = np.median([d for d in pdist(np.concatenate([one, two])) if d > 0])

    def kernel(x, y):
        d = cdist(x, y)
        return np.mean(
            [
                k
                for s in median * np.array([0.25, 0.5, 1, 2, 4])
                for k in (np.exp(-(d**2) / (2 * s**2)), np.exp(-d / s))
            ],
            axis=0,
        )

    def mean_of_pairs(x):
        return np.mean(kernel(x, x)[~np.eye(len(x), dtype=bool)])

    return mean_of_pairs(one) + mean_of_pairs(two) - 2 * np.mean(kernel(one, two))


def test_mmd_is_the_unbiased_estimate_over_pairs_of_draws(monkeypatch):
    one, two = RNG.normal(size=(30, 7)), 0.5 + RNG.normal(size=(41, 7))
    one, two = one + 1e6, two + 1e6
    want = mmd_by_hand(one, two)
    assert discrepancy.mmd(one, two) == pytest.approx(want, rel=1e-9)
    assert discrepancy.mmd(two, one) == pytest.approx(want, rel=1e-9)
    monkeypatch.setattr(kernels, "_BLOCK_VALUES", 150)  # two columns a block
    assert discrepancy.mmd(one, two) == pytest.approx(want, rel=1e-9)
    single = RNG.normal(size=(9, 7)).astype(np.float32)
    want = mmd_by_hand(single.astype(float), single[:4] + 1.0)
    found = discrepancy.mmd(jnp.asarray(single), single[:4] + 1)
    assert found == pytest.approx(want, rel=1e-9)


def test_mmd_takes_draws_that_repeat_for_the_same():
    # As rejected proposals make them; rounding would put them 1e-7 apart.
    for quantities in (10, 50, 333):
        draws = np.repeat(RNG.normal(size=(3, quantities)), 21, axis=0)
        want = mmd_by_hand(draws[:30], draws[30:])
        found = discrepancy.mmd(draws[:30], draws[30:])
        assert found == pytest.approx(want, rel=1e-11)


def test_mmd_is_zero_on_average_for_one_distribution_and_two_far_apart():
    draws = RNG.normal(size=(200, 2, 12, 3))
    same = [discrepancy.mmd(*pair) for pair in draws]
    assert stats.ttest_1samp(same, 0.0).pvalue > 1e-4
    assert min(same) < 0 < max(same)
    one, two = np.zeros((3, 4)), np.ones((5, 4))
    # All pairs of different sets are at the median distance, the others at none.
    between = np.mean(
        [
            k
            for s in (0.25, 0.5, 1, 2, 4)
            for k in (math.exp(-1 / (2 * s**2)), math.exp(-1 / s))
        ]
    )
    assert discrepancy.mmd(one, two) == pytest.approx(2 - 2 * between)
    assert discrepancy.mmd(two, two[:2]) == 0


def test_mmd_refuses_what_it_would_misread():
    x = np.ones((3, 2))
    with pytest.raises(ValueError, match="2 and 1 of them"):
        discrepancy.mmd(x, x[:, :1])
    with pytest.raises(ValueError, match="at least two draws each; got 3 and 1"):
        discrepancy.mmd(x, x[:1])
    with pytest.raises(ValueError, match="`two` must be finite; 6 of 6"):
        discrepancy.mmd(x, x * np.nan)


def chains():
    """Three chains of 11 draws, each with its own place and spread."""
    place, spread = RNG.normal(size=(3, 1, 1)), 1 + RNG.random((3, 1, 1))
    flat = 50 + place + spread * RNG.normal(size=(3, 11, 10))
    tree = {"a": flat[..., :6].reshape(3, 11, 2, 3), "b": {"c": flat[..., 6]}}
    return flat, tree | {"d": flat[..., 7:]}


def test_chain_distances_are_those_of_all_pairs(monkeypatch):
    flat, tree = chains()
    result = discrepancy.chain_distances(tree)
    for i in range(3):
        for j in range(3):
            pairs = pdist(flat[i]) if i == j else cdist(flat[i], flat[j])
            want = np.sqrt((pairs**2).mean())
            assert result.pairs[i, j] == pytest.approx(want, rel=1e-12)
    squared = cdist(*2 * [flat.reshape(33, 10)]) ** 2
    chain = np.repeat(np.arange(3), 11)
    apart = chain[:, None] != chain
    alike = ~apart & ~np.eye(33, dtype=bool)
    assert result.between == pytest.approx(np.sqrt(squared[apart].mean()))
    assert result.within == pytest.approx(np.sqrt(squared[alike].mean()))
    for size in (1, 300):  # one draw a piece, several
        monkeypatch.setattr(reading, "_PIECE_BYTES", size)
        again = discrepancy.chain_distances(tree)
        np.testing.assert_allclose(again.pairs, result.pairs, rtol=1e-12)


def test_chain_mmd_is_that_of_each_chain_and_the_others(monkeypatch):
    flat, tree = chains()
    bandwidths_are_of_all = [
        mmd_by_hand(flat[i], np.delete(flat, i, axis=0).reshape(22, 10))
        for i in range(3)
    ]
    result = discrepancy.chain_distances(tree)
    assert result.mmd == pytest.approx(np.mean(bandwidths_are_of_all), rel=1e-9)
    # Draws from the first to the last, and a sample of the weights.
    monkeypatch.setattr(chains_module, "_MOST_DRAWS", 9)
    kept = flat[:, [0, 5, 10]]
    want = [
        mmd_by_hand(kept[i], np.delete(kept, i, axis=0).reshape(6, 10))
        for i in range(3)
    ]
    assert discrepancy.chain_distances(tree).mmd == pytest.approx(np.mean(want))
    monkeypatch.setattr(chains_module, "MAX_JUDGED", 4)
    read = []
    take = chains_module.take
    monkeypatch.setattr(
        chains_module, "take", lambda leaf, at: read.append(len(at)) or take(leaf, at)
    )
    values = RNG.normal(size=(3, 11, 1000))
    values[0] += 1
    sampled = discrepancy.chain_distances({"x": values}).mmd
    assert sampled is not None
    assert 0 < sum(read) < 20
    monkeypatch.setattr(chains_module, "MAX_JUDGED", 200)
    wider = discrepancy.chain_distances({"x": values}).mmd
    monkeypatch.setattr(chains_module, "MAX_JUDGED", 10_000)
    assert wider == pytest.approx(discrepancy.chain_distances(values).mmd, rel=0.1)


def test_chain_distances_read_a_stored_run_and_jax_arrays(tmp_path):
    values = RNG.normal(size=(2, 6, 3, 4)).astype(np.float32)
    run = store.create(
        tmp_path / "run",
        config={},
        params={"w": jnp.zeros((3, 4))},
        info={"lp": jax.ShapeDtypeStruct((), np.float32)},
        num_chains=2,
        num_draws=6,
        num_iterations=6,
        kept=range(6),
    )
    run.append({"w": values}, 0, {"lp": np.zeros((2, 6), np.float32)}, 0)
    run.commit({"done": jnp.asarray(6)}, iteration=6, num_draws=6, finished=True)
    want = discrepancy.chain_distances(values)
    for draws in (store.open(tmp_path / "run").lazy(), {"w": jnp.asarray(values)}):
        result = discrepancy.chain_distances(draws)
        np.testing.assert_array_equal(result.pairs, want.pairs)
        assert result.mmd == want.mmd


def test_chain_distances_leave_out_what_there_is_not():
    one = discrepancy.chain_distances(RNG.normal(size=(1, 5, 2)))
    assert (one.between, one.mmd) == (None, None)
    assert one.within is not None
    single = discrepancy.chain_distances(np.array([[[0.0, 0.0]], [[3.0, 4.0]]]))
    assert (single.within, single.mmd) == (None, None)
    assert single.between == 5
    assert np.isnan(np.diag(single.pairs)).all()
    diverged = RNG.normal(size=(3, 5, 2))
    diverged[1, 3, 0] = np.inf
    result = discrepancy.chain_distances(diverged)
    assert np.isfinite(result.pairs[0, 2])
    assert math.isnan(result.between or 0)
    assert math.isnan(result.mmd or 0)
    for wrong in ({}, {"a": np.ones((2, 3, 1)), "b": np.ones((2, 4))}, np.ones(3)):
        with pytest.raises(ValueError, match="the same leading axes"):
            discrepancy.chain_distances(wrong)


def test_mmd_test_is_the_permutation_test_of_scipy():
    one, two = RNG.normal(size=(5, 3)), 0.7 + RNG.normal(size=(4, 3))
    joint = np.concatenate([one, two])
    kernel = kernels.kernel_matrix(cdist(joint, joint) ** 2)

    def statistic(x, y):
        # SciPy moves places among the rows; the kernel stays that of all draws.
        x, y = np.asarray(x, int), np.asarray(y, int)
        off = lambda i: kernel[np.ix_(i, i)][~np.eye(len(i), dtype=bool)].mean()
        return off(x) + off(y) - 2 * kernel[np.ix_(x, y)].mean()

    exact = stats.permutation_test(
        (np.arange(5), np.arange(5, 9)), statistic, alternative="greater"
    )
    found = discrepancy.mmd_test(one, two, num_permutations=20_000)
    assert found.mmd == pytest.approx(exact.statistic, rel=1e-9)
    assert found.mmd == pytest.approx(discrepancy.mmd(one, two), rel=1e-9)
    error = math.sqrt(exact.pvalue * (1 - exact.pvalue) / 20_000)
    assert 0.02 < exact.pvalue < 0.9
    assert found.p_value == pytest.approx(exact.pvalue, abs=4.5 * error + 1 / 20_000)


def test_mmd_p_values_are_uniform_where_nothing_differs():
    sets = np.random.default_rng(2).normal(size=(300, 2, 9, 2))
    found = [
        discrepancy.mmd_test(*pair, 199, seed=i).p_value for i, pair in enumerate(sets)
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-4
    tried = {discrepancy.mmd_test(*sets[1], 199, seed=i).p_value for i in range(5)}
    assert len(tried) > 1
    far = discrepancy.mmd_test(sets[0, 0], sets[0, 1] + 5, 199)
    assert far.p_value == 1 / 200


def test_blocks_keep_draws_of_a_chain_together():
    # Chains that stay where they began: 6 places a set, 20 draws at each.
    rng = np.random.default_rng(3)
    single, blocks = [], []
    for seed in range(40):
        place = np.repeat(rng.normal(size=(2, 6, 2)), 20, axis=1)
        draws = place + 0.01 * rng.normal(size=place.shape)
        single.append(discrepancy.mmd_test(*draws, 99, seed).p_value)
        blocks.append(discrepancy.mmd_test(*draws, 99, seed, block_length=20).p_value)
    assert np.mean(np.array(single) <= 0.05) > 0.8
    assert stats.kstest(blocks, "uniform").pvalue > 1e-4
    with pytest.raises(ValueError, match="`block_length` must divide.*120 and 120"):
        discrepancy.mmd_test(*np.ones((2, 120, 2)), block_length=50)


def test_compare_draws_is_the_mmd_of_all_weights(monkeypatch):
    flat, tree = chains()
    _, other = chains()
    other = jax.tree.map(lambda leaf: leaf[:2], other)
    flat_other = np.concatenate(
        [np.reshape(leaf, (2, 11, -1)) for leaf in jax.tree.leaves(other)], axis=2
    )
    found = discrepancy.compare_draws(tree, other, 49, seed=1)
    one, two = flat.reshape(33, 10), flat_other.reshape(22, 10)
    want = discrepancy.mmd_test(one, two, 49, seed=1, block_length=11)
    assert found.mmd == pytest.approx(want.mmd, rel=1e-9)
    assert found.p_value == want.p_value
    # Of a longer reference as many, from its first draw to its last.
    longer = RNG.normal(size=(3, 23, 10))
    values = longer[..., :6].reshape(3, 23, 2, 3), longer[..., 6], longer[..., 7:]
    tall = {"a": values[0], "b": {"c": values[1]}, "d": values[2]}
    kept = longer[:, np.linspace(0, 22, 11).astype(int)].reshape(33, 10)
    want = discrepancy.mmd_test(one, kept, 49, block_length=11)
    assert discrepancy.compare_draws(tree, tall, 49).mmd == pytest.approx(want.mmd)
    want = discrepancy.mmd_test(kept, one, 49, block_length=11)
    assert discrepancy.compare_draws(tall, tree, 49).mmd == pytest.approx(want.mmd)
    # Of fewer draws, evenly spaced, in whole blocks.
    monkeypatch.setattr(chains_module, "_MOST_DRAWS", 15)
    few = discrepancy.compare_draws(tree, other, 49, seed=1, block_length=2)
    kept = [x[:, [0, 3, 6, 10]].reshape(-1, 10) for x in (flat, flat_other)]
    want = discrepancy.mmd_test(*kept, 49, seed=1, block_length=2)
    assert few.mmd == pytest.approx(want.mmd, rel=1e-9)
    assert few.p_value == want.p_value
    monkeypatch.setattr(chains_module, "MAX_JUDGED", 4)
    assert np.isfinite(discrepancy.compare_draws(tree, other, 9).mmd)
    # A small leaf of a large network, none of whose weights is in the sample.
    assert discrepancy.chain_distances({"a": tree["a"], "b": tree["d"][..., 0]}).mmd
    monkeypatch.undo()
    diverged = tree | {"d": tree["d"] * np.nan}
    with pytest.raises(ValueError, match="`reference_draws` must be finite"):
        discrepancy.compare_draws(tree, diverged)
    with pytest.raises(ValueError, match="leaves of the same shapes"):
        discrepancy.compare_draws(tree, {"a": tree["a"]})
    with pytest.raises(ValueError, match="one block of 12 a chain; got 3 x 11"):
        discrepancy.compare_draws(tree, other, block_length=12)


def test_projections_keep_distances_and_come_in_pieces(monkeypatch):
    flat, tree = chains()
    found = discrepancy.project(tree, 4000, jax.random.key(0))
    assert found.shape == (3, 11, 4000)
    # A squared distance is off by sqrt(2 / 4000) = 2.2 %.
    got = pdist(found.reshape(33, -1)) / pdist(flat.reshape(33, 10))
    assert abs(got**2 - 1).max() < 5 * math.sqrt(2 / 4000)
    assert got.std() > 1e-3
    monkeypatch.setattr(reading, "_PIECE_BYTES", 300)
    again = discrepancy.project(tree, 4000, jax.random.key(0))
    np.testing.assert_allclose(again, found, rtol=1e-4, atol=1e-4)
    other = discrepancy.project(tree, 4000, jax.random.key(1))
    assert abs(other - found).max() > 1
    # The matrix in parts of two rows is another one, and as good.
    monkeypatch.setattr(projections, "_MATRIX_VALUES", 8000)
    parts = discrepancy.project(tree, 4000, jax.random.key(0)).reshape(33, -1)
    got = pdist(parts) / pdist(flat.reshape(33, 10))
    assert abs(got**2 - 1).max() < 5 * math.sqrt(2 / 4000)


def test_projection_is_linear_with_normal_coefficients():
    units = np.eye(6)[None]
    matrix = discrepancy.project({"a": units[..., :2], "b": units[..., 2:]}, 5000, KEY)
    rows = matrix[0] * math.sqrt(5000)
    assert stats.kstest(rows.ravel(), "norm").pvalue > 1e-4
    gram = rows @ rows.T / 5000
    assert abs(gram - np.eye(6)).max() < 5 * math.sqrt(2 / 5000)


def test_sliced_wasserstein_of_sets_a_constant_apart():
    one = RNG.normal(size=(50, 3))
    shift = np.array([1.0, -2.0, 2.0])
    found = discrepancy.sliced_wasserstein(one, one + shift, 20_000)
    # (u . c)^2 = 9 u_1^2 has the variance 81 (1/5 - 1/9): 0.6 % of the mean at 20,000.
    assert found == pytest.approx(3 / math.sqrt(3), rel=0.02)
    assert discrepancy.sliced_wasserstein(one, one[::-1]) == pytest.approx(0, abs=1e-12)


def test_sliced_wasserstein_in_one_dimension_is_the_mean_of_quantile_costs():
    one, two = RNG.normal(size=(12, 1)), 1 + 2 * RNG.normal(size=(18, 1))
    # 36 is a multiple of both numbers: repeats make them equal in size.
    quantiles = np.sort(np.repeat(one, 3)) - np.sort(np.repeat(two, 2))
    want = math.sqrt(np.mean(quantiles**2))
    assert discrepancy.sliced_wasserstein(one, two, 3) == pytest.approx(want, rel=1e-12)
    found = discrepancy.sliced_wasserstein(*np.random.default_rng(5).random((2, 9, 4)))
    again = discrepancy.sliced_wasserstein(*np.random.default_rng(5).random((2, 9, 4)))
    assert found == again
    pair = np.random.default_rng(5).random((2, 9, 4))
    assert discrepancy.sliced_wasserstein(*pair, seed=1) != found
    with pytest.raises(ValueError, match="draws of the same quantities"):
        discrepancy.sliced_wasserstein(one, np.ones((2, 2)))
