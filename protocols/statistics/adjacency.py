"""States in one sentence which data sets are adjacent, that is, what the ε of an answer protects.

The sentence names what a statistic takes as public and what it releases without noise. Answers,
result.json, help, `tally verify` and the refusals of policies all take it from here. Tests
enumerate the data sets that it promises to protect."""

from dataclasses import dataclass

from tallyroom.protocols.plans.contract import Plan

MOST_NAMED = 4
"""The sentence names no more columns than this."""


@dataclass(frozen=True)
class Adjacency:
    """Adjacent data sets have equally many records of each party, and agree in the `public` columns
    of all records. They differ in the `protected` columns of one record or, with `whole_party`, of
    all records of one party. `exactly` names what is released about the public columns without
    noise."""

    protected: tuple[str, ...]
    public: tuple[str, ...] = ()
    exactly: str = ""
    whole_party: bool = False

    @classmethod
    def of(cls, plan: Plan, columns: tuple[str, ...], whole_party: bool = False) -> "Adjacency":
        public = tuple(dict.fromkeys(plan.public))
        protected = (each for each in columns if each not in public)
        return cls(tuple(dict.fromkeys(protected)), public, plan.public_facts, whole_party)

    def __str__(self) -> str:
        unit = "all records of one party" if self.whole_party else "one record"
        other = "as many others" if self.whole_party else "any other"
        if not self.public:
            return f"{unit}, replaced by {other}"
        verb = "is" if len(self.public) == 1 else "are"
        known = f"{_listed(self.public)} {verb} taken as public"
        if self.exactly:
            known += f", and {self.exactly} is released without noise"
        if not self.protected:
            return f"nothing: {known}"
        return f"{_listed(self.protected)} of {unit}, replaced by any other values; {known}"


def _listed(columns: tuple[str, ...]) -> str:
    more = len(columns) - MOST_NAMED
    if more > 0:
        return f"{', '.join(columns[:MOST_NAMED])} and {more} more columns"
    *others, last = columns
    return f"{', '.join(others)} and {last}" if others else last
