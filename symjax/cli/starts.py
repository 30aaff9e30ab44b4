"""Where the chains of a command start, on which devices, and in which directory."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import jax
from jax.sharding import Mesh

from symjax import hosts, mesh as meshes, run, store, trees
from symjax.cli import fitting
from symjax.cli.fits import Ensemble
from symjax.cli.options import Fit, Sample, StartName
from symjax.cli.posteriors import Posterior
from symjax.cli.problem import Problem
from symjax.data.sources import did_you_mean
from symjax.types import Params


NAMED: tuple[str, ...] = get_args(StartName)
"""Starts that are made, not read from a run."""


def num_chains(command: Sample | Fit) -> int:
    """Chains or members."""
    return command.num_members if isinstance(command, Fit) else command.num_chains


def split_keys(command: Sample | Fit) -> Any:
    """Of the starts, of the run, and of the starts' optimisation.

    Raises:
        ValueError: if the seed is too large.
    """
    try:
        key = jax.random.key(command.seed)
    except OverflowError:
        raise ValueError(
            f"`--seed` must be a whole number of at most 64 bits, got {command.seed}."
        ) from None
    return jax.random.split(key, 3)


def make(command: Sample | Fit, built: Posterior, optimised: bool = True) -> Params:
    """Where the chains or members start; only their shapes if not `optimised`."""
    start_key, _, map_key = split_keys(command)
    if isinstance(command, Sample) and command.start not in NAMED and optimised:
        return _last_draws(command, built)
    keys = jax.random.split(start_key, num_chains(command))
    if isinstance(command, Sample) and command.start == "prior":
        prior = built.log_posterior.prior
        draws = jax.lax.map(lambda key: prior.sample(key, built.shapes), keys)
        # Of a normal prior of mean 0, draws of it to the power of 1 / temperature.
        width = math.sqrt(built.log_posterior.temperature)
        return jax.tree.map(lambda leaf: width * leaf, draws)
    # One by one: LAPACK's batched QR, of orthogonal starts, waits for ever for threads
    # of XLA's pool on a CPU with few cores, where several run at a time.
    params = jax.lax.map(built.init, keys)
    if isinstance(command, Fit) or command.start == "init" or not optimised:
        return params
    # One optimised start for each chain, from its own initialisation.
    options = Ensemble(
        num_steps=command.map_steps,
        learning_rate=command.map_learning_rate,
        batch_size=None,
    )
    fitted = run.fit(
        map_key,
        fitting.build_ensemble(options, built),
        params,
        built.dataset.train,
        num_steps=command.map_steps,
        mesh=make_mesh(command),
        chains_at_once=command.processes.chains_at_once,
    )
    return jax.tree.map(lambda leaf: leaf[:, 0], fitted.draws)


def require(command: Sample | Fit, built: Posterior) -> None:
    """Require what `--start` names, before chains start there.

    Raises:
        ValueError: if it names no finished run of this network, with enough chains.
    """
    if isinstance(command, Fit) or command.start in NAMED:
        return
    path = store.place(command.start)
    if not (path / "config.json").exists():
        known = ", ".join(NAMED)
        raise ValueError(
            f"`--start` must be {known} or the directory of a run, got "
            f"{command.start!r}, which is none.{did_you_mean(command.start, NAMED)}"
        )
    kept = store.open(path)
    if not kept.committed.finished:
        # Its last draw would be another one tomorrow, and for another host.
        raise ValueError(
            f"`--start` must name a finished run, got {path}, which has "
            f"{kept.committed.num_draws} of its {kept.num_draws} draws. Continue it "
            "first, with `--resume`; `--max-minutes` with it ends chains early."
        )
    if kept.num_chains < command.num_chains:
        raise ValueError(
            f"`--num-chains` must be {kept.num_chains} or less, the chains or members "
            f"of {path} that `--start` names, got {command.num_chains}."
        )
    flat = zip(trees.paths(built.shapes), jax.tree.leaves(built.shapes), strict=True)
    wanted = {name: leaf.shape for name, leaf in flat}
    found = {name: leaf.shape for name, leaf in kept.leaves.items()}
    for name in sorted(wanted | found):
        if found.get(name) != wanted.get(name):
            raise ValueError(
                f"`--start` must name a run of the same network; in {path} the leaf "
                f"{name} is {found.get(name, 'absent')}, here it is "
                f"{wanted.get(name, 'absent')}."
            )


def resolved(command: Sample | Fit) -> Sample | Fit:
    """The command as it is written down: a run to start at by its absolute path."""
    if isinstance(command, Fit) or command.start in NAMED:
        return command
    return replace(command, start=str(store.place(command.start).absolute()))


def _last_draws(command: Sample, built: Posterior) -> Params:
    kept = store.open(command.start)
    draws = [kept.committed.num_draws - 1]
    last = kept.read(chains=slice(command.num_chains), draws=draws, like=built.shapes)
    return jax.tree.map(lambda leaf: leaf[:, 0], last)


def free_path(command: Sample | Fit) -> Path:
    """A directory in `runs/` that is not there, named after the options."""
    method = command.method if isinstance(command, Fit) else command.sampler
    problem: Problem = command.problem
    data = Path(problem.data).stem.replace(":", "-")
    base = Path("runs", f"{data}-{problem.model}-{method}")
    number = 1
    path = base
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def make_mesh(command: Sample | Fit) -> Mesh:
    """Over all devices, in the shape that was asked for."""
    word = command.processes.mesh
    shape = None if word is None else meshes.parse_shape(word)
    return meshes.make_mesh(num_chains(command), shape=shape)


def check_groups(command: Sample | Fit, mesh: Mesh) -> None:
    """Require a method whose chains can be computed in groups, and groups that fit.

    Raises:
        ValueError: if its chains look at one another, or do not share out evenly.
    """
    size = command.processes.chains_at_once
    if size is None:
        return
    if isinstance(command, Fit):
        name, meet = f"--method {command.method}", command.method == "svgd"
    else:
        name, meet = f"--sampler {command.sampler}", command.sampler == "chees"
        meet |= command.sampler == "ghmc" and command.ghmc.num_warmup > 0
    if meet:
        raise ValueError(
            f"`--chains-at-once` must be left out for {name}, whose chains look at "
            "one another and so are computed together. To take less memory, use more "
            "devices or a smaller --micro-batch."
        )
    meshes.check_groups(mesh, num_chains(command), size)


def share_out(built: Posterior, mesh: Mesh) -> Posterior:
    """The posterior, of whose training examples a host keeps only its own rows.

    Of a large set that was prepared before (`data.load`), it reads no others: the set
    is mapped into memory, and what is looked at of it is these rows. A host that has to
    prepare it reads all of it once: an .npz file can't be read in part, and the
    fingerprint and the normalisation are of the whole. From here on its rows are on its
    devices, and nothing of them in its memory. Where chains are shared out over hosts
    and examples are not, these are all rows.

    Args:
        built: The posterior.
        mesh: That it is sampled on.
    """
    if hosts.count() == 1:
        return built
    train = meshes.place_data(mesh, built.dataset.train)
    return built._replace(dataset=built.dataset._replace(train=train))
