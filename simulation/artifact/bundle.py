"""A bundle for a paper's artifact: what was asked, of what, with what, and what came of it.

README.md  CITATION.cff  machine.json
artifact.json   the words that repeat it, digests, what must be equal and what may differ
inputs/         specification and data, or only their digests
original/       the result: documents, raw rows, plots
repeat.py       runs it again and compares
"""

import hashlib
import json
import shlex
import shutil
import tarfile
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.artifact import repeat
from tallyroom.simulation.machine import machine
from tallyroom.simulation.result import version
from tallyroom.simulation.sweep.columns import TIMES

BAND = 3.0
MOST_FILES = 1000
SPEC = "sweep.toml"
ORIGINAL, INPUTS = "original", "inputs"
OUT = ("--out", f"../{repeat.REPEATED}")
EXACT = ("statistic", "data", "truth", "privacy", "federation", "communication")
SEEDED = ("estimate", "interval", "error", "noise_error", "method_error")
TIMED = ("timing.total_seconds", "timing.server_cpu_seconds")
BYTES_SHARE = 0.01
"""By how much the bytes of a program that is not ours may differ: what it draws at random may be
longer or shorter."""
CITATION = """cff-version: 1.2.0
message: If you use these figures, please cite Tallyroom and the artifact.
title: Tallyroom
type: software
version: {version}
license: Apache-2.0
authors:
  - name: The Tallyroom maintainers
"""


def files_named(texts: Iterable[str]) -> list[Path]:
    """Those that words or values name, such as `--data=csv:FILE.csv?value=age`. A path is part of
    the name of data, from which seeded noise is derived: it stays as it is in the bundle.

    Raises `LocalError` for a path that leads out of the folder that this was called from.
    """
    found: dict[Path, None] = {}
    for text in texts:
        flag, equals, value = text.partition("=")
        rest = value if equals and flag.startswith("--") else text
        name = Path(rest.removeprefix("csv:").partition("?")[0])
        if not 0 < len(str(name)) <= 4096 or "\0" in str(name) or not name.is_file():
            continue
        if name.is_absolute() or ".." in name.parts:
            raise LocalError(f"{name} is named by a path that no bundle has: use a relative one")
        found[name] = None
    return list(found)


@dataclass(frozen=True)
class Repeatable:
    """`words` are those of `tally`, called from `inputs/`; `exact` are fields that must be equal,
    "all others" for every one that is not named; `close` are numbers that may differ by a share."""

    title: str
    words: list[str]
    exact: tuple[str, ...] | str
    timed: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    close: dict[str, float] = field(default_factory=dict)
    machines: object = None
    inputs: list[Path] = field(default_factory=list)
    notes: tuple[str, ...] = ()


def understood(folder: Path) -> Repeatable:
    """What a folder holds. Raises `LocalError` for one of neither a run nor a sweep."""
    if (folder / "runs.jsonl").is_file():
        return _sweep(folder)
    if (folder / "result.json").is_file():
        return _run(folder)
    raise LocalError(f"{folder} has neither result.json nor runs.jsonl: nothing can be repeated")


def _sweep(folder: Path) -> Repeatable:
    spec, machines = folder / SPEC, folder / "machines.json"
    if not spec.is_file():
        raise LocalError(f"{folder} has no {SPEC}: run the sweep again with the same --out")
    return Repeatable(
        title=f"the sweep {folder.name}",
        words=["sweep", f"../{ORIGINAL}/{SPEC}", *OUT],
        exact="all others",
        timed=("seconds",),
        left_out=TIMES,
        machines=json.loads(machines.read_text()) if machines.is_file() else None,
        inputs=files_named(_texts(tomllib.loads(spec.read_text()))),
    )


def _texts(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _run(folder: Path) -> Repeatable:
    try:
        document: Any = json.loads((folder / "result.json").read_text())
        if not isinstance(document["command"], str):
            raise TypeError("a command is text")
        program, *words = shlex.split(document["command"])
        seeded = document["federation"]["seed"] is not None
        known, statistic = document.get("machine"), str(document["statistic"])
    except (ValueError, KeyError, TypeError):
        raise LocalError(f"{folder / 'result.json'} names no command that repeats it") from None
    if program != "tally" or not words or words[0] not in ("run", "meter"):
        raise LocalError("only `tally run`, `tally meter` and `tally sweep` can be repeated")
    if "--coordinator" in " ".join(words):
        raise LocalError("an answer of a deployed federation was paid for: it is not asked again")
    metered = words[0] == "meter"
    kept = _without_output(words)
    notes = () if seeded or metered else ("the run has no seed, so its noise is drawn again",)
    return Repeatable(
        title=f"{statistic}, {folder.name}",
        words=[kept[0], *OUT, *kept[1:]] if metered else [*kept, *OUT],
        exact=("statistic", "federation") if metered else EXACT + (SEEDED if seeded else ()),
        timed=TIMED,
        close={"communication.total_bytes": BYTES_SHARE} if metered else {},
        machines=known,
        inputs=files_named([*kept, *(_beside(kept) if metered else ())]),
        notes=notes,
    )


def _beside(words: list[str]) -> list[str]:
    """A metered SPEC.toml's folder, where its programs are."""
    specs = [Path(word) for word in words[: words.index("--") if "--" in words else None]]
    folders = [spec.parent for spec in specs if spec.suffix == ".toml" and spec.is_file()]
    found = [str(path) for folder in folders for path in sorted(folder.rglob("*"))]
    if len(found) > MOST_FILES:
        raise LocalError(f"there are more than {MOST_FILES} files beside the specification")
    return [path for path in found if "__pycache__" not in path]


def _without_output(words: list[str]) -> list[str]:
    """Without --out and --json, up to `--`, after which words are of another program."""
    kept, skip = [], False
    ends = words.index("--") if "--" in words else len(words)
    for word in words[:ends]:
        if skip:
            skip = False
        elif word == "--out":
            skip = True
        elif word != "--json" and not word.startswith("--out="):
            kept.append(word)
    return kept + words[ends:]


def bundle(folder: Path, out: Path, digests_only: bool = False, band: float = BAND) -> list[Path]:
    """Writes the bundle and `OUT.tar.gz`. Paths of inputs are taken from where this is called.

    Raises `LocalError` if `out` is there already, or if nothing can be repeated.
    """
    if out.exists():
        raise LocalError(f"{out} is there already: choose another --out")
    found = understood(folder)
    kept = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    kept = [path for path in kept if not path.is_symlink() and not path.name.startswith(".")]
    if len(kept) > MOST_FILES:
        raise LocalError(f"{folder} has more than {MOST_FILES} files")
    for path in kept:
        place = out / ORIGINAL / path.relative_to(folder)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, place)
    (out / INPUTS).mkdir()
    for source in found.inputs:
        (out / INPUTS / source).parent.mkdir(parents=True, exist_ok=True)
        if not digests_only:
            shutil.copyfile(source, out / INPUTS / source)
    digests = {f"{INPUTS}/{path}": _digest(path) for path in found.inputs}
    told = {
        "schema": 1,
        "title": found.title,
        "words": found.words,
        "inputs": digests,
        "exact": found.exact,
        "timed": found.timed,
        "left_out": found.left_out,
        "close": found.close,
        "band": band,
        "version": version(),
        "original": {str(p.relative_to(folder)): _digest(p) for p in kept},
    }
    (out / "artifact.json").write_text(json.dumps(told, indent=1) + "\n")
    (out / "machine.json").write_text(json.dumps(found.machines or machine(), indent=1) + "\n")
    (out / "CITATION.cff").write_text(CITATION.format(version=version()))
    (out / "README.md").write_text(_readme(found, digests, digests_only, band))
    shutil.copyfile(repeat.__file__, out / "repeat.py")
    archive = out.with_name(f"{out.name}.tar.gz")
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(out, out.name)
    return [out / "README.md", archive]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _readme(found: Repeatable, digests: dict[str, str], digests_only: bool, band: float) -> str:
    exact = found.exact if isinstance(found.exact, str) else ", ".join(found.exact)
    lines = [
        f"# Artifact: {found.title}",
        "",
        "`original/` is what was measured, on the machine that `machine.json` describes.",
        "",
        "## Repeat it",
        "",
        "```",
        f"pip install tallyroom=={version()}",
        "python3 repeat.py",
        "```",
        "",
        "In `inputs/` the script runs the command below, which writes `repeated/`, and compares.",
        "Read the command first: it runs as you.",
        "",
        "```",
        shlex.join(["tally", *found.words]),
        "```",
        "",
        "## What must agree",
        "",
        f"- Equal to the last digit: {exact}.",
        *([f"- Not compared: {', '.join(found.left_out)}."] if found.left_out else []),
        *(f"- Within {share:.0%}: {name}." for name, share in found.close.items()),
        f"- Within a factor of {band:g}, added up: {', '.join(found.timed)} (`--band` changes it).",
        *(f"- Note: {note}." for note in found.notes),
        "",
        "## Inputs",
        "",
        *(f"- `{name}`, SHA-256 {digest}" for name, digest in digests.items()),
    ]
    if digests_only:
        lines += ["", "Data files are not in the bundle: put them where they are named above."]
    return "\n".join(lines) + "\n"
