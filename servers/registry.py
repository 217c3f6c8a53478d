"""A durable SQLite registry of the tokens given out and the party certificates signed."""

import datetime as dt
import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.wire.messages import Role

SCHEMA_VERSION = 2
_SCHEMA = """
CREATE TABLE IF NOT EXISTS tokens (
  digest BLOB PRIMARY KEY, party INTEGER NOT NULL, expires INTEGER NOT NULL, used INTEGER);
CREATE TABLE IF NOT EXISTS certificates (
  serial TEXT PRIMARY KEY, party INTEGER NOT NULL, key BLOB NOT NULL UNIQUE,
  expires INTEGER NOT NULL, revoked INTEGER);
CREATE TABLE IF NOT EXISTS members (
  serial TEXT PRIMARY KEY, name TEXT NOT NULL, revoked INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS certificates_of ON certificates (party);
"""


@dataclass(frozen=True)
class Signed:
    """A certificate to be registered: its serial, its public key, and when it expires."""

    certificate: bytes
    serial: int
    key: bytes
    ends: dt.datetime


class Registry:
    """Every change is one transaction, on disk when the call returns."""

    def __init__(self, path: Path) -> None:
        """Opens or creates the registry. Raises `LocalError` if a newer version wrote it."""
        try:
            self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA synchronous = FULL")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version > SCHEMA_VERSION:
                raise LocalError(
                    f"{path} was written by a newer Tallyroom (schema {version}, this knows "
                    f"{SCHEMA_VERSION})"
                )
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        except sqlite3.Error as error:
            raise LocalError(f"cannot open the registry {path}: {error}") from None
        path.chmod(0o600)

    def close(self) -> None:
        self._db.close()

    def add_token(self, digest: bytes, party: int, expires: dt.datetime) -> None:
        """Makes this the only token for `party`: an earlier unused one is void."""
        with _Transaction(self._db):
            self._db.execute("DELETE FROM tokens WHERE party = ? AND used IS NULL", (party,))
            self._db.execute(
                "INSERT INTO tokens (digest, party, expires) VALUES (?, ?, ?)",
                (digest, party, int(expires.timestamp())),
            )

    def redeem(self, digest: bytes, now: dt.datetime, sign: Callable[[int], Signed]) -> bytes:
        """Trades a token for a certificate, once. The party's older certificates are revoked.

        `sign` is called with the party that the token is for; if it raises, the token stays valid.
        Raises `PeerError` on a token that was never given out, was used or has expired.
        """
        with _Transaction(self._db):
            query = "SELECT party, expires, used FROM tokens WHERE digest = ?"
            row = self._db.execute(query, (digest,)).fetchone()
            if row is None:
                raise PeerError("unknown", "no such token was given out")
            party, expires, used = row
            peer = Role.PARTY.named(party)
            if used is not None:
                raise PeerError(peer, "its token was used before")
            moment = int(now.timestamp())
            if moment > expires:
                raise PeerError(peer, "its token has expired")
            signed = sign(party)
            self._db.execute("UPDATE tokens SET used = ? WHERE digest = ?", (moment, digest))
            self._revoke(party, moment)
            self._enter(party, signed)
        return signed.certificate

    def renew(self, party: int, serial: int, sign: Callable[[int], Signed]) -> bytes:
        """Registers another certificate for the holder of `serial`. Raises `PeerError` if it may
        not have one."""
        with _Transaction(self._db):
            query = "SELECT revoked FROM certificates WHERE serial = ? AND party = ?"
            row = self._db.execute(query, (str(serial), party)).fetchone()
            if row is None or row[0] is not None:
                raise PeerError(Role.PARTY.named(party), "its certificate may not be renewed")
            signed = sign(party)
            self._enter(party, signed)
        return signed.certificate

    def revoke(self, party: int, now: dt.datetime) -> int:
        """Revokes the party's certificates and its unused token; returns how many there were."""
        with _Transaction(self._db):
            void = self._db.execute(
                "DELETE FROM tokens WHERE party = ? AND used IS NULL", (party,)
            ).rowcount
            return self._revoke(party, int(now.timestamp())) + void

    def revoke_members(self, serials: Iterable[int], name: str, now: dt.datetime) -> int:
        """Revokes certificates that were not issued here, as those of analysts are; returns how
        many of them had not been."""
        with _Transaction(self._db):
            return self._db.executemany(
                "INSERT OR IGNORE INTO members VALUES (?, ?, ?)",
                [(str(serial), name, int(now.timestamp())) for serial in serials],
            ).rowcount

    def revoked(self) -> list[int]:
        """Returns serials, oldest first. The list only grows, so its length is its number."""
        query = (
            "SELECT serial, revoked FROM certificates WHERE revoked IS NOT NULL "
            "UNION ALL SELECT serial, revoked FROM members ORDER BY 2"
        )
        return [int(serial) for serial, _ in self._db.execute(query)]

    def parties(self) -> dict[int, str]:
        """Returns each party's state: `invited`, `enrolled` or `revoked`."""
        state = dict.fromkeys(
            (party for (party,) in self._db.execute("SELECT DISTINCT party FROM tokens")), "invited"
        )
        rows = self._db.execute("SELECT party, revoked FROM certificates ORDER BY rowid")
        state |= {party: "enrolled" if revoked is None else "revoked" for party, revoked in rows}
        return dict(sorted(state.items()))

    def _revoke(self, party: int, moment: int) -> int:
        return self._db.execute(
            "UPDATE certificates SET revoked = ? WHERE party = ? AND revoked IS NULL",
            (moment, party),
        ).rowcount

    def _enter(self, party: int, signed: Signed) -> None:
        try:
            self._db.execute(
                "INSERT INTO certificates (serial, party, key, expires) VALUES (?, ?, ?, ?)",
                (str(signed.serial), party, signed.key, int(signed.ends.timestamp())),
            )
        except sqlite3.IntegrityError:
            peer = Role.PARTY.named(party)
            raise PeerError(peer, "this key already has a certificate: make a new pair") from None


class _Transaction:
    """Commits all changes or none. It locks out other writers, such as `tally enrol`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
