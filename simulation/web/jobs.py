"""Starts `tally run` and `tally compare` as separate processes, which outlive the page."""

import json
import os
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.watch import hold
from tallyroom.simulation.web.folder import JOB, LOG

MOST_AT_ONCE = 4
PROGRAM = "from tallyroom.simulation.command.start import main; main()"


class Jobs:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, words: Sequence[str]) -> str:
        """Starts a command; returns the name of its folder. Raises `LocalError` if too many run."""
        self._running = [each for each in self._running if each.poll() is None]
        if len(self._running) >= MOST_AT_ONCE:
            raise LocalError(f"{MOST_AT_ONCE} runs are in progress: wait for one of them to end")
        stamp = time.strftime("%Y%m%d-%H%M%S")
        name = f"{stamp}-{words[1]}-{secrets.token_hex(2)}"
        folder = self._folder / name
        try:
            folder.mkdir(parents=True)
            lock = hold(folder)
        except OSError as error:
            raise LocalError(f"cannot write to {self._folder}: {error.strerror}") from None
        try:
            command = [*words, "--out", str(folder)]
            job = {
                "action": words[0],
                "statistic": words[1],
                "begun": time.time(),
                "command": shlex.join(["tally", *words]),
            }
            (folder / JOB).write_text(json.dumps(job))
            with (folder / LOG).open("wb") as log:
                self._running.append(
                    subprocess.Popen(
                        [sys.executable, "-c", PROGRAM, *command],
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=log,
                        pass_fds=(
                            lock,
                        ),  # held for as long as the run lives, even if this process ends
                        start_new_session=True,
                    )
                )
        except OSError as error:
            raise LocalError(f"cannot start a run: {error.strerror}") from None
        finally:
            os.close(lock)
        return name
