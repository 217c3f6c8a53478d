"""How many thresholds a question should have: few hide what is between them, many cost noise and
bytes."""

import dataclasses
import math
from collections.abc import Callable

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.planning.plan import Planned, Rehearse, cost_of, least_epsilon, plan

LADDER = tuple(1 << power for power in range(4, 13))
RUNGS = 3
"""The noise that a target leaves room for hardly grows once what is hidden is a quarter of it."""


class Thresholds:
    """`rehearse` gives what rehearses a question with so many, `hidden` the error of reading
    between them."""

    def __init__(self, rehearse: Callable[[int], Rehearse], hidden: Callable[[int], float]) -> None:
        self.rehearse = rehearse
        self.hidden = hidden
        self._served: int | None = None
        """How many were best for the first aggregator: noise has the same shape for the next."""

    def for_error(
        self, spec: str, target: float, most_bytes: float | None, share: float
    ) -> Planned:
        """The least ε with which noise, and what thresholds hide, stay within the target together.

        Raises `LocalError` where none does.
        """
        fine = [each for each in LADDER if self.hidden(each) < target][:RUNGS]
        if not fine:
            raise LocalError(
                f"{spec}: even {LADDER[-1]} thresholds hide more than {target:g}; give --thresholds"
            )

        def planned(count: int) -> Planned:
            room = math.sqrt(target**2 - self.hidden(count) ** 2)
            return self._with(least_epsilon(self.rehearse(count), spec, room, share), count)

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

    def for_bytes(
        self, spec: str, epsilon: float | str, most_bytes: float, share: float
    ) -> Planned:
        """The least error in all at this ε, among those that a party can pay."""
        plans: list[Planned] = []
        for count in LADDER:
            found = self._with(plan(self.rehearse(count), spec, epsilon, share), count)
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
        """Past the bytes, the one that comes nearest: whoever searches says so."""
        fit = [each for each in plans if most_bytes is None or each.party_bytes <= most_bytes]
        if not fit:
            return min(plans, key=lambda each: each.party_bytes)
        return min(fit, key=cost_of(by_epsilon))
