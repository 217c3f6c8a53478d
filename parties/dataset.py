"""Columns of records: of numbers and of names, with what is public of them."""

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from protocols.errors import LocalError
from protocols.names import look_up
from protocols.records import Column, Holdings, deal, deal_by

REFUSE, DROP = "refuse", "drop"
"""What becomes of records that lack a value; a number takes its place."""
LEAVE_OUT = (
    "FILE.csv?missing=drop leaves such records out, FILE.csv?missing=VALUE puts a number there"
)

NAMES = "categories=NAME,NAME counts names, order=LOW,HIGH numbers them"


def count_blanks(blanks: int, records: int) -> str:
    return f"{blanks} {'blank' if blanks == 1 else 'blanks'} in {records} records"


@dataclass(frozen=True)
class Dataset:
    """Columns, their public bounds where there are any, and which column plays which role.

    `columns` are of numbers, NaN where one is missing; `texts` of names (`protocols.categories`),
    with `why` each is not of numbers; `categories` are a column's names that are counted, if the
    source says; `schema` is what its publisher says of the columns (`parties.schema`). `missing` is
    what becomes of records that lack a value, once it is known which columns matter (`about`);
    `notes` is what was done. `public` are the columns of other records, which are public and like
    these.
    """

    name: str
    columns: dict[str, Column]
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    roles: dict[str, str] = field(default_factory=dict)
    owner: NDArray[np.int64] | None = None
    texts: dict[str, Column] = field(default_factory=dict)
    why: dict[str, str] = field(default_factory=dict)
    categories: dict[str, str] = field(default_factory=dict)
    schema: tuple[str, ...] = ()
    missing: str = REFUSE
    from_file: bool = False
    notes: tuple[str, ...] = ()
    public: dict[str, Column] = field(default_factory=dict)

    @property
    def all_columns(self) -> dict[str, Column]:
        return self.columns | self.texts

    def about(self, asked: Iterable[str] | None = None) -> "Dataset":
        """The records that can answer for the columns asked about, or for all of them."""
        if self.missing == REFUSE:
            return self
        wanted = [name for name in self.columns if asked is None or name in set(asked)]
        blank = np.zeros(len(next(iter(self.all_columns.values()))), dtype=np.bool_)
        for name in wanted:
            blank |= np.isnan(self.columns[name])
        if not blank.any():
            return dataclasses.replace(self, missing=REFUSE)
        lacking = [name for name in wanted if np.isnan(self.columns[name]).any()]
        count = f"{np.count_nonzero(blank)} of {len(blank)} records lack {_listed(lacking)}"
        if self.missing == DROP:
            return self._without(blank, count)
        value = float(self.missing)
        filled = {
            name: np.nan_to_num(column, nan=value) if name in lacking else column
            for name, column in self.columns.items()
        }
        note = f"{count} and count as {self.missing} there"
        return dataclasses.replace(self, columns=filled, missing=REFUSE, notes=(*self.notes, note))

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
            texts={name: column[~blank] for name, column in self.texts.items()},
            owner=owner,
            missing=REFUSE,
            notes=(*self.notes, note),
        )

    def check(self, numbers: Iterable[str]) -> None:
        """Raises `LocalError` where one of these columns is of names, or lacks a number."""
        for name in numbers:
            if name in self.texts:
                why = self.why.get(name, f"column {name!r} is of names, not of numbers")
                raise LocalError(f"{why}; {NAMES}" if self.from_file else why)
            if name not in self.columns:
                look_up("column", name, self.all_columns)
            values = self.columns[name]
            if blanks := int(np.count_nonzero(~np.isfinite(values))):
                way = LEAVE_OUT
                if not self.from_file:
                    way = "drop such records or put a number there"
                counted = count_blanks(blanks, len(values))
                raise LocalError(f"column {name!r} has {counted}: {way}")

    def deal(self, parties: int | None) -> Holdings:
        """Evenly among `parties`, or by the `party=` column, whose number of parties is given."""
        if self.owner is None:
            rows = len(next(iter(self.all_columns.values())))
            return deal(self.all_columns, min(20, rows) if parties is None else parties)
        holdings = deal_by(self.all_columns, self.owner)
        if parties not in (None, len(holdings.ids)):
            raise LocalError(
                f"the party column names {len(holdings.ids)} parties, but --parties says {parties}"
            )
        return holdings

    def held_by(self, party: int, slices: int | None) -> Holdings:
        """All of it, as one party's; or that party's slice of what is dealt to `slices`."""
        ids = np.array([party], dtype=np.uint32)
        if slices is None:
            return Holdings(ids, np.zeros(1, dtype=np.intp), self.all_columns)
        dealt = self.deal(slices)
        if party >= slices:
            raise LocalError(f"party-{party} has no slice of data dealt to {slices}")
        begin, rows = int(dealt.starts[party]), int(dealt.counts[party])
        columns = {name: column[begin : begin + rows] for name, column in dealt.columns.items()}
        return Holdings(ids, np.zeros(1, dtype=np.intp), columns)


def _listed(names: list[str]) -> str:
    return " or ".join(repr(name) for name in names[:4]) + (" …" if len(names) > 4 else "")
