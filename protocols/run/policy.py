"""A policy states what a party takes part in. The party refuses everything else, whoever asks.

A coordinator decides what is asked, a party what it answers. A refusal speaks of the question and
of the policy, never of data: it may be read by anybody.
"""

import math
import tomllib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Any

from tallyroom.protocols.aggregation import aggregator_named
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.joint.levels import Level
from tallyroom.protocols.privacy.ledger import (
    DEFAULT_CAP_DELTA,
    Cap,
    Composition,
    Filter,
    parse_cap,
)
from tallyroom.protocols.privacy.loss import PrivacyLoss, as_written, parse_rho
from tallyroom.protocols.privacy.mechanisms import Placement, honest_servers
from tallyroom.protocols.query import MAX_PARTIES, MAX_RECORDS, MAX_SERVERS, Query
from tallyroom.protocols.registry import STUDIES, registered
from tallyroom.protocols.statistics import statistic_names
from tallyroom.protocols.statistics.contract import asked_as
from tallyroom.protocols.statistics.grouped import Grouped

MAX_TEXT = 64 << 10
"""Characters of a policy that is read."""
UNITS = ("record", "party")
PER_QUESTION = PrivacyLoss.of(10, DEFAULT_CAP_DELTA)
IN_ALL = PrivacyLoss.of(100, DEFAULT_CAP_DELTA)

Names = frozenset[str] | None
"""None allows all."""
Reader = Callable[[str, object], Any]
"""Takes a key and what stands there; raises `LocalError` on what must not."""


@dataclass(frozen=True)
class Policy:
    """The defaults are those of a deployed party.

    `minimum_servers` None is as many as the federation has. Without a list of `aggregators`, all
    are taken whose threat model lets no single server see a party's data; one that does must be
    listed with the very options that are asked for. `statistics` are named as users ask for them,
    in whatever way they are computed, or as they are put, which is one way alone. `public_columns`
    are those that a question may take for public: it then tells of them without noise, and who asks
    must not choose that. A question loses `per_question` at most for the unit that it protects; if
    that is unbounded, answers without noise are allowed. The party's ledger enforces `in_all`,
    under which losses add up by `composition`.

    `grouping_columns` are those that may decide which records an answer is about (`--where`,
    `--by`); None allows all, and an empty set answers for all records alone.
    `honest_servers` is how many servers are honest for certain, None a majority of them: shared
    noise that needs more is not enough. With `weighed_outputs` a question about pairs may ask for
    `--outputs weighed`, where the party that garbles can read the other's record in the answer.
    With `tells_columns` a question that names a column which is not there hears which ones are.
    `security` lists the levels that will do for what two servers compute together
    (`joint.levels`). Without it, what is usual will, and what is asked for but `semi-honest`.
    """

    minimum_servers: int | None = None
    minimum_parties: int = 1
    maximum_records_per_party: int = MAX_RECORDS
    aggregators: Names = None
    noise: Names = None
    noise_laws: Names = None
    statistics: Names = None
    columns: Names = None
    public_columns: frozenset[str] = frozenset()
    grouping_columns: Names = None
    units: frozenset[str] = frozenset(UNITS)
    per_question: PrivacyLoss = PER_QUESTION
    in_all: PrivacyLoss = IN_ALL
    composition: Composition = Composition.SUM
    honest_servers: int | None = None
    weighed_outputs: bool = False
    tells_columns: bool = False
    security: Names = None

    @property
    def filter(self) -> Filter:
        """What the party's ledger lets be spent."""
        return Filter(self.in_all, self.composition)

    def in_federation(self, servers: int) -> "Policy":
        """The same where nothing is left to how many servers the federation has."""
        return self if self.minimum_servers is not None else replace(self, minimum_servers=servers)

    def refusal(self, query: Query, records: int = 1) -> str | None:
        """Why the party does not take part; None if it does.

        `records` is how many it told the coordinator that it holds. Raises `LocalError` for a
        question that nobody could answer.
        """
        return next(filter(None, self._objections(query, records)), None)

    def _objections(self, query: Query, records: int) -> Iterable[str | None]:
        statistic = query.statistic
        yield self._aggregator(query)
        least = self.minimum_servers or 1
        if query.servers < least:
            yield f"it asks for {least} servers or more, not {query.servers}"
        yield _unless_named("noise", str(query.noise), self.noise)
        yield _unless_named("noise law", query.law, self.noise_laws)
        yield self._honest(query)
        if statistic.parameters().get("outputs") == "weighed" and not self.weighed_outputs:
            yield "it takes no part in pairs whose outputs are weighed: leave --outputs out"
        yield self._security(query)
        if asked_as(statistic) not in (self.statistics or ()):
            yield _unless_named("statistic", statistic.name, self.statistics)
        readable = None if self.columns is None else self.columns | self.public_columns
        for column in statistic.columns:
            yield _unless_named("column", column, readable)
        if isinstance(statistic, Grouped):
            yield from map(self._grouping, statistic.groups.columns)
        for column in query.adjacency.public:
            if column not in self.public_columns:
                yield (
                    f"its policy does not say that the column {column} is public; ε would be for "
                    f"{query.adjacency}"
                )
        yield self._cost(query)
        if query.min_parties < self.minimum_parties:
            least = self.minimum_parties
            yield f"it asks for answers over {least} parties or more, not {query.min_parties}"
        if query.max_records_per_party > self.maximum_records_per_party:
            most = self.maximum_records_per_party
            said = query.max_records_per_party
            yield f"it allows {most} records per party, and the question says {said}"
        if query.records > query.parties * query.max_records_per_party:
            yield "the question says more records than its parties can hold"
        if query.max_records_per_party < records:
            yield "the question says that no party has as many records as it joined with"
        if not self._protects(query):
            yield f"it asks for the unit {' or '.join(sorted(self.units))}"

    def _grouping(self, column: str) -> str | None:
        if self.grouping_columns is None or column in self.grouping_columns:
            return None
        return f"its policy does not allow --where or --by of the column {column}"

    def _honest(self, query: Query) -> str | None:
        trusted = honest_servers(query.servers, self.honest_servers or 0)
        needed = honest_servers(query.servers, query.honest)
        if query.noise is not Placement.SHARED or needed <= trusted:
            return None
        known = f"{trusted} of {query.servers}"
        return f"it takes {known} servers for honest, and shared noise needs {needed}"

    def _security(self, query: Query) -> str | None:
        weakest = query.weakest_level
        if weakest is None:
            return None
        if self.security is None:
            weak = query.security == str(Level.SEMI_HONEST)
            return "its policy does not allow semi-honest servers" if weak else None
        return _unless_named("security", str(weakest), self.security)

    def _protects(self, query: Query) -> bool:
        """Where a party holds at most one record, the two units are one."""
        whole = query.records_per_unit >= query.max_records_per_party
        return ("party" in self.units and whole) or (
            "record" in self.units and query.records_per_unit == 1
        )

    def _aggregator(self, query: Query) -> str | None:
        """Options may weaken what a name promises, so the model is asked, not the name. Where one
        server is all there is, as many parties are taken to be honest as options say: whoever asks
        must not choose that."""
        spec = query.aggregator
        if self.aggregators is not None and spec in self.aggregators:
            return None
        name, _, options = spec.partition("?")
        asked = aggregator_named(spec)
        model = asked.threat_model(query.servers)
        if asked.exposes(query):
            return f"{spec} lets one server see its data"
        if options and model.colluding < 1 and asked != aggregator_named(name):
            return f"its policy allows {name} as it is, not {spec}"
        return _unless_named("aggregator", name, self.aggregators)

    def _cost(self, query: Query) -> str | None:
        most, mechanism = self.per_question, aggregator_named(query.aggregator).mechanism(query)
        loss = mechanism.loss if most.rho is None else mechanism.concentrated
        if most.bounded and not loss.bounded:
            return "it takes part in no answer without noise"
        if loss.delta > most.delta:
            allowed = float(most.delta)
            return f"it allows delta {allowed:g} per question, not {float(loss.delta):g}"
        if loss <= most:
            return None
        asked = f"{loss.size:g}" if loss.measure == most.measure else str(loss)
        return f"it allows {most.measure} {most.size:g} per question, not {asked}"


DEPLOYED = Policy()
"""The policy of a party that nobody gave another."""
_LOSSES = {
    "epsilon_per_question": PER_QUESTION.size,
    "epsilon_in_all": IN_ALL.size,
    "delta_per_question": float(PER_QUESTION.delta),
    "delta_in_all": float(IN_ALL.delta),
}
"""The keys of a policy that make up its losses, with what they are if left out."""
_INSTEAD = {"cap": ("epsilon_in_all",), "rho_per_question": ("epsilon_per_question",)}
"""Keys, and those that they take the place of."""


def _unless_named(kind: str, name: str, allowed: Names) -> str | None:
    if allowed is None or name in allowed:
        return None
    return f"its policy does not allow the {kind} {name}"


def parse_policy(text: str) -> Policy:
    """A policy in TOML; what it leaves out is as in `DEPLOYED`. Raises `LocalError`."""
    if len(text) > MAX_TEXT:
        raise LocalError(f"a policy has at most {MAX_TEXT} characters")
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise LocalError(f"the policy is no TOML: {error}") from None
    for key in given:
        if key not in _READERS:
            raise LocalError(f"a policy has no {key!r}; there are {', '.join(sorted(_READERS))}")
    read = {key: _READERS[key](key, value) for key, value in given.items()}
    for kind in ("epsilon", "delta"):
        each, total = f"{kind}_per_question", f"{kind}_in_all"
        known = total in given or "cap" in given
        if each in given and not known and read[each] > _LOSSES[total]:
            raise LocalError(f"{each} is above {total}, which is {_LOSSES[total]:g} if left out")
    for key, others in _INSTEAD.items():
        if key in given and (both := [other for other in others if other in given]):
            raise LocalError(f"{key} and {both[0]} say the same: leave one of them out")
    whole = read.get("cap")
    if isinstance(whole, PrivacyLoss) and whole.delta and "delta_in_all" in given:
        raise LocalError("cap has a delta of its own: leave delta_in_all out")
    cap, rho = read.pop("cap", None), read.pop("rho_per_question", None)
    losses = {key: read.pop(key, default) for key, default in _LOSSES.items()}
    for which in ("per_question", "in_all"):
        epsilon, delta = losses[f"epsilon_{which}"], losses[f"delta_{which}"]
        read[which] = PrivacyLoss.of(None if math.isinf(epsilon) else as_written(epsilon), delta)
    if rho is not None:
        delta = as_written(losses["delta_per_question"])
        read["per_question"] = PrivacyLoss(None, delta, rho)
    if "cap" in given:
        filter = Filter.of(cap, losses["delta_in_all"])
        read |= {"in_all": filter.cap, "composition": filter.composition}
    return Policy(**read)


def _whole(least: int, most: int, key: str, value: object) -> int:
    if type(value) is not int or not least <= value <= most:
        raise LocalError(f"{key} is a whole number from {least} to {most}, not {value!r}")
    return value


def _number(key: str, value: object) -> float:
    """Positive, and infinite where that means something."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise LocalError(f"{key} is a number above 0, or inf, not {value!r}")
    try:
        return float(value)
    except OverflowError:
        raise LocalError(f"{key} is too large") from None


def _probability(key: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1:
        raise LocalError(f"{key} is a number from 0 to below 1, not {value!r}")
    return float(value)


def _yes_or_no(key: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise LocalError(f"{key} is true or false, not {value!r}")
    return value


def _names(key: str, value: object) -> frozenset[str]:
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        raise LocalError(f"{key} is a list of names, and not an empty one")
    return frozenset(value)


def _cap(key: str, value: object) -> Cap:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise LocalError(f'{key} is written 3, "3, delta = 1e-6" or "rho 0.1", not {value!r:.40}')
    return parse_cap(str(value))


def _rho(key: str, value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise LocalError(f"{key} is a number above 0, not {value!r:.40}")
    return parse_rho(str(value))


def _names_or_none(key: str, value: object) -> frozenset[str]:
    """A list of names; an empty one allows none."""
    return frozenset() if value == [] else _names(key, value)


MOST_NAMED = 20
"""Names that an error lists: it stays one line."""


def _chosen(there: Collection[str], key: str, value: object) -> frozenset[str]:
    names = _names(key, value)
    if unknown := sorted(names.difference(there)):
        more = f" and {len(there) - MOST_NAMED} more" if len(there) > MOST_NAMED else ""
        listed = ", ".join(list(there)[:MOST_NAMED])
        raise LocalError(f"{key} has no {unknown[0]!r}; there are {listed}{more}")
    return names


def _statistics(key: str, value: object) -> frozenset[str]:
    """Names of studies are allowed too: their questions are asked in their name."""
    known = {*statistic_names(), *registered(STUDIES)}
    return _chosen(sorted(known), key, value)


def _aggregators(key: str, value: object) -> frozenset[str]:
    names = _names(key, value)
    for name in names:
        aggregator_named(name)
    return names


_READERS: dict[str, Reader] = {
    "minimum_servers": partial(_whole, 1, MAX_SERVERS),
    "minimum_parties": partial(_whole, 1, MAX_PARTIES),
    "honest_servers": partial(_whole, 1, MAX_SERVERS),
    "maximum_records_per_party": partial(_whole, 1, MAX_RECORDS),
    "aggregators": _aggregators,
    "noise": partial(_chosen, tuple(Placement)),
    "noise_laws": _names,
    "statistics": _statistics,
    "columns": _names,
    "public_columns": _names,
    "grouping_columns": _names_or_none,
    "units": partial(_chosen, UNITS),
    "weighed_outputs": _yes_or_no,
    "tells_columns": _yes_or_no,
    "cap": _cap,
    "rho_per_question": _rho,
    "security": partial(_chosen, tuple(Level)),
    "epsilon_per_question": _number,
    "epsilon_in_all": _number,
    "delta_per_question": _probability,
    "delta_in_all": _probability,
}
