"""`symjax align` as a user types it."""

import functools
import shutil

import jax
import numpy as np
import pytest
from commands import symjax

from symjax import progress, store, symmetry
from symjax.cli import aligners, alignment, records


SHORT = ("--num-draws", 2, "--map-steps", 1, "--hmc.num-steps", 1)
TANH = ("--data", "wine", "--widths", 5, "--activation", "tanh", *SHORT)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of tanh units, with copies among its draws."""
    path = tmp_path_factory.mktemp("runs") / "hmc"
    symjax(
        "sample", "--data", "wine", "--widths", 5, "--activation", "tanh",
        "--num-chains", 2, "--num-draws", 40, "--map-steps", 50,
        "--hmc.trajectory-length", 0.2, "--hmc.num-warmup", 10, "--out", path,
    )  # fmt: skip
    return path


@pytest.fixture(scope="module")
def aligned(run):
    symjax("align", run)
    return run.with_name("hmc-aligned")


def parts(run):
    kept = store.open(run)
    built = records.posterior_of(kept)
    like = jax.eval_shape(built.init, jax.random.key(0))
    return kept, built, like


def test_draws_are_those_of_rebasin_and_the_original_is_untouched(run, aligned):
    kept, built, like = parts(run)
    spec = symmetry.infer(built.apply, like, built.dataset.train.x[:2])
    reference = jax.tree.map(lambda leaf: leaf[0], kept.warmup(like))
    draws = kept.read(like=like)
    expected = symmetry.rebasin(spec, draws, reference)
    found = store.open(aligned)
    jax.tree.map(np.testing.assert_array_equal, found.read(like=like), expected.params)
    info = found.info()
    np.testing.assert_allclose(
        info["distance_after"], expected.distance_after, rtol=1e-5
    )
    assert np.all(info["distance_after"] <= info["distance_before"] * (1 + 1e-6))
    # The chains start from networks of their own, so that the second one is a copy.
    assert np.all(info["transpositions"][1] > 0)
    np.testing.assert_array_equal(
        info["log_density"], kept.info()["log_density"][:, 10:]
    )


def test_aligned_draws_predict_what_the_draws_predict(run, aligned):
    _, built, like = parts(run)
    x = built.dataset.test.x
    one, other = (
        jax.vmap(jax.vmap(built.apply, (0, None)), (0, None))(
            store.open(path).read(like=like), x
        )
        for path in (run, aligned)
    )
    np.testing.assert_allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("method", ["activations", "straight-through"])
def test_an_interrupted_alignment_goes_on(run, aligned, method, tmp_path, monkeypatch):
    def stop_after_one(*_, **__):
        class Bar:
            def __enter__(self):
                return self.update

            def __exit__(self, *_):
                return False

            def update(self, done, note):
                raise KeyboardInterrupt

        return Bar()

    monkeypatch.setattr(aligners, "block_size", lambda run, method: 15)
    monkeypatch.setattr(
        symmetry, "match_straight_through", lambda spec, *rest, **_: rest[0]
    )
    if method == "straight-through":
        monkeypatch.setattr(aligners, "_match_by_loss", by_weights)
    out = ("--method", method, "--out", tmp_path / "out")
    with monkeypatch.context() as patch:
        patch.setattr(progress, "bar", stop_after_one)
        symjax("align", run, *out, code=1)
    assert store.open(tmp_path / "out").committed.num_draws == 15
    symjax("align", run, *out)
    assert store.open(tmp_path / "out").committed.finished
    symjax("align", run, "--method", method, "--out", tmp_path / "whole")
    jax.tree.map(
        np.testing.assert_array_equal,
        store.open(tmp_path / "out").read(),
        store.open(tmp_path / "whole").read(),
    )


def by_weights(built, spec, reference, draws):
    return symmetry.match_weights(spec, draws, reference)


def test_straight_through_matches_each_draw(run, tmp_path, monkeypatch):
    """One draw, since each is a training of its own, here a short one."""
    short = functools.partial(symmetry.match_straight_through, num_steps=20)
    monkeypatch.setattr(symmetry, "match_straight_through", short)
    kept, built, like = parts(run)
    aligner = aligners.build(kept, built, kept, "straight-through")
    draws = kept.read(draws=slice(0, 1), like=like)
    moved, info = aligner(draws)
    assert info["transpositions"].shape == (2, 1)
    outputs = [
        jax.vmap(jax.vmap(lambda p: built.apply(p, built.dataset.test.x)))(d)
        for d in (draws, moved)
    ]
    np.testing.assert_allclose(*outputs, atol=1e-4)


def test_what_cannot_be_aligned_is_explained(run, aligned, tmp_path, capsys):
    other = tmp_path / "other"
    symjax("sample", "--data", "wine", "--widths", 3, *SHORT, "--out", other)
    symjax("align", run, "--reference", other, code=2)
    assert "params/Dense_0/bias is (5,)" in capsys.readouterr().err
    symjax("align", run, "--method", "activations", code=2)
    assert "holds something else" in capsys.readouterr().err
    linear = tmp_path / "linear"
    symjax("sample", "--data", "wine", "--widths", *SHORT, "--out", linear)
    symjax("align", linear, code=2)
    assert "nothing to align" in capsys.readouterr().err
    symjax("sample", "--resume", aligned, code=2)
    assert "align it again" in capsys.readouterr().err


def test_a_run_made_again_is_not_taken_for_the_one_that_was_aligned(
    run, tmp_path, capsys
):
    again, beside, out = (tmp_path / name for name in ("b", "b-aligned", "to_b"))
    symjax("sample", *TANH, "--seed", 0, "--out", again)
    symjax("align", again)
    symjax("align", run, "--reference", again, "--out", out)
    kept, built, _ = parts(again)
    assert alignment.aligned_draws(kept, built, 0) is not None
    began = kept.created
    shutil.rmtree(again)
    symjax("sample", *TANH, "--seed", 1, "--out", again)
    capsys.readouterr()
    for stale, words in (
        (beside, (again,)),
        (out, (run, "--reference", again, "--out", out)),
    ):
        symjax("align", *words, code=2)
        said = capsys.readouterr().err
        for part in (f"{stale} holds something else", began, "Delete it"):
            assert part in said
        assert f"{again} (begun {store.open(again).created}" in said
    # Nor is it evaluated: without memory to align anew, there are no aligned draws.
    kept, built, _ = parts(again)
    assert alignment.aligned_draws(kept, built, 0) is None
    shutil.rmtree(beside)
    symjax("align", again)
    assert alignment.aligned_draws(kept, built, 0) is not None


def test_draws_that_are_not_finite_leave_no_run_behind(run, tmp_path, capsys):
    broken = tmp_path / "b"
    shutil.copytree(run, broken)
    kept = store.open(broken)
    nan = jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), kept.read())
    kept.draw_arrays.write(nan, 0, 0)
    symjax("align", broken, code=2)
    assert "not finite" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


def test_an_aligned_run_is_not_aligned_again(run, aligned, tmp_path, capsys):
    out = tmp_path / "out"
    symjax("align", aligned, "--out", out, code=2)
    assert f"align the run that they are of, {run}." in capsys.readouterr().err
    symjax("align", run, "--reference", aligned, "--out", out, code=2)
    assert f"which is {run}." in capsys.readouterr().err
    assert not out.exists()
