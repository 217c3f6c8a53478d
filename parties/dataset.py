"""Columns of records, with what is public of them."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.cells import is_blank, is_infinite, is_word
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.records import Column, Holdings, deal, deal_by
from tallyroom.protocols.registry import look_up

REFUSE, DROP = "refuse", "drop"
"""What becomes of records that lack a value; a number takes its place."""
LEAVE_OUT = (
    "FILE.csv?missing=drop leaves such records out, FILE.csv?missing=VALUE puts a number there"
)

NAMES = "categories=NAME,NAME counts names, order=LOW,HIGH numbers them"
ROUNDED = (
    "a whole number beyond 2^53, which a double rounds: subtract a public number from the column"
)


def count_blanks(blanks: int, records: int) -> str:
    return f"{blanks} {'blank' if blanks == 1 else 'blanks'} in {records} records"


@dataclass(frozen=True)
class Dataset:
    """Columns, their public bounds where there are any, and which column plays which role.

    `columns` are of cells, each coded by itself (`protocols.cells`). `of_numbers` are those that
    their source says are of numbers; `categories` are a column's names that are counted, if the
    source says; `schema` is what its publisher says of the columns (`parties.schema`). `missing` is
    what becomes of records that lack a value, once it is known which columns matter (`about`);
    `notes` is what was done. `public` are the columns of other records, which are public and like
    these.

    `faults`, and `why` a column cannot be taken as numbers, tell what cells hold: simulations
    refuse data for them, and a party neither looks at them nor repeats them.
    """

    name: str
    columns: dict[str, Column]
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    owner: NDArray[np.int64] | None = None
    of_numbers: frozenset[str] = frozenset()
    why: dict[str, str] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    schema: tuple[str, ...] = ()
    missing: str = REFUSE
    from_file: bool = False
    notes: tuple[str, ...] = ()
    public: dict[str, Column] = field(default_factory=dict)
    faults: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def numbers(self) -> dict[str, Column]:
        """The columns without a word, for people who may see all of the data: nothing that a party
        says may depend on which they are."""
        return {name: column for name, column in self.columns.items() if not is_word(column).any()}

    def about(self, asked: Iterable[str] | None = None) -> "Dataset":
        """The records that can answer for the columns asked about, or for all of them."""
        if self.missing == REFUSE:
            return self
        among = self.columns.keys() if asked is None else set(asked)
        lacks = {name: is_blank(self.columns[name]) for name in self.columns if name in among}
        lacking = [name for name, found in lacks.items() if found.any()]
        if not lacking:
            return dataclasses.replace(self, missing=REFUSE)
        blank = np.any([lacks[name] for name in lacking], axis=0)
        count = f"{np.count_nonzero(blank)} of {len(blank)} records lack {listed(lacking)}"
        if self.missing == DROP:
            return self._without(blank, count)
        value = float(self.missing)
        filled = {name: np.where(lacks[name], value, self.columns[name]) for name in lacking}
        return dataclasses.replace(
            self,
            columns=self.columns | filled,
            missing=REFUSE,
            notes=(*self.notes, f"{count} and count as {self.missing} there"),
        )

    def _without(self, blank: NDArray[np.bool_], count: str) -> "Dataset":
        if blank.all():
            raise LocalError(f"{count}: dropping them leaves none")
        note = f"{count} and are left out; how many each party then holds is public"
        owner = None if self.owner is None else self.owner[~blank]
        if self.owner is not None and owner is not None:
            gone = len(np.unique(self.owner)) - len(np.unique(owner))
            note += f"; parties left without a record, which take no part: {gone}" if gone else ""
        return dataclasses.replace(
            self,
            columns={name: column[~blank] for name, column in self.columns.items()},
            owner=owner,
            missing=REFUSE,
            notes=(*self.notes, note),
        )

    def uncounted(self) -> Iterator[str]:
        """For the one who holds the data and for nobody else: how many cells of which columns have
        nothing that a question about them could count. No cell is told."""
        for name, column in self.columns.items():
            blanks, words = (int(np.count_nonzero(each(column))) for each in (is_blank, is_word))
            stray = 0 < words < len(column) - blanks or (words and name in self.of_numbers)
            if name in self.categories or not (blanks or stray):
                continue
            numbers = f"{blanks} blanks" + (f" and {words} words" if stray else "")
            yield (
                f"column {name!r} has {numbers} in {len(column)} records: each counts as the least "
                "where a question takes numbers, and as another where it counts names; "
                "missing=drop leaves blanks out"
            )

    def check(self, numbers: Iterable[str]) -> None:
        """For simulations, which refuse what parties would make do with. Raises `LocalError` where
        one of these columns is not of numbers, or lacks one."""
        for name in numbers:
            values = look_up("column", name, self.columns)
            if name in self.why:
                raise LocalError(self.why[name])
            if np.isfinite(values).all():
                continue
            if infinite := int(np.count_nonzero(is_infinite(values))):
                raise LocalError(
                    f"column {name!r} has {infinite} infinite values in {len(values)} records: put "
                    "a number there, such as a bound"
                )
            if is_word(values).any():
                raise LocalError(f"column {name!r} is of names, not of numbers")
            if blanks := int(np.count_nonzero(np.isnan(values))):
                way = LEAVE_OUT
                if not self.from_file:
                    way = "drop such records or put a number there"
                counted = count_blanks(blanks, len(values))
                raise LocalError(f"column {name!r} has {counted}: {way}")

    def deal(self, parties: int | None) -> Holdings:
        """Evenly among `parties`, or by the `party=` column, whose number of parties is given."""
        if self.owner is None:
            return deal(self.columns, min(20, self.rows) if parties is None else parties)
        holdings = deal_by(self.columns, self.owner)
        if parties not in (None, len(holdings.ids)):
            raise LocalError(
                f"the party column names {len(holdings.ids)} parties, but --parties says {parties}"
            )
        return holdings

    def held_by(self, party: int, slices: int | None) -> Holdings:
        """All of it, as one party's; or that party's slice of what is dealt to `slices`."""
        ids = np.array([party], dtype=np.uint32)
        if slices is None:
            return Holdings(ids, np.zeros(1, dtype=np.intp), self.columns)
        dealt = self.deal(slices)
        if party >= slices:
            raise LocalError(f"party-{party} has no slice of data dealt to {slices}")
        begin, rows = int(dealt.starts[party]), int(dealt.counts[party])
        columns = {name: column[begin : begin + rows] for name, column in dealt.columns.items()}
        return Holdings(ids, np.zeros(1, dtype=np.intp), columns)


def listed(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names[:4]) + (" …" if len(names) > 4 else "")
