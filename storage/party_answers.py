"""What a party host has said in its runs, so that one that was killed says the same or nothing.

NONCE.begun  a digest of the data and the question that it began to answer a run with
RUN.said     its shares of pairs, as they went to the stations; empty once there are too many

Most shares are a function of the party's secret, its data and the question, and a host that is
started anew computes them again. It must not do so with other data: servers would add up one part
of the first sharing and one of the second. Shares of pairs depend on the other party as well, which
met the host that was: they are written down before anybody is told, and repeated.
"""

import hashlib
import os
import struct
from collections.abc import Sequence
from os import fsync as sync
from pathlib import Path

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.wire.messages import Message, decode

MOST_BEGUN = 256
"""Runs that are remembered to have been begun. Older ones are over."""
MOST_SAID = 8
"""Runs of pairs whose shares are kept."""

_LENGTH = struct.Struct("<I")
_CHECKSUM_BYTES = 16


class PartyAnswers:
    """Every change is on disk when a call returns; all raise `OSError` where that cannot be."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise LocalError(f"cannot use {folder} as a store: {error.strerror}") from None

    def begin(self, run: bytes, digest: bytes) -> bool:
        """Whether a run may be answered so: it was not begun before, or just so."""
        path = self._path(run, "begun")
        if path.exists():
            return path.read_bytes() == digest
        self._write(path, digest)
        self._keep_newest("begun", MOST_BEGUN)
        return True

    def keep(self, run: bytes, messages: Sequence[Message]) -> None:
        encoded = [message.encode() for message in messages]
        body = b"".join(_LENGTH.pack(len(each)) + each for each in encoded)
        self._write(self._path(run, "said"), body + _checksum(body))
        self._keep_newest("said", MOST_BEGUN)
        for path in self._oldest_first("said")[:-MOST_SAID]:
            if path.stat().st_size:  # what was said is not known any more, but that it was
                times = path.stat()
                os.truncate(path, 0)
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))

    def kept(self, run: bytes) -> list[Message] | None:
        """What was said in a run; None if nothing was. Raises `LocalError` if it is spoilt or too
        old: to say anything else in this run would be worse than to be silent."""
        try:
            data = self._path(run, "said").read_bytes()
        except FileNotFoundError:
            return None
        body, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
        if _checksum(body) != checksum:
            raise LocalError(f"what was said in run {run.hex()} cannot be read any more")
        messages, at = [], 0
        try:
            while at < len(body):
                (length,) = _LENGTH.unpack_from(body, at)
                messages.append(decode(body[at + _LENGTH.size : at + _LENGTH.size + length], "us"))
                at += _LENGTH.size + length
        except (PeerError, struct.error) as error:
            raise LocalError(f"what was said in run {run.hex()}: {error}") from None
        return messages

    def _path(self, run: bytes, kind: str) -> Path:
        return self._folder / f"{run.hex()}.{kind}"

    def _write(self, path: Path, data: bytes) -> None:
        """All of it or nothing, whenever we are killed."""
        partial = path.with_name(path.name + ".partial")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            sync(file.fileno())
        partial.replace(path)
        descriptor = os.open(self._folder, os.O_RDONLY)
        try:
            sync(descriptor)  # the name too
        finally:
            os.close(descriptor)

    def _keep_newest(self, kind: str, most: int) -> None:
        for path in self._oldest_first(kind)[:-most]:
            path.unlink(missing_ok=True)

    def _oldest_first(self, kind: str) -> list[Path]:
        return sorted(self._folder.glob(f"*.{kind}"), key=lambda path: path.stat().st_mtime_ns)


def _checksum(body: bytes) -> bytes:
    return hashlib.blake2s(body, digest_size=_CHECKSUM_BYTES).digest()
