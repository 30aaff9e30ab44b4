"""What `fit` does after the last step."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from symjax import mesh, run, store
from symjax.approximations import ensemble
from symjax.mesh import sum_over_data
from symjax.run import NonFiniteError


BASE = ensemble.build(cases.log_posterior(), optimiser=optax.adam(0.1))


def fit(finish, num_devices=1, kept=None):
    def sample(key, fitted):
        del key
        return jax.tree.map(lambda leaf: 0 * leaf + fitted["total"], fitted["at"])

    return run.fit(
        jax.random.key(0),
        BASE._replace(finish=finish, sample=sample),
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


def test_a_run_killed_in_its_finish_goes_on_with_it(tmp_path, monkeypatch):
    whole = fit(total)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("symjax.run.api.finish", killed)
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
