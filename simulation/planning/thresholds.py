"""Chooses the number of thresholds: few hide what lies between them, many cost noise and bytes."""

import dataclasses
import math
from collections.abc import Callable

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.planning.plan import Planned, cost_of, least_epsilon, plan
from tallyroom.simulation.planning.rehearsal import Rehearsal

LADDER = tuple(1 << power for power in range(4, 13))
RUNGS = 3
"""How many rungs to try: once the hidden error is a quarter of the target, more thresholds leave
hardly more room for noise."""


class Thresholds:
    """`rehearse` returns the rehearsal of the question with a number of thresholds, and `hidden`
    the error of reading between them."""

    def __init__(
        self, rehearse: Callable[[int], Rehearsal], hidden: Callable[[int], float]
    ) -> None:
        self.rehearse = rehearse
        self.hidden = hidden
        self._served: int | None = None
        """The best number for the first aggregator: the noise of the next has the same shape."""

    def for_error(self, spec: str, target: float, most_bytes: float | None) -> Planned:
        """Finds the least ε with which noise and hidden error together stay within the target.

        Raises `LocalError` if none does.
        """
        fine = [each for each in LADDER if self.hidden(each) < target][:RUNGS]
        if not fine:
            raise LocalError(
                f"{spec}: even {LADDER[-1]} thresholds hide more than {target:g}; give --thresholds"
            )

        def planned(count: int) -> Planned:
            room = math.sqrt(target**2 - self.hidden(count) ** 2)
            return self._with(least_epsilon(self.rehearse(count), spec, room), count)

        plans, unmet = [], None
        for count in sorted(fine, key=lambda each: each != self._served):
            try:
                plans.append(planned(count))
            except LocalError as error:
                unmet = error
                continue
            fits = most_bytes is None or plans[-1].party_bytes <= most_bytes
            if count == self._served and fits:
                break
        if not plans and unmet is not None:
            raise unmet
        found = self._best(plans, most_bytes, by_epsilon=True)
        self._served = self._served or found.thresholds
        return found

    def for_bytes(self, spec: str, epsilon: float | str, most_bytes: float) -> Planned:
        """Finds the least total error at this ε, among plans that a party can afford."""
        plans: list[Planned] = []
        for count in LADDER:
            found = self._with(plan(self.rehearse(count), spec, epsilon), count)
            before = plans[-1].whole_error if plans else None
            plans.append(found)
            worse = before is not None and (found.whole_error or math.inf) > before
            if worse or found.party_bytes > most_bytes:
                break
        return self._best(plans, most_bytes, by_epsilon=False)

    def _with(self, found: Planned, count: int) -> Planned:
        return dataclasses.replace(found, thresholds=count, between=self.hidden(count))

    @staticmethod
    def _best(plans: list[Planned], most_bytes: float | None, by_epsilon: bool) -> Planned:
        """If none fits the bytes, returns the nearest one: the caller reports that."""
        fit = [each for each in plans if most_bytes is None or each.party_bytes <= most_bytes]
        if not fit:
            return min(plans, key=lambda each: each.party_bytes)
        return min(fit, key=cost_of(by_epsilon))
