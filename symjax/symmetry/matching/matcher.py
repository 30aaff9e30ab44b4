"""Coordinate descent over permutations and signs, from several starts.

The groups of units are visited again and again; each is solved exactly, given all
others, by one linear assignment on what pairs of units gain (`gains`), with the better
signs of each pair. What can be reached depends on the start, so that several are tried:
the network as it is, and one spread from what no group moves (`schedule`). That one
finds copies of the reference even where the identity does not lead to them, as along
residual streams.
"""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int

from symjax import checks
from symjax.symmetry.actions import Element, identity
from symjax.symmetry.elements import random_element
from symjax.symmetry.matching import descent, memory, moves, schedule, stacks
from symjax.symmetry.matching.gains import Boxes
from symjax.symmetry.matching.moves import Elements
from symjax.symmetry.matching.scales import smallest_scales
from symjax.symmetry.matching.stacks import Part
from symjax.symmetry.spec import Spec
from symjax.types import Key, Params


_TIE = 1e-6
"""By how much one start must be better than another, relatively."""

_TRIED_SWEEPS = 2
"""After which the better of two starts goes on; one is enough to find copies."""


class Matched(NamedTuple):
    """How far networks are matched to a reference.

    Attributes:
        element: Permutations and signs, and the scales at which they are compared.
        num_sweeps: Over all groups.
        awake: Which steps of the schedule may still change something.
    """

    element: Elements
    num_sweeps: Int[np.ndarray, " network"]
    awake: Bool[np.ndarray, "network step"]

    @property
    def converged(self) -> Bool[np.ndarray, " network"]:
        """Whether nothing can change any more."""
        return np.asarray(~self.awake.any(axis=1))


class Matcher(NamedTuple):
    """Stacked networks, and how they are matched.

    Attributes:
        spec: Their symmetries.
        stack: The networks.
        scales: Those at which they are compared.
        at_once: The most networks that are held in memory together.
        max_sweeps: Over all groups.
    """

    spec: Spec
    stack: Params
    scales: tuple[Float[np.ndarray, "network ..."], ...]
    at_once: int
    max_sweeps: int

    def match(self, target: Boxes, keys: Sequence[Key] = ()) -> Matched:
        """Descend from all starts, and keep the best.

        With no random ones, the two starts are told apart after a few sweeps.

        Args:
            target: Boxes of what the networks are matched to.
            keys: One for each random start.
        """
        num_networks = stacks.count(self.stack)
        stay = scaled(self.spec, self.scales, num_networks)
        # One assignment has no local minima.
        if schedule.plan(self.spec).is_exact:
            return self.descend(target, self.begin(stay))
        starts = [stay, self.spread(target, stay), *map(self.random, keys)]
        # Together, so that the assignments share the cores.
        together = jax.tree.map(lambda *arrays: np.concatenate(arrays), *starts)
        # Who asks for more starts wants the best of all of them.
        sweeps = None if keys else _TRIED_SWEEPS
        tried = self.descend(target, self.begin(together), sweeps)
        similarity = self.similarity(target, tried.element).reshape(len(starts), -1)
        top = similarity.max(axis=0)
        first = np.argmax(similarity >= top - _TIE * np.abs(top), axis=0)
        chosen = first * num_networks + np.arange(num_networks)
        best = jax.tree.map(lambda array: array[chosen], tried)
        return self.descend(target, best)

    def begin(self, element: Element | Elements) -> Matched:
        """Nothing done yet: an element of each network, or several in turn."""
        num_networks = stacks.count(element)
        return Matched(
            jax.tree.map(np.copy, moves.on_host(element)),
            np.zeros(num_networks, int),
            np.ones((num_networks, len(schedule.plan(self.spec).again)), bool),
        )

    def random(self, key: Key) -> Elements:
        """Uniform permutations and signs."""
        keys = jax.random.split(key, stacks.count(self.stack))
        drawn = jax.vmap(functools.partial(random_element, spec=self.spec))(keys)
        return moves.on_host(drawn)._replace(scales=self.scales)

    def spread(self, target: Boxes, start: Elements) -> Elements:
        """What the first steps of the schedule lead to."""
        found = jax.tree.map(np.copy, start)
        for part in stacks.every_part(self.stack, self.at_once):
            networks, element = self.load(part), stacks.pick(start, part)
            for step in schedule.plan(self.spec).first:
                element, _ = descent.take(
                    self.spec,
                    step,
                    target,
                    networks,
                    element,
                    part.is_real,
                    improve=False,
                )
            jax.tree.map(functools.partial(stacks.write, part), found, element)
        return found

    def load(self, part: Part) -> Boxes:
        """The boxes of some networks, scaled; numbers start again after the last."""
        part = part._replace(networks=part.networks % stacks.count(self.stack))
        stack, scales = stacks.pick((self.stack, self.scales), part)
        return descent.load(self.spec, stack, scales)

    def moved(self, part: Part, element: Elements) -> Boxes:
        """The boxes of some networks after their elements."""
        return descent.moved(self.spec, self.load(part), stacks.pick(element, part))

    def similarity(
        self, target: Boxes, element: Elements
    ) -> Float[np.ndarray, " network"]:
        """The objective: the sum of products with the target, weight by weight."""

        def of_part(part: Part) -> Float[np.ndarray, " network"]:
            own = stacks.pick(element, part)
            return descent.similarity(self.spec, target, self.load(part), own)

        return stacks.join(
            stacks.each(stacks.every_part(element, self.at_once), of_part)
        )

    def descend(
        self, target: Boxes, start: Matched, max_sweeps: int | None = None
    ) -> Matched:
        """Repeat the steps, each on those networks alone that it may still change.

        Args:
            target: Boxes of what the networks are matched to.
            start: What was found so far, which is left as it is.
            max_sweeps: By default the matcher's.
        """
        most = min(max_sweeps or self.max_sweeps, self.max_sweeps)
        found = jax.tree.map(np.copy, start)
        at_once = stacks.part_size(stacks.count(found), self.at_once)
        while True:
            going = ~found.converged & (found.num_sweeps < most)
            if not going.any():
                return found
            stacks.each(
                stacks.parts(np.flatnonzero(going), at_once),
                functools.partial(
                    self._descend_part, target, found, most, bool(going.sum() > at_once)
                ),
            )

    def _descend_part(
        self,
        target: Boxes,
        found: Matched,
        max_sweeps: int,
        has_others: bool,
        part: Part,
    ) -> None:
        plan = schedule.plan(self.spec)
        networks, element = self.load(part), stacks.pick(found.element, part)
        wakes = found.awake[part.networks] & part.is_real[:, None]
        going = wakes.any(axis=1)
        # Once half are done, the rest go on together with those of others.
        most_left = len(part.real) // 2 if has_others else 0
        while going.sum() > most_left:
            found.num_sweeps[part.networks[going]] += 1
            for together in plan.rounds:
                active = {n: wakes[:, n] & going for n in together}
                due = [n for n in together if active[n].any()]
                taken = self._take(target, networks, element, active, due)
                element = moves.merge(element, [new for new, _ in taken])
                for number, (_, changed) in zip(due, taken, strict=True):
                    wakes[active[number], number] = False
                    wakes |= changed[:, None] & plan.wakes[number]
            has_time = found.num_sweeps[part.networks] < max_sweeps
            going = wakes.any(axis=1) & has_time
        found.awake[part.real] = wakes[part.is_real]
        jax.tree.map(functools.partial(stacks.write, part), found.element, element)

    def _take(
        self,
        target: Boxes,
        networks: Boxes,
        element: Elements,
        active: Mapping[int, Bool[np.ndarray, " network"]],
        due: Sequence[int],
    ) -> list[tuple[Elements, Bool[np.ndarray, " network"]]]:
        """Steps that don't depend on one another, all from the same element."""
        again = schedule.plan(self.spec).again

        def one(number: int) -> tuple[Elements, Bool[np.ndarray, " network"]]:
            return descent.take(
                self.spec,
                again[number],
                target,
                networks,
                element,
                active[number],
                improve=True,
            )

        return stacks.in_threads(one, due)


def prepare(
    spec: Spec, params: Params, max_sweeps: int, max_bytes: int | None
) -> tuple[Matcher, tuple[int, ...]]:
    """Check what is to be matched, stack it, and find its scales.

    Returns:
        The matcher, and the leading axes that the networks had.

    Raises:
        ValueError: If the spec has no permutations.
    """
    max_bytes = memory.default() if max_bytes is None else max_bytes
    checks.at_least(1, max_sweeps=max_sweeps, max_bytes=max_bytes)
    if not spec.permutations:
        pins = "; ".join(map(str, spec.pins)) or "its units all have an order"
        raise ValueError(
            f"`spec` must have a group of permutations to match by, and has none "
            f"({pins}). There is nothing to align."
        )
    stack, leading = stacks.flatten(spec, params)
    at_once = memory.most_at_once(spec, max_bytes)
    stacks.require_finite("params", stack, leading, at_once)
    scales = smallest_scales(spec, stack, at_once)
    return Matcher(spec, stack, scales, at_once, max_sweeps), leading


def cut(spec: Spec, reference: Params) -> Boxes:
    """The boxes of a reference, at its scales of smallest norm."""
    spec.check(reference)
    stack, _ = stacks.flatten(spec, jax.device_get(reference))
    stacks.require_finite("reference", stack, (), 1)
    return descent.load_one(spec, stack, smallest_scales(spec, stack, 1))


def scaled(
    spec: Spec, scales: tuple[Float[np.ndarray, "network ..."], ...], num_networks: int
) -> Elements:
    """Elements that only scale."""
    many = jax.tree.map(
        lambda leaf: np.repeat(np.asarray(leaf)[None], num_networks, axis=0),
        identity(spec),
    )
    return moves.on_host(many)._replace(scales=scales)


def split_key(key: Key | None, num_random_starts: int) -> Sequence[Key]:
    """One key for each random start.

    Raises:
        ValueError: If there are starts but no key.
    """
    checks.at_least(0, num_random_starts=num_random_starts)
    if num_random_starts == 0:
        return []
    if key is None:
        raise ValueError(
            f"`key` must be given for {num_random_starts} random starts, such as "
            "`jax.random.key(0)`."
        )
    return list(jax.random.split(key, num_random_starts))
