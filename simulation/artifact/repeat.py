"""Repeats what this folder holds and compares: `python3 repeat.py [--band FACTOR]`.

Needs `tally` (`pip install tallyroom`) and nothing else. What must be equal is compared to the last
digit; times must be within a factor of the original's. Exit code 0 if all agree, 1 if not, 2 if it
could not be repeated.
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

REPEATED = "repeated"
LEAST_SECONDS = 0.1
"""Shorter times say nothing."""
MOST_SHOWN = 20


def field(document: Any, name: str) -> Any:
    """By its path, as `timing.total_seconds`; None where there is none."""
    for part in name.split("."):
        document = document.get(part) if isinstance(document, dict) else None
    return document


def rows_of(folder: Path) -> dict[str, Any]:
    """What is compared, by name: the rows of a sweep, or the one result."""
    journal = folder / "runs.jsonl"
    if journal.exists():
        entries = [json.loads(line) for line in journal.read_text().splitlines()[1:]]
        return {entry["key"]: entry["row"] for entry in entries}
    return {"result": json.loads((folder / "result.json").read_text())}


def differences(original: Path, repeated: Path, told: dict[str, Any], band: float) -> list[str]:
    """What does not agree, a line for each."""
    before, after = rows_of(original), rows_of(repeated)
    found = [f"{key}: it is only in one of the two" for key in before.keys() ^ after.keys()]
    timed = dict.fromkeys(told["timed"], (0.0, 0.0))
    for key in before.keys() & after.keys():
        one, other = before[key], after[key]
        names = one.keys() | other.keys() if told["exact"] == "all others" else told["exact"]
        for name in sorted(set(names) - set(told["left_out"]) - set(told["timed"])):
            if field(one, name) != field(other, name):
                words = f"{field(one, name)!r:.60} is now {field(other, name)!r:.60}"
                found.append(f"{key}: {name}: {words}")
        for name, (first, second) in timed.items():
            timed[name] = first + (field(one, name) or 0), second + (field(other, name) or 0)
        for name, share in told["close"].items():
            first, second = field(one, name) or 0, field(other, name) or 0
            if abs(first - second) > share * max(first, second):
                found.append(f"{key}: {name}: {first} is now {second}: more than {share:.1%} off")
    for name, (first, second) in timed.items():
        if max(first, second) >= LEAST_SECONDS and not first / band <= second <= first * band:
            words = f"{first:.3g} s is now {second:.3g} s: more than a factor of {band:g}"
            found.append(f"all together: {name}: {words}")
    return found


def changed_inputs(folder: Path, told: dict[str, Any]) -> list[str]:
    found = []
    for name, digest in told["inputs"].items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing: it has the SHA-256 {digest}")
        elif hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            found.append(f"{name} is not the file that was used")
    return found


def main() -> int:
    folder = Path(__file__).resolve().parent
    told = json.loads((folder / "artifact.json").read_text())
    parser = argparse.ArgumentParser(description="Repeats a result and compares.")
    parser.add_argument("--band", type=float, default=told["band"], help="factor for times")
    band = parser.parse_args().band
    beside = Path(sys.executable).with_name("tally")
    tally = str(beside) if beside.exists() else shutil.which("tally")
    if wrong := changed_inputs(folder, told):
        print(*wrong, sep="\n")
        return 2
    if tally is None:
        print("there is no `tally` here: pip install tallyroom")
        return 2
    shutil.rmtree(folder / REPEATED, ignore_errors=True)
    print("tally", *told["words"], flush=True)
    done = subprocess.run([tally, *told["words"]], cwd=folder / "inputs")
    if done.returncode:
        print(f"it could not be repeated: exit code {done.returncode}")
        return 2
    found = differences(folder / "original", folder / REPEATED, told, band)
    for line in found[:MOST_SHOWN]:
        print(line)
    if len(found) > MOST_SHOWN:
        print(f"and {len(found) - MOST_SHOWN} other differences")
    print("it differs" if found else f"it agrees; times within a factor of {band:g}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
