"""What `fit` does after the last step."""

from typing import Any, NamedTuple

import cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax import mesh, run, store
from symjax.approximations import ensemble, mfvi
from symjax.mesh import sum_over_data
from symjax.run import NonFiniteError


BASE = ensemble.build(cases.log_posterior(), optimiser=optax.adam(0.1))


def fit(finish, num_devices=1, kept=None, describe=None):
    def sample(key, fitted):
        del key
        return jax.tree.map(lambda leaf: 0 * leaf + fitted["total"], fitted["at"])

    return run.fit(
        jax.random.key(0),
        BASE._replace(finish=finish, sample=sample, describe=describe),
        cases.start(jax.random.key(1), 2),
        cases.data(),
        num_steps=3,
        mesh=mesh.make_mesh(2, jax.devices()[:num_devices]),
        store=kept,
        show_progress=False,
    )


def total(key, state, data):
    """A sum over the examples of all devices, and what no other member has."""
    del key
    targets = jnp.where(data.mask[:, None], data.y, 0)
    value = sum_over_data(jnp.sum(targets)) + state.position["shift"]
    return {"at": state.position, "total": value}


def test_finish_sees_all_data_and_the_last_state():
    one, many = fit(total), fit(total, num_devices=8)
    expected = cases.data().y.sum() + one.warmup["shift"]
    np.testing.assert_allclose(one.draws["shift"][:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(many.draws["shift"][:, 0], expected, rtol=1e-4)
    plain = run.fit(
        jax.random.key(0),
        BASE,
        cases.start(jax.random.key(1), 2),
        cases.data(),
        num_steps=3,
        mesh=mesh.make_mesh(2, jax.devices()[:1]),
        show_progress=False,
    )
    np.testing.assert_array_equal(plain.draws["shift"][:, 0], one.warmup["shift"])


def test_every_member_and_draw_has_its_own_noise():
    def noise(key, fitted):
        return jax.tree.map(lambda leaf: jax.random.normal(key, leaf.shape), fitted)

    draws = run.fit(
        jax.random.key(0),
        BASE._replace(sample=lambda key, state: noise(key, state.position)),
        cases.start(jax.random.key(1), 4),
        cases.data(),
        num_steps=1,
        num_draws=3,
        mesh=mesh.make_mesh(4, jax.devices()[:1]),
        show_progress=False,
    ).draws
    assert len(np.unique(draws["shift"])) == draws["shift"].size >= 12


def test_a_run_killed_in_its_finish_goes_on_with_it(tmp_path, monkeypatch):
    whole = fit(total)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("symjax.run.conclusion._check_members", killed)
        with pytest.raises(KeyboardInterrupt):
            fit(total, kept=run.NewRun(tmp_path / "run"))
    kept = store.open(tmp_path / "run")
    assert (kept.committed.iteration, kept.committed.finished) == (3, False)
    fit(total, kept=kept)
    like = jax.tree.map(lambda leaf: leaf[0, 0], whole.draws)
    np.testing.assert_array_equal(kept.read(like=like)["shift"], whole.draws["shift"])
    np.testing.assert_array_equal(kept.warmup(like)["shift"], whole.warmup["shift"])


def test_what_is_not_finite_is_named():
    def one_is_not(key, state, data):
        fitted = total(key, state, data)
        is_last = mesh.chain_index() == 1
        return fitted | {"total": jnp.where(is_last, jnp.nan, fitted["total"])}

    with pytest.raises(NonFiniteError, match="fitted by member 1 is not finite"):
        fit(one_is_not)


def test_draws_that_are_not_finite_are_no_run(tmp_path):
    """A deviation of exp(1000), of a finite state."""
    start = cases.start(jax.random.key(0), 2)
    with pytest.raises(NonFiniteError, match="drawn from member 0, 1 is not finite"):
        run.fit(
            jax.random.key(0),
            mfvi.build(cases.log_posterior(), optimiser=optax.adam(1000.0)),
            start,
            cases.data(),
            num_steps=1,
            mesh=mesh.make_mesh(2, jax.devices()[:1]),
            store=run.NewRun(tmp_path / "run"),
            show_progress=False,
        )
    assert store.open(tmp_path / "run").committed.num_draws == 0


class Told(NamedTuple):
    """What is told of a member."""

    half: Any
    index: Any


def test_what_is_told_of_members_is_kept(tmp_path):
    def finish(key, state, data):
        return total(key, state, data) | {"index": mesh.chain_index()}

    def describe(fitted):
        return Told(fitted["total"] / 2, fitted["index"])

    kept = run.NewRun(tmp_path / "run")
    result = fit(finish, num_devices=2, kept=kept, describe=describe)
    expected = store.open(tmp_path / "run").read_leaf("shift")[:, 0] / 2
    assert result.fitted is not None
    np.testing.assert_allclose(result.fitted["half"], expected)
    assert result.fitted["index"] == [0, 1]
    again = store.open(tmp_path / "run")
    assert again.fitted == result.fitted
    assert fit(finish, kept=again, describe=describe).fitted == result.fitted
    assert fit(finish, describe=describe).fitted == again.fitted
    assert fit(total).fitted is None
