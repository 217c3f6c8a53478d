"""One process at a time has a store."""

import errno
import fcntl
import logging
import os
from pathlib import Path

from tallyroom.protocols.errors import LocalError

log = logging.getLogger(__name__)

FILE = "lock"
_CANNOT = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class StoreLock:
    """Held until `release`, or until the process ends, however it does.

    The kernel carries it over NFS too. A file system that has no locks is used without one, which
    is logged.
    """

    def __init__(self, folder: Path) -> None:
        """Raises `LocalError` if another process has the store, `OSError` if it cannot be used."""
        self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise LocalError(
                f"another process is using the store {folder}: stop it first"
            ) from None
        except OSError as error:
            if error.errno not in _CANNOT:
                self.release()
                raise
            log.warning("%s has no locks: never start two processes on it", folder)

    def release(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.release()
