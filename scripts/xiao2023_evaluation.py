"""What the runs of xiao2023_compact.py say: Table 1, convergence, deviations, pruning.

`runs` are those of HMC and the ensemble, by kind and by how they were aligned; `fitted`
the Gaussians of the same; `vi` the Gaussian of mean-field VI.
"""

import shutil
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import xiao2023_runs

from symjax import evaluation, store, symmetry, trees
from symjax.approximations import gaussian
from symjax.plots import compact


PUBLISHED = {
    "HMC draws": (None, None, 0.9843),
    "HMC q_d": (0.1212, 0.8641, None),
    "HMC q_r by activations": (0.8249, 0.6570, None),
    "HMC mean by activations": (None, None, 0.9225),
    "ensemble members": (0.9931, 0.0229, 0.9866),
    "ensemble q_d": (0.5239, 0.7210, None),
    "ensemble q_r by activations to a member": (0.9868, 0.0495, None),
    "ensemble mean by activations to a member": (None, None, 0.9797),
    "mean-field VI": (0.9885, 0.0235, 0.9811),
}
"""Agreement and total variation with HMC's draws, and accuracy."""

PRUNED = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
INFORMED = (0.01, 0.1, 1.0)
"""Nats from which a weight counts as informed by the data; S independent draws see no
fewer than 1 / S."""

RANK, MAX_RANKED = 20, 500
"""Factors, and of how many draws: their cost is quadratic."""

MAX_JUDGED = 20_000
"""Quantities whose R-hat is computed; a share of them is off by at most 0.7 points."""


def evaluate(problem, runs, vi, out):
    """The table, convergence, and what the deviations say; draws the figures."""
    logits = evaluation.predict(
        problem.apply, runs["HMC", "none"].lazy(), problem.test.x
    )
    by_chain = evaluation.probs_by_chain(logits)
    fitted = {which: gaussian.fit(kept.lazy()) for which, kept in runs.items()}
    prior_std = problem.log_posterior.prior.std(vi.mean)
    judge = partial(judged, problem.test.y, by_chain.mean(axis=0))
    results = {
        "rows": judge_all(problem, runs, fitted, prior_std, judge, out),
        "between_chains": evaluation.between_chains(by_chain)._asdict(),
        "hmc": describe_chains(problem, runs, logits),
        "deviations": describe_deviations(problem, fitted, prior_std),
        "pruning": prune(problem, fitted, runs, vi),
    }
    names = [path.removeprefix("params/") for path in trees.paths(vi.std)]
    before, after, prior = (
        dict(zip(names, jax.tree.leaves(std), strict=True))
        for std in (
            fitted["HMC", "none"].std,
            fitted["HMC", "activations"].std,
            prior_std,
        )
    )
    figures = {
        "deviations": compact.deviations(before, after, prior),
        "pruning": compact.pruning(
            np.array(PRUNED),
            {name: np.array(c) for name, c in results["pruning"].items()},
        ),
    }
    for name, figure in figures.items():
        figure.savefig(out / f"{name}.png", dpi=150)
    return results


def judged(labels, reference, probs):
    return {
        "agreement": evaluation.agreement(probs, reference),
        "total_variation": evaluation.total_variation(probs, reference),
        "accuracy": evaluation.accuracy(probs, labels),
    }


def judge_all(problem, runs, fitted, prior_std, judge, out):
    """The rows of the table, by name; each Gaussian's draws become a run in `out`."""
    gaussians = {}
    drawn = {
        "HMC draws": runs["HMC", "none"],
        "ensemble members": runs["ensemble", "none"],
        "mean-field VI": store.open(out / "mfvi"),
    }
    rows = {}
    for (kind, how), one in fitted.items():
        by = "" if how == "none" else f" by {how}"
        gaussians[f"{kind} {'q_r' if by else 'q_d'}{by}"] = one
        rows[f"{kind} mean{by}"] = judge(probs_of_one(problem, one.mean))
    q_r = fitted["HMC", "activations"]
    gaussians["HMC q_r, blank pixels' weights 0"] = without_blank(problem, q_r)
    for nats in INFORMED:
        label = f"HMC q_r, weights of {nats} nats"
        gaussians[label] = gaussian.keep_informed(q_r, prior_std, min_nats=nats)
    aligned = runs["HMC", "activations"]
    count = aligned.num_chains * aligned.committed.num_draws
    some = aligned.read(draws=slice(None, None, -(-count // MAX_RANKED)))
    rank = min(RANK, np.prod(jax.tree.leaves(some)[0].shape[:2]).item() - 1)
    gaussians[f"HMC q_r, {rank} factors"] = gaussian.fit(some, rank=rank)
    # Of an earlier call, when HMC had fewer draws.
    shutil.rmtree(out / "gaussians", ignore_errors=True)
    for label, one in gaussians.items():
        drawn[label] = xiao2023_runs.draw(problem, out / "gaussians", label, one)
    for label, kept in drawn.items():
        rows[label] = judge(probs_of(problem, kept.lazy()))
    return dict(sorted(rows.items()))


def probs_of(problem, draws):
    logits = evaluation.predict(problem.apply, draws, problem.test.x)
    return evaluation.probs_from_logits(logits)


def probs_of_one(problem, params):
    return probs_of(
        problem, jax.tree.map(lambda leaf: np.asarray(leaf)[None, None], params)
    )


def blank_pixels(problem):
    return np.all(problem.train.x == 0, axis=0).ravel()


def without_blank(problem, fitted):
    """A Gaussian whose weights of blank pixels are zero."""
    is_blank = blank_pixels(problem)[:, None]

    def keep(path, leaf):
        is_first = jax.tree_util.keystr(path, simple=True).endswith("Dense_0kernel")
        return np.where(is_blank, np.zeros_like(leaf), leaf) if is_first else leaf

    return jax.tree_util.tree_map_with_path(keep, fitted)


def describe_chains(problem, runs, logits):
    """Acceptance, R-hat before and after alignment, transpositions along a chain."""
    draws = runs["HMC", "none"]
    info = {
        name: values[:, problem.scale.num_warmup :]
        for name, values in draws.info().items()
    }
    named = {"function": evaluation.probs_by_draw(logits)}
    named |= {how: kept.lazy() for (kind, how), kept in runs.items() if kind == "HMC"}
    diagnostics = {}
    for name, values in named.items():
        found = evaluation.summarise(values, max_judged=MAX_JUDGED)
        diagnostics[name] = {
            f"share_rhat_below_{level}": evaluation.share_below(found.rhat, level)
            for level in (1.01, 1.05, 1.1)
        }
    return {
        "num_chains": draws.num_chains,
        "num_draws": draws.committed.num_draws,
        "acceptance": float(info["acceptance_rate"].mean()),
        "num_divergent": int(info["is_divergent"].sum()),
        "step_sizes": info["step_size"][:, -1].tolist(),
        "num_steps": float(info["num_steps"].mean()),
        "log_density_by_quarter": [
            float(part.mean()) for part in np.array_split(info["log_density"], 4, 1)
        ],
        "diagnostics": diagnostics,
        "transpositions": {
            how: count_transpositions(runs["HMC", how].info()["permutations/0"])
            for how in ("activations", "weights")
        },
    }


def count_transpositions(permutations):
    """Mean number to the reference, and between consecutive draws."""
    before, after = permutations[:, :-1], permutations[:, 1:]
    steps = np.take_along_axis(np.argsort(before, axis=-1), after, axis=-1)
    return {
        name: float(np.mean(symmetry.num_transpositions(jnp.asarray(values))))
        for name, values in (("to_reference", permutations), ("a_draw", steps))
    }


def describe_deviations(problem, fitted, prior_std):
    """How many weights keep their prior, and which of them are blank pixels'."""
    is_blank = blank_pixels(problem)
    found = {}
    for name, how in (("q_d", "none"), ("q_r", "activations")):
        one = fitted["HMC", how]
        ratios = jax.tree.map(lambda s, p: np.asarray(s) / p, one.std, prior_std)
        first = ratios["params"]["Dense_0"]["kernel"]
        nats = gaussian.information(one, prior_std)
        every_ratio, every_nat = (
            np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(tree)])
            for tree in (ratios, nats)
        )
        found[name] = {
            "median_ratio_blank": float(np.median(first[is_blank])),
            "median_ratio_other": float(np.median(first[~is_blank])),
            "share_within_10_percent": float(np.mean(every_ratio > 0.9)),
            "share_informed": {
                str(least): float(np.mean(every_nat >= least)) for least in INFORMED
            },
        }
    return {"num_blank_pixels": int(is_blank.sum()), **found}


def prune(problem, fitted, runs, vi):
    """Accuracy of networks whose widest weights are zero, by the name of the curve."""
    by_hmc, by_ensemble = (
        fitted["HMC", "activations"],
        fitted["ensemble", "activations"],
    )
    draw, member = (
        jax.tree.map(
            lambda leaf: leaf[0, 0],
            runs[kind, "activations"].read(chains=[-1], draws=[-1]),
        )
        for kind in ("HMC", "ensemble")
    )
    curves = {
        "VI mean, by VI": (vi.mean, vi.std),
        "HMC mean, by HMC": (by_hmc.mean, by_hmc.std),
        "one HMC draw, by HMC": (draw, by_hmc.std),
        "one member, by HMC": (member, by_hmc.std),
        "ensemble mean, by ensemble": (by_ensemble.mean, by_ensemble.std),
    }

    def accuracies(params, std):
        networks = [gaussian.prune(params, std, share) for share in PRUNED]
        probs = [probs_of_one(problem, network) for network in networks]
        return [evaluation.accuracy(one, problem.test.y) for one in probs]

    return {name: accuracies(*curve) for name, curve in curves.items()}


def table(rows):
    """Ours beside the published numbers, in Markdown."""
    measures = ["agreement", "TV", "accuracy"]
    heads = ["", *measures, *(f"published {measure}" for measure in measures)]
    lines = [heads, ["---"] * len(heads)]
    for name, row in rows.items():
        numbers = [*row.values(), *PUBLISHED.get(name, (None,) * 3)]
        lines.append([name, *("" if n is None else f"{n:.4f}" for n in numbers)])
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
