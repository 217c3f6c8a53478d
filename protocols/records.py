"""Records in columns, who holds which of them, and randomness that is bound to them.

A party's randomness is bound to its data by a keyed fingerprint of the records that it holds. The
hash is the XOR MAC of Bellare, Guérin and Rogaway (CRYPTO 1995): the XOR over all words of
F(position, word), with F AES under a secret key of the column, and of F(id, number of records).
Two different holdings differ in a term that occurs in only one of them, so the XOR of their two
fingerprints is uniform, if F is a random function: they are equal with probability 2^-128, and AES
adds q²/2^129 for q words. The key is the party's own secret, derived for this purpose only, and no
fingerprint is ever sent. So nobody, not even a server that sees many submissions, can look for two
holdings that collide. It takes one AES block per word, for all parties of a block at once.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.randomness import Fingerprints, Ids, Randomness, encrypted

Column = NDArray[np.float64]

VERSION_BYTES = 16


@dataclass(frozen=True)
class Holdings:
    """The records of a block of parties. Rows are grouped by party, in the order of `ids`.

    `starts[i]` is the first row of party `ids[i]`; every party holds at least one record.
    """

    ids: NDArray[np.uint32]
    starts: NDArray[np.intp]
    columns: dict[str, Column]

    def __post_init__(self) -> None:
        if (np.diff(np.sort(self.ids)) == 0).any():
            raise LocalError("a party appears twice in one block")

    @property
    def rows(self) -> int:
        return len(next(iter(self.columns.values())))

    @property
    def counts(self) -> NDArray[np.intp]:
        """How many records each party holds."""
        return np.diff(self.starts, append=self.rows)

    def count_by_party(self, cells: NDArray[np.int64], width: int) -> NDArray[np.uint64]:
        """How many of each party's records are in each of `width` cells, shape (parties, width).
        `cells` is the cell of every record."""
        parties = len(self.ids)
        places = np.repeat(np.arange(parties), self.counts) * width + cells
        counts = np.bincount(places, minlength=parties * width)
        return counts.astype(np.uint64).reshape(parties, width)

    def column(self, name: str) -> Column:
        """Raises `LocalError` if there is none. Other columns are not named: in a file without a
        header, their names are cells of the first record."""
        try:
            return self.columns[name]
        except KeyError:
            raise LocalError(f"no column {name!r} in the data") from None

    def version(self, randomness: Randomness) -> bytes:
        """A keyed digest of exactly this data, under a secret of its holder.

        It tells others whether the data has changed, and nothing else: to anyone who does not know
        the secret, it is a random number.
        """
        key = randomness.derive("data version").bytes(32)
        digest = hashlib.blake2b(key=key, digest_size=VERSION_BYTES)
        for part in (self.ids.astype("<u4"), self.counts.astype("<u8")):
            digest.update(part.tobytes())
        for name, column in sorted(self.columns.items()):
            digest.update(len(name.encode()).to_bytes(4, "little") + name.encode())
            digest.update(np.ascontiguousarray(column, dtype="<f8").data)
        return digest.digest()

    def without(self, ids: frozenset[int]) -> "Holdings | None":
        """The records of all parties except `ids`; None if no party is left."""
        stays = ~np.isin(self.ids, list(ids))
        if not stays.any():
            return None
        counts = self.counts[stays]
        kept = np.repeat(stays, self.counts)
        columns = {name: column[kept] for name, column in self.columns.items()}
        return Holdings(self.ids[stays], np.cumsum(counts) - counts, columns)

    def repeated(self, ids: frozenset[int], times: int) -> "Holdings":
        """The same parties, with each record of parties `ids` repeated `times` times."""
        factors = np.where(np.isin(self.ids, list(ids)), times, 1)
        counts = self.counts * factors
        repeats = np.repeat(factors, self.counts)
        columns = {name: np.repeat(column, repeats) for name, column in self.columns.items()}
        return Holdings(self.ids, np.cumsum(counts) - counts, columns)

    def blocks(self, count: int) -> Iterator["Holdings"]:
        """The same parties in `count` blocks of nearly equal size."""
        edges = np.linspace(0, len(self.ids), count + 1).astype(int)
        for first, last in pairwise(edges):
            yield self.between(first, last)

    def between(self, first: int, last: int) -> "Holdings":
        """The parties at positions `first` to `last` - 1."""
        begin = self.starts[first]
        end = self.starts[last] if last < len(self.ids) else self.rows
        return Holdings(
            self.ids[first:last],
            self.starts[first:last] - begin,
            {name: column[begin:end] for name, column in self.columns.items()},
        )


def deal(columns: dict[str, Column], parties: int) -> Holdings:
    """Deals records to parties evenly, in the order of the data."""
    rows = len(next(iter(columns.values())))
    if parties < 1:
        raise LocalError("a federation needs at least one party")
    if parties > rows:
        raise LocalError(
            f"{rows} records are too few for {parties} parties: each needs at least one"
        )
    starts = np.arange(parties) * rows // parties
    return Holdings(np.arange(parties, dtype=np.uint32), starts, columns)


def deal_by(columns: dict[str, Column], owner: NDArray[np.int64]) -> Holdings:
    """Gives each record to the party that `owner` names; parties are renumbered from 0."""
    _, ids = np.unique(owner, return_inverse=True)
    order = np.argsort(ids, kind="stable")
    starts = np.searchsorted(ids[order], np.arange(ids.max() + 1))
    shuffled = {name: column[order] for name, column in columns.items()}
    return Holdings(np.arange(len(starts), dtype=np.uint32), starts, shuffled)


def bound_to_data(randomness: Randomness, holdings: Holdings) -> Randomness:
    """The generator of these parties; what each draws depends on all the data it holds."""
    return randomness.bound(holdings.ids, fingerprints(randomness.derive("data"), holdings))


def fingerprints(secret: Randomness, holdings: Holdings) -> Fingerprints:
    """One fingerprint per party, whatever block it is in. It also covers the names of columns."""
    position = np.arange(holdings.rows) - np.repeat(holdings.starts, holdings.counts)
    folded = np.zeros((holdings.rows, 2), dtype=np.uint64)
    for name, column in holdings.columns.items():
        blocks = np.stack([column.astype("<f8").view("<u8"), position.astype(np.uint64)], axis=1)
        folded ^= encrypted(secret.cipher(f"column {name}"), blocks)
    found = np.bitwise_xor.reduceat(folded, holdings.starts, axis=0)
    parties = np.stack([holdings.ids, holdings.counts], axis=1).astype(np.uint64)
    bound: Fingerprints = found ^ encrypted(secret.cipher("party"), parties)
    return bound


def bound_to_rows(randomness: Randomness, ids: Ids, rows: NDArray[np.uint64]) -> Randomness:
    """The same generator, also bound to a vector for each of these ids, so that what it draws is
    used for that vector only."""
    position = np.broadcast_to(np.arange(rows.shape[1], dtype=np.uint64), rows.shape)
    words = encrypted(randomness.cipher("vector"), np.stack([rows, position], axis=2))
    folded = np.bitwise_xor.reduce(words, axis=1)
    return randomness.bound(ids, randomness.places(ids) ^ folded)
