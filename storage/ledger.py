"""The durable ledger: every loss that was spent, in SQLite, written before anything is released.

Servers, the coordinator and deployed parties each keep one. Its column `epsilon` has the text of a
loss (`PrivacyLoss.text`), which begins with `rho` where the loss is concentrated. The column `rho`
has the text of the same loss in ρ, where the release knew it from the law of its noise; else, as in
all rows from before there was such a column, ρ follows from ε.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from tallyroom.protocols.errors import LocalError, NotWritten
from tallyroom.protocols.privacy.composition import composed_epsilon
from tallyroom.protocols.privacy.ledger import (
    ANYTHING,
    Charges,
    Filter,
    Totals,
    adaptive_epsilon,
)
from tallyroom.protocols.privacy.loss import PrivacyLoss
from tallyroom.protocols.wire.machine import Spend
from tallyroom.storage.served import Served

SCHEMA_VERSION = 2
COLUMNS = "receipt, data, epsilon, delta, written"
_LEARNT = (
    "CREATE TABLE IF NOT EXISTS learnt ("
    "analyst TEXT NOT NULL, receipt TEXT NOT NULL, epsilon TEXT NOT NULL, delta REAL NOT NULL, "
    "rho TEXT NOT NULL, rho_delta REAL NOT NULL, PRIMARY KEY (analyst, receipt))"
)
"""Which analyst learnt what, at a coordinator; made with its first row."""
BUSY_SECONDS = 0.5
"""How long to wait for another process that holds the ledger; whoever needs it tries again."""


class Ledger:
    """One keeper's ledger. `filter` decides what may still be spent; by default, anything."""

    def __init__(
        self, path: Path | None, filter: Filter = ANYTHING, served: Served | None = None
    ) -> None:
        """Opens or creates the ledger at `path`; None keeps it in memory. With `served`, it counts
        its releases there, and one that has fewer is refused. Raises `LocalError`."""
        self.filter = filter
        self._served = served
        self._path = path
        try:
            if path is not None and served is not None and not _filled(path):
                served.check(path, None)
            self._open(path)
            if path is not None and served is not None:
                served.check(path, self._count())
                served.reach(self._count())
        except sqlite3.Error as error:
            raise LocalError(f"cannot open the ledger {path}: {error}") from None
        except OSError as error:
            raise LocalError(f"cannot open the ledger {path}: {error.strerror}") from None

    def _count(self) -> int:
        return int(self._db.execute("SELECT COUNT(*) FROM spends").fetchone()[0])

    def _open(self, path: Path | None) -> None:
        self._db = sqlite3.connect(
            path if path else ":memory:",
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        )
        self._db.execute("PRAGMA synchronous = FULL")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise LocalError(
                f"{path} was written by a newer Tallyroom (schema {version}, this knows "
                f"{SCHEMA_VERSION})"
            )
        if version < SCHEMA_VERSION:  # else nothing is written: it can be opened on a full disk
            self._upgrade()
        self._db.execute(f"SELECT {COLUMNS}, rho, rho_delta FROM spends LIMIT 1")

    def _upgrade(self) -> None:
        """Makes the table, or that of an older version into today's: all of it or nothing."""
        self._db.execute("BEGIN IMMEDIATE")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version < 1:
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS spends ("
                "receipt TEXT PRIMARY KEY, data TEXT NOT NULL, epsilon TEXT NOT NULL, "
                "delta REAL NOT NULL, written TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP)"
            )
        if version < SCHEMA_VERSION:  # another keeper of the file may have been quicker
            self._db.execute(f"SELECT {COLUMNS} FROM spends LIMIT 1")  # or it is none of ours
            self._db.execute("ALTER TABLE spends ADD COLUMN rho TEXT")
            self._db.execute("ALTER TABLE spends ADD COLUMN rho_delta REAL")
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._db.execute("COMMIT")

    def totals(self) -> Totals:
        return Totals.of(self._charges())

    def tight(self, delta: float) -> float:
        """The ε of everything at a total of `delta`, by optimal composition."""
        return composed_epsilon(self._charges(), delta)

    def adaptive(self, delta: float) -> float:
        """The ε of everything at a total of `delta`, each by its ρ, whoever chose the questions."""
        return adaptive_epsilon(self._charges_in_rho(), delta)

    def in_rho(self) -> dict[str, PrivacyLoss]:
        """The loss of every receipt in ρ."""
        query = "SELECT receipt, epsilon, delta, rho, rho_delta FROM spends"
        return {receipt: _in_rho(*known) for receipt, *known in self._db.execute(query)}

    def _charges_in_rho(self) -> Charges:
        found: dict[PrivacyLoss, int] = {}
        query = "SELECT epsilon, delta, rho, rho_delta, COUNT(*) FROM spends GROUP BY 1, 2, 3, 4"
        for *known, count in self._db.execute(query):
            loss = _in_rho(*known)
            found[loss] = found.get(loss, 0) + count
        return found

    def _charges(self) -> Charges:
        query = "SELECT epsilon, delta, COUNT(*) FROM spends GROUP BY 1, 2"
        with _tried("read"):
            rows = self._db.execute(query).fetchall()
        return {PrivacyLoss.read(text, delta): count for text, delta, count in rows}

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
        with _tried("read"):
            return self._db.execute(query, (beginning, beginning + "g")).fetchone() is not None

    def check(self, spend: Spend) -> None:
        """Raises `LedgerRefusal` if `spend` would be refused now, `NotWritten` if that cannot be
        known now. Writes nothing."""
        with _tried("read"):
            if self.filter == ANYTHING or self.has(spend):
                return
            charges = self._charges_in_rho() if self.filter.concentrated else self._charges()
            self.filter.check(self.filter.counted(spend.loss, spend.concentrated), charges)

    def record(
        self, spends: Sequence[Spend], foreseen: Spend | None = None, analyst: str = ""
    ) -> None:
        """Writes all of `spends` or none. They are on disk when this returns.

        Nothing is written either unless there is room for what is `foreseen`. With `analyst`, it is
        also written down that this analyst learnt what they paid for; no cap is asked about that.

        Raises `LedgerRefusal` past the cap, and `NotWritten` where they cannot be written now.
        """
        if not spends:
            return
        with _tried("written"):
            try:
                self._db.execute("BEGIN IMMEDIATE")
                if foreseen is not None:
                    self.check(foreseen)
                for spend in spends:
                    self.check(spend)
                    if not self.has(spend):
                        self._insert(spend)
                    if analyst:
                        self._learnt(analyst, spend)
                self._db.execute("COMMIT")
                if self._served is not None:
                    self._served.reach(self._count())
            finally:
                if self._db.in_transaction:  # after a failed COMMIT; a full disk may end it
                    self._db.execute("ROLLBACK")

    def _insert(self, spend: Spend) -> None:
        known = spend.in_rho
        in_rho = (None, None) if known is None else (known.text, known.written_delta)
        self._db.execute(
            "INSERT INTO spends (receipt, data, epsilon, delta, rho, rho_delta) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (spend.receipt, spend.data, spend.loss.text, spend.loss.written_delta, *in_rho),
        )

    def _learnt(self, analyst: str, spend: Spend) -> None:
        self._db.execute(_LEARNT)
        loss, known = spend.loss, spend.concentrated
        self._db.execute(
            "INSERT OR IGNORE INTO learnt VALUES (?, ?, ?, ?, ?, ?)",
            (
                analyst,
                spend.receipt,
                loss.text,
                loss.written_delta,
                known.text,
                known.written_delta,
            ),
        )

    def analysts(self) -> list[str]:
        """The analysts who learnt anything."""
        return sorted({name for name, *_ in self._learnt_rows("1 = 1", ())})

    def learnt(self, analyst: str) -> list[Spend]:
        """What an analyst learnt, whoever had asked it first, each release once."""
        return [
            Spend("", receipt, PrivacyLoss.read(text, delta), PrivacyLoss.read(rho, rho_delta))
            for _, receipt, text, delta, rho, rho_delta in self._learnt_rows(
                "analyst = ?", (analyst,)
            )
        ]

    def _learnt_rows(
        self, condition: str, values: tuple[str, ...]
    ) -> list[tuple[str, str, str, float, str, float]]:
        with _tried("read"):
            query = "SELECT 1 FROM sqlite_master WHERE name = 'learnt'"
            if self._db.execute(query).fetchone() is None:
                return []
            rows = f"SELECT * FROM learnt WHERE {condition} ORDER BY rowid"
            return self._db.execute(rows, values).fetchall()

    def probe(self) -> None:
        """Raises `NotWritten` if the ledger cannot be written now, as far as that can be told
        without writing."""
        if self._path is None:
            return
        with _tried("written"), closing(sqlite3.connect(self._path, timeout=BUSY_SECONDS)) as own:
            own.execute("BEGIN IMMEDIATE")  # on a connection of its own: another thread may write
            own.execute("ROLLBACK")

    def close(self) -> None:
        self._db.close()


def _in_rho(text: str, delta: float, rho: str | None, rho_delta: float | None) -> PrivacyLoss:
    """The loss of a row in ρ."""
    if rho is None:
        return PrivacyLoss.read(text, delta).as_concentrated()
    return PrivacyLoss.read(rho, rho_delta)


@contextmanager
def _tried(done: str) -> Iterator[None]:
    """Raises `NotWritten` for what SQLite could not do."""
    try:
        yield
    except sqlite3.Error as error:
        raise NotWritten(f"the ledger cannot be {done}: {error}") from None
    except OSError as error:
        raise NotWritten(f"the ledger cannot be {done}: {error.strerror}") from None


def _filled(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
