"""What a party host said in its runs, so that after a crash it says the same again or nothing.

NONCE.begun  a digest of the data and the question with which the host began to answer a run, and a
             digest of each thing that it was told then, such as a key or the list of parties
RUN.said     its shares of pairs as they were sent to the stations; emptied when there are too many
mark         the number up to which every run counts as begun (`protocols.run.begun`)

Most shares are a function of the party's secret, its data and the question, so a restarted host
computes them again. It must not do so with other data: servers would add one part of the first
sharing to one part of the second. In a run with several stages it must not be told something
different either, because its two answers together may reveal more than one. Shares of pairs also
depend on the other party, which met the process before the restart: they are written down before
anybody is told, and repeated.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from os import fsync as sync
from pathlib import Path

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.wire.messages import NONCE_BYTES, Message, decode
from tallyroom.storage.mark import Mark

MOST_BEGUN = 256
"""How many runs keep a record of how they began; older ones are below the mark."""
MOST_SAID = 8
"""How many runs of pairs keep their shares."""

DIGEST_BYTES = 32
_LENGTH = struct.Struct("<I")
_TOLD = struct.Struct("<BBII")
_CHECKSUM_BYTES = 16
ENTRY_BYTES = _TOLD.size + _CHECKSUM_BYTES


class PartyAnswers:
    """Every change is on disk when a call returns; all calls raise `OSError` if that fails."""

    def __init__(self, folder: Path, mark: bytes = b"") -> None:
        """If the folder has no mark, every run up to `mark` counts as begun and old files are
        discarded. Raises `LocalError` if the folder cannot be used."""
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._mark = Mark(folder / "mark")
            if self._mark.value is None:
                for path in [*folder.glob("*.begun"), *folder.glob("*.said")]:
                    path.unlink()
                self._mark.write(mark)
        except OSError as error:
            raise LocalError(f"cannot use {folder} as a store: {error.strerror}") from None

    def begin(self, number: bytes, digest: bytes) -> bool:
        """Whether a run may be answered: it is new, or it began with exactly the same digest."""
        path = self._path(number, "begun")
        if path.exists():
            return path.read_bytes()[: len(digest)] == digest
        if number <= (self._mark.value or b""):
            return False
        self._write(path, digest)
        names = sorted(path.stem for path in self._folder.glob("*.begun"))
        if len(names) > 2 * MOST_BEGUN:  # the mark is on disk before they go
            self._mark.write(bytes.fromhex(names[-MOST_BEGUN - 1]))
            for name in names[:-MOST_BEGUN]:
                (self._folder / f"{name}.begun").unlink(missing_ok=True)
        return True

    def told(self, number: bytes) -> dict[bytes, bytes]:
        """Returns digests of what parties were told in a run, by sender, receiver and phase."""
        entries = self._path(number, "begun").read_bytes()[DIGEST_BYTES:]
        whole = range(0, len(entries) - ENTRY_BYTES + 1, ENTRY_BYTES)  # a crash may cut the last
        found = (entries[at : at + ENTRY_BYTES] for at in whole)
        return {entry[: _TOLD.size]: entry[_TOLD.size :] for entry in found}

    def tell(self, number: bytes, entries: dict[bytes, bytes]) -> None:
        """Adds digests of what parties were told."""
        known = self.told(number)
        descriptor = os.open(self._path(number, "begun"), os.O_WRONLY)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(DIGEST_BYTES + ENTRY_BYTES * len(known))
            file.seek(0, os.SEEK_END)
            file.write(b"".join(key + digest for key, digest in entries.items()))
            file.flush()
            sync(file.fileno())

    def keep(self, run: bytes, messages: Sequence[Message]) -> None:
        encoded = [message.encode() for message in messages]
        body = b"".join(_LENGTH.pack(len(each)) + each for each in encoded)
        self._write(self._path(run, "said"), body + _checksum(body))
        for path in self._folder.glob("*.said"):
            if bytes.fromhex(path.stem)[:NONCE_BYTES] <= (self._mark.value or b""):
                path.unlink()  # runs above the mark may still be resumed
        for path in self._oldest_first("said")[:-MOST_SAID]:
            if path.stat().st_size:  # an empty file still records that something was said
                times = path.stat()
                os.truncate(path, 0)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def kept(self, run: bytes) -> list[Message] | None:
        """Returns the messages of a run, or None if there were none. Raises `LocalError` if they
        are damaged or too old: saying anything else in this run would be worse than silence."""
        try:
            data = self._path(run, "said").read_bytes()
        except FileNotFoundError:
            return None
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if _checksum(body) != checksum:
            raise LocalError(f"the messages sent in run {run.hex()} can no longer be read")
        messages, at = [], 0
        try:
            while at < len(body):
                (length,) = _LENGTH.unpack_from(body, at)
                messages.append(decode(body[at + _LENGTH.size : at + _LENGTH.size + length], "us"))
                at += _LENGTH.size + length
        except (PeerError, struct.error) as error:
            raise LocalError(f"the messages sent in run {run.hex()}: {error}") from None
        return messages

    def _path(self, run: bytes, kind: str) -> Path:
        return self._folder / f"{run.hex()}.{kind}"

    def _write(self, path: Path, data: bytes) -> None:
        """Writes all of it or nothing, even if the process is killed."""
        partial = path.with_name(path.name + ".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync(file.fileno())
        partial.replace(path)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            sync(descriptor)  # makes the file's name durable too
        finally:
            os.close(descriptor)

    def _oldest_first(self, kind: str) -> list[Path]:
        return sorted(self._folder.glob(f"*.{kind}"), key=lambda path: path.stat().st_mtime_ns)


def things_told(message: Message) -> dict[bytes, bytes]:
    """Returns digests of what a message tells each party, by sender, receiver and phase."""
    return {
        _TOLD.pack(
            one.phase, one.sender_role, int(one.senders[0]), int(one.receivers[0])
        ): _checksum(one.body[0].tobytes())
        for one in message.split()
    }


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2s(body, digest_size=_CHECKSUM_BYTES).digest()
