"""How many releases a store has ever paid for, in a file beside its secret.

A ledger that has fewer was emptied, removed, or restored from a copy that is older than the store:
whoever goes on with it spends again what was spent.
"""

from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.protos.identity_files import write_secret

FILE = "spent"


class Served:
    def __init__(self, folder: Path, known: bool = False) -> None:
        """`known` is whether the store was used before, perhaps by a version that did not count.
        Raises `LocalError` if the file holds no number."""
        self._path = folder / FILE
        self._known = known
        self.count: int | None = None
        if self._path.exists():
            text = self._path.read_text(errors="replace").strip()
            if not text.isdecimal():
                raise LocalError(f"{self._path} is not the count of a store's releases")
            self.count = int(text)

    def check(self, ledger: Path, rows: int | None) -> None:
        """Raises `LocalError` unless a ledger with so many releases may go on; None if it is not
        there, or empty."""
        if rows is None and self.count is None and self._known:
            raise LocalError(f"{ledger} is gone, and its store was used before: {_ADVICE}")
        if (rows or 0) < (self.count or 0):
            raise LocalError(
                f"{ledger} has {rows or 0} releases, and {self.count} were made from this store: "
                f"it was emptied, or is an older copy; {_ADVICE}"
            )

    def reach(self, rows: int) -> None:
        """The count is on disk when this returns, and never falls. Raises `OSError`."""
        if self.count is None or rows > self.count:
            write_secret(self._path, f"{rows}\n".encode())
            self.count = rows


_ADVICE = "restore the newest copy, then `tally ledger STORE --restore RESULT…`"
