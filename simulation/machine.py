"""What a figure was measured with: the machine, Python, the packages and the commit."""

import os
import platform
import re
import subprocess
from functools import lru_cache
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GIT_SECONDS = 10.0
NAME = re.compile(r"[\w.-]+")


@lru_cache(maxsize=1)
def machine() -> dict[str, object]:
    """The same in every document of a process. What is not known is left out."""
    found: dict[str, object] = {
        "cpu": _of_cpu("model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "flags": _of_cpu("flags"),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
        "kernel": platform.release(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "packages": packages(),
    }
    return found | ({"commit": at} if (at := commit()) else {})


def _of_cpu(name: str) -> str:
    """A field of the first core; empty where the system does not tell."""
    try:
        with open("/proc/cpuinfo") as info:
            for line in info:
                if line.partition(":")[0].strip() == name:
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def packages() -> dict[str, str]:
    """Tallyroom and what it always needs, with their versions."""
    found = {}
    try:
        wanted = [each for each in metadata.requires("tallyroom") or [] if "extra ==" not in each]
    except metadata.PackageNotFoundError:
        return {}
    names = (match[0] for each in wanted if (match := NAME.match(each)))
    for name in ("tallyroom", *sorted(set(names))):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """Of the checkout that this runs from, with `-dirty` where it was changed; empty for none."""
    if not (ROOT / ".git").exists():
        return ""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=40"]
    command += ["--exclude=*"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=GIT_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
