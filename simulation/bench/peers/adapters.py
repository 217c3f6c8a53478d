"""Peers, each started by a small file beside this one as its users would start it.

Such a file imports nothing of ours, so that a peer may live in an environment of its own:
PEERS_PYTHON names that interpreter, FLOWER_PYTHON one for Flower alone. A file reads what it is to
do as words or as one JSON object on standard input, and prints one JSON object as its last line.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

INTERPRETER = "PEERS_PYTHON"
FOLDER = Path(__file__).parent
MOST_SECONDS = 600.0


@dataclass(frozen=True)
class Adapter:
    """`module` is what must be importable; `own` names an interpreter for this peer alone."""

    file: str
    module: str
    own: str = INTERPRETER

    @property
    def python(self) -> str:
        return os.environ.get(self.own) or os.environ.get(INTERPRETER) or sys.executable

    def ask(self, *words: str, job: object = None) -> dict[str, Any] | None:
        """What the peer answers; None if it is not installed, or fails."""
        if missing(self):
            return None
        try:
            done = subprocess.run(
                [self.python, str(FOLDER / self.file), *words],
                input=json.dumps(job),
                capture_output=True,
                text=True,
                check=True,
                timeout=MOST_SECONDS,
            )
            return dict(json.loads(done.stdout.strip().splitlines()[-1]))
        except (OSError, subprocess.SubprocessError, ValueError, TypeError, IndexError):
            return None


@cache
def missing(adapter: Adapter) -> str:
    """Why the peer cannot be run; empty if it can."""
    command = [adapter.python, "-c", f"import {adapter.module}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=MOST_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{adapter.python} cannot be run: {error}"
    told = done.stderr.strip().splitlines()
    return f"it cannot be imported: {told[-1] if told else '?'}" if done.returncode else ""


MPYC_SUM = Adapter("mpyc_sum.py", "mpyc")
MPYC_COMPARE = Adapter("mpyc_compare.py", "mpyc")
OPENDP = Adapter("opendp_noise.py", "opendp.prelude")
DIFFPRIVLIB = Adapter("diffprivlib_noise.py", "diffprivlib")
SYCRET = Adapter("sycret_keys.py", "sycret")
FLOWER = Adapter("flower_sum.py", "flwr", "FLOWER_PYTHON")
VDAF = Adapter("vdaf_prio3.py", "vdaf_poc.vdaf_prio3")
BY_KEY = {
    "mpyc": MPYC_SUM,
    "mpyc-compare": MPYC_COMPARE,
    "opendp-error": OPENDP,
    "diffprivlib-error": DIFFPRIVLIB,
    "sycret": SYCRET,
    "flower": FLOWER,
    "vdaf-reference": VDAF,
}
"""By the names that rows have for them."""
