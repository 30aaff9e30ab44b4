"""Convergence diagnostics against ArviZ, and what they say of chains gone wrong."""

import re

import arviz
import jax.numpy as jnp
import numpy as np
import pytest

from symjax.evaluation import convergence, diagnostics, reading


ORACLES = {
    "rhat": lambda x: arviz.rhat(x),
    "classic_rhat": lambda x: arviz.rhat(x, method="identity"),
    "ess_bulk": lambda x: arviz.ess(x, method="bulk"),
    "ess_tail": lambda x: arviz.ess(x, method="tail", prob=(0.05, 0.95)),
    "mcse_mean": lambda x: arviz.mcse(x, method="mean"),
}


def of(result, name, path=""):
    """One statistic of a leaf; fails where it is withheld."""
    return getattr(result, name)[path]


def chains(num_chains, num_draws, num_quantities, *, seed=0, rejections=0.2):
    """float32 draws of many kinds, a fifth of them repeats as rejections make them."""
    rng = np.random.default_rng(seed)
    correlation = rng.uniform(-0.6, 0.99, num_quantities)
    x = rng.normal(size=(num_chains, num_draws, num_quantities))
    for t in range(1, num_draws):
        x[:, t] = correlation * x[:, t - 1] + np.sqrt(1 - correlation**2) * x[:, t]
    fifth = num_quantities // 5
    x[0, :, :fifth] += 1  # a chain elsewhere
    x[-1, :, fifth : 2 * fifth] *= 5  # a chain of another width: seen by folding only
    x[:, :, 2 * fifth : 3 * fifth] = np.exp(3 * x[:, :, 2 * fifth : 3 * fifth])
    x[:, :, 3 * fifth : 4 * fifth] = 1e3 + 0.1 * x[:, :, 3 * fifth : 4 * fifth]
    x = x.astype(np.float32)
    for t in range(1, num_draws):
        rejected = rng.random(num_chains) < rejections
        x[rejected, t] = x[rejected, t - 1]
    return x


# 3 x 67: an odd number of draws, whose middle one is left out of the halves.
@pytest.mark.parametrize(("num_chains", "num_draws"), [(4, 200), (3, 67), (2, 10)])
def test_agrees_with_arviz(num_chains, num_draws):
    x = chains(num_chains, num_draws, 25)
    ours = convergence.summarise(x)
    assert ours.withheld is None
    for name, oracle in ORACLES.items():
        expected = [float(oracle(x[:, :, i])) for i in range(x.shape[2])]
        np.testing.assert_allclose(of(ours, name), expected, rtol=1e-4, err_msg=name)


@pytest.mark.parametrize("kind", ["float64", "zeros of both signs"])
def test_ranks_every_difference_and_no_other(kind):
    x = chains(4, 50, 10)
    if kind == "float64":
        x = 1 + 1e-9 * x.astype(float)  # one number in float32
    else:
        signs = np.random.default_rng(1).choice(np.float32([-1, 1]), x.shape)
        x = signs * np.maximum(x - np.median(x, axis=(0, 1)), 0)
    ours = convergence.summarise(x)
    for name in ("rhat", "ess_bulk", "ess_tail"):
        expected = [float(ORACLES[name](x[:, :, i])) for i in range(x.shape[2])]
        np.testing.assert_allclose(of(ours, name), expected, rtol=1e-4, err_msg=name)


def test_two_values_as_often_as_each_other_have_an_rhat():
    """Folded at the median between them, they are all the same."""
    random = np.random.default_rng(0)
    x = np.stack([random.permutation(np.arange(50) % 2) for _ in range(4)])
    x = x.astype(np.float32)
    with np.errstate(invalid="ignore"):
        expected = float(arviz.rhat(x))
    assert 0.9 < expected < 1.5
    np.testing.assert_allclose(of(convergence.summarise(x), "rhat"), expected, 1e-4)


def test_what_differs_in_a_middle_draw_alone_has_no_statistics():
    """It is in no half; of a standing quantity a size of all draws would be a lie."""
    x = chains(4, 51, 3)
    x[:, :, 1] = 0.3
    x[2, 25, 1] = 0.4
    result = convergence.summarise(x)
    assert result.num_constant == 0
    for name in ORACLES:
        np.testing.assert_array_equal(np.isnan(of(result, name)), [False, True, False])


def test_equal_values_tie_within_a_quantity_only():
    x = chains(2, 20, 2)
    x -= x.min(axis=(0, 1))
    x[:, :, 1] += x[:, :, 0].max()
    alone = of(convergence.summarise(x[:, :, :1]), "rhat")
    np.testing.assert_array_equal(of(convergence.summarise(x), "rhat")[:1], alone)


def test_units_and_offsets_change_nothing():
    # Exact in float32: powers of two; far below where squares underflow.
    x = chains(4, 50, 10)
    plain, tiny = (convergence.summarise(scale * x) for scale in (1, 2.0**-100))
    for name in ("rhat", "classic_rhat", "ess_bulk", "ess_tail"):
        np.testing.assert_array_equal(of(plain, name), of(tiny, name))
    np.testing.assert_allclose(
        of(tiny, "mcse_mean"), 2.0**-100 * of(plain, "mcse_mean"), rtol=1e-6
    )


def test_blocks_and_leaves_give_what_one_array_gives(monkeypatch):
    x = chains(2, 20, 30)
    whole = convergence.summarise(x)
    monkeypatch.setattr(diagnostics, "_BLOCK_VALUES", 2 * 20 * 7)
    tree = {"a": {"b": jnp.asarray(x[:, :, :6].reshape(2, 20, 3, 2))}, "c": x[:, :, 6:]}
    parts = convergence.summarise(tree)
    monkeypatch.setattr(reading, "_PIECE_BYTES", 7 * 24 * 4)
    stored = {"a/b": Stored(np.asarray(tree["a"]["b"])), "c": Stored(tree["c"])}
    lazy = convergence.summarise_leaves(stored.items())
    assert max(stored["c"].asked) == 7
    assert sum(stored["c"].asked[1:]) == 2 * 20
    assert parts.num_quantities == 30
    for name in ORACLES:
        first, second = of(parts, name, "a/b"), of(parts, name, "c")
        assert first.shape == (3, 2)
        joined = np.concatenate([first.ravel(), second])
        # Not bit for bit: the FFT's vector lanes depend on the block.
        np.testing.assert_allclose(joined, of(whole, name), rtol=1e-5)
        np.testing.assert_array_equal(of(lazy, name, "a/b"), first)
        np.testing.assert_array_equal(of(lazy, name, "c"), second)


class Stored:
    """A leaf on a disk, of which no more than a chain is ever asked at once."""

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype
        self.asked = []

    def __getitem__(self, index):
        chain, draws = index
        self.asked.append(draws.stop - draws.start)
        return self.values[chain, draws]


def test_of_many_quantities_a_random_sample_is_judged_and_all_are_looked_at():
    x = chains(2, 20, 4000)
    x[0] += 9 * (np.arange(4000) < 1000)
    x[:, :, ::7] = 0.3
    x[1, 9, 1::7] = np.nan
    tree = {"a": x[:, :, :1000].reshape(2, 20, 50, 20), "b": x[:, :, 1000:]}
    whole, part = (convergence.summarise(tree, max_judged=n) for n in (4000, 900))
    assert (whole.num_judged, part.num_judged) == (4000, 900)
    assert part.num_quantities == whole.num_quantities == 4000
    assert part.num_constant == whole.num_constant == len(range(0, 4000, 7))
    assert part.num_non_finite == whole.num_non_finite == len(range(1, 4000, 7))
    numbers = dict.fromkeys("ab", 0)
    for name in ORACLES:
        for path in numbers:
            all_, some = of(whole, name, path), of(part, name, path)
            known = ~np.isnan(some)
            np.testing.assert_allclose(some[known], all_[known], rtol=1e-5)
            numbers[path] = known.sum()
    # As many of each leaf as of all, to three standard deviations.
    varying = 900 * 5 / 7
    assert sum(numbers.values()) == pytest.approx(varying, abs=3 * 14)
    assert numbers["a"] == pytest.approx(varying / 4, abs=3 * 11)
    shares = [convergence.share_below(c.rhat, 1.3) for c in (whole, part)]
    assert shares[0] == pytest.approx(shares[1], abs=3 * 0.02)
    np.testing.assert_array_equal(
        of(convergence.summarise(tree, max_judged=900), "rhat", "b"),
        of(part, "rhat", "b"),
    )
    for slow in convergence.slowest(part, 5):
        assert slow.rhat == of(part, "rhat", slow.path)[slow.index]


def test_a_sample_of_leaves_with_one_quantity_each_is_of_the_right_leaves():
    """Where a leaf begins, its quantity must not be taken for the last one's."""
    x = chains(2, 20, 30)
    tree = {f"{i:02}": x[:, :, i] for i in range(30)}
    whole, part = (convergence.summarise(tree, max_judged=n) for n in (30, 29))
    assert part.num_judged == 29
    known = [path for path in tree if not np.isnan(of(part, "rhat", path))]
    assert len(known) == 29
    for path in known:
        np.testing.assert_allclose(
            of(part, "rhat", path), of(whole, "rhat", path), rtol=1e-5
        )


def test_constant_and_non_finite_quantities_stand_apart():
    x = chains(4, 50, 10)
    x[:, :, 0] = 0.3
    x[2, 7, 1] = np.nan
    x[0, 0, 2] = np.inf
    result = convergence.summarise({"w": x})
    assert (result.num_quantities, result.num_constant) == (10, 1)
    assert result.num_non_finite == 2
    for name in ORACLES:
        values = of(result, name, "w")
        assert np.isnan(values[:3]).all()
        assert np.isfinite(values[3:]).all()
    good = of(result, "rhat", "w")[3:]
    assert convergence.share_below(result.rhat, 1.1) == (good < 1.1).mean()


def test_chains_stuck_apart_count_as_not_converged():
    x = np.array([0.1, 0.7, 0.9])[:, None] * np.ones((3, 40), np.float32)
    result = convergence.summarise(x.astype(np.float32))
    assert result.num_constant == 0
    assert of(result, "rhat") > 1e3
    assert of(result, "classic_rhat") > 1e3
    assert of(result, "ess_bulk") < 10
    assert convergence.share_below(result.rhat, 1.05) == 0


def test_a_share_needs_a_quantity():
    assert convergence.share_below({"a": np.array([np.nan, 1.0, 1.2])}, 1.05) == 0.5
    assert convergence.share_below({"a": np.array([1.0, 1.05])}, 1.05) == 0.5
    assert convergence.share_below({"a": np.array([np.nan])}, 1.05) is None
    assert convergence.share_below(None, 1.05) is None


@pytest.mark.parametrize(
    ("shape", "has_rhat", "has_ess", "reason"),
    [
        ((1, 50), False, True, "there is one"),
        ((4, 7), False, False, "7 draws"),
        ((4, 1), False, False, "1 draw a chain"),
        ((4, 9), True, False, "9 draws"),
        ((1, 9), False, False, "there is one.*9 draws"),
        ((2, 10), True, True, "^None$"),
    ],
)
def test_withholds_what_cannot_be_had(shape, has_rhat, has_ess, reason):
    result = convergence.summarise(chains(shape[0], shape[1], 5))
    assert (result.rhat is not None) == has_rhat
    assert (result.classic_rhat is not None) == has_rhat
    assert (result.ess_bulk is not None) == has_ess
    assert (result.ess_tail is not None) == has_ess
    assert (result.mcse_mean is not None) == has_ess
    assert result.num_quantities == 5
    assert re.search(reason, str(result.withheld))


def test_lists_the_slowest():
    x = chains(4, 100, 24, rejections=0).reshape(4, 100, 4, 6)
    x[:, :, 3, 2] += 9 * np.arange(4)[:, None]
    x[:, :, 0, 5] += 5 * np.arange(4)[:, None]
    x[:, :, 1, 1] = 0
    tree = {"a": chains(4, 100, 5, seed=1)[:, :, 2:4], "b": x}
    result = convergence.summarise(tree)
    first, second, *rest = convergence.slowest(result, 30)
    assert (first.path, first.index) == ("b", (3, 2))
    assert (second.path, second.index) == ("b", (0, 5))
    assert first.rhat == of(result, "rhat", "b")[3, 2] > second.rhat
    assert first.ess_bulk == of(result, "ess_bulk", "b")[3, 2]
    assert len(rest) == 2 + 24 - 1 - 2

    one_chain = convergence.summarise({"b": x[:1]})
    (slow,) = convergence.slowest(one_chain, 1)
    assert slow.rhat is None
    assert slow.ess_bulk == np.nanmin(of(one_chain, "ess_bulk", "b"))
    assert convergence.slowest(convergence.summarise(x[:, :3])) == []


@pytest.mark.parametrize(
    "draws", [{}, np.ones(5), {"a": np.ones((2, 9)), "b": np.ones((3, 9))}]
)
def test_rejects_leaves_without_chains_and_draws(draws):
    with pytest.raises(ValueError, match="`draws`"):
        convergence.summarise(draws)
