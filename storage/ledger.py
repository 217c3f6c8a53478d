"""The durable ledger: what ε and δ have been spent, in SQLite, written before anything is released.

Servers, the coordinator and deployed parties each keep one.
"""

import sqlite3
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.privacy.caps import Caps, Composition
from tallyroom.protocols.privacy.ledger import Charge, Totals, check_spend, tight_epsilon
from tallyroom.protocols.wire.machine import Spend

SCHEMA_VERSION = 1


class Ledger:
    """One keeper's ledger. `cap` is the most ε it will ever release, `cap_delta` the most δ; None
    is no cap. `composition` is how spends add up against them."""

    def __init__(
        self,
        path: Path | None,
        cap: Fraction | None,
        cap_delta: float | None = None,
        composition: Composition = Composition.SUM,
    ) -> None:
        """Opens or creates the ledger at `path`; None keeps it in memory."""
        self.caps = Caps(cap, cap_delta, composition)
        try:
            self._open(path)
        except sqlite3.Error as error:
            raise LocalError(f"cannot open the ledger {path}: {error}") from None

    def _open(self, path: Path | None) -> None:
        self._db = sqlite3.connect(
            path if path else ":memory:", isolation_level=None, check_same_thread=False
        )
        self._db.execute("PRAGMA synchronous = FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise LocalError(
                f"{path} was written by a newer Tallyroom (schema {version}, this knows "
                f"{SCHEMA_VERSION})"
            )
        if version == SCHEMA_VERSION:
            self._db.execute("SELECT receipt, data, epsilon, delta, written FROM spends LIMIT 1")
            return  # nothing is written: a ledger can be opened where the disk is full
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS spends ("
            "receipt TEXT PRIMARY KEY, data TEXT NOT NULL, epsilon TEXT NOT NULL, "
            "delta REAL NOT NULL, written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
        )
        self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def spent(self) -> Fraction:
        """The ε of all spends with noise together; `totals` tells of those without as well."""
        return self.totals().epsilon

    def totals(self) -> Totals:
        return Totals.of(self._charges())

    def tight(self, delta: float) -> float:
        """The ε of everything at a total of `delta`, by optimal composition."""
        return tight_epsilon(self._charges(), delta)

    def _charges(self) -> list[Charge]:
        rows = self._db.execute("SELECT epsilon, delta, COUNT(*) FROM spends GROUP BY 1, 2")
        return [
            Charge(None if epsilon == "inf" else Fraction(epsilon), delta, count)
            for epsilon, delta, count in rows
        ]

    def rows(self) -> list[tuple[str, str, str, float, str]]:
        """receipt, data, epsilon, delta, time of every spend, oldest first."""
        query = "SELECT receipt, data, epsilon, delta, written FROM spends ORDER BY rowid"
        return self._db.execute(query).fetchall()

    def has(self, spend: Spend) -> bool:
        """Whether it was paid for before."""
        query = "SELECT 1 FROM spends WHERE receipt = ?"
        return self._db.execute(query, (spend.receipt,)).fetchone() is not None

    def has_like(self, beginning: str) -> bool:
        """Whether anything was paid for whose receipt, in hexadecimal, begins so."""
        query = "SELECT 1 FROM spends WHERE receipt >= ? AND receipt < ?"
        return self._db.execute(query, (beginning, beginning + "g")).fetchone() is not None

    def check(self, spend: Spend) -> None:
        """Raises `LedgerRefusal` if `spend` would be refused now. Writes nothing."""
        capped = self.caps.epsilon is not None or self.caps.delta is not None
        if capped and not self.has(spend):
            check_spend(spend, self._charges(), self.caps)

    def record(self, spends: Sequence[Spend], foreseen: Spend | None = None) -> None:
        """Writes all of `spends` or none. They are on disk when this returns.

        Nothing is written either unless there is room for what is `foreseen`.

        Raises `LedgerRefusal` past the cap, and `RunFailed` where they cannot be written.
        """
        if not spends:
            return
        try:
            self._db.execute("BEGIN IMMEDIATE")
            if foreseen is not None:
                self.check(foreseen)
            for spend in spends:
                self.check(spend)
                if not self.has(spend):
                    epsilon = "inf" if spend.epsilon is None else str(spend.epsilon)
                    self._db.execute(
                        "INSERT INTO spends (receipt, data, epsilon, delta) VALUES (?, ?, ?, ?)",
                        (spend.receipt, spend.data, epsilon, spend.delta),
                    )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise RunFailed(f"the ledger cannot be written: {error}") from None
        finally:
            if self._db.in_transaction:  # a failed COMMIT leaves it open, a full disk may end it
                self._db.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()
