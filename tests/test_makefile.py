"""The Makefile: every native source counts, `clean` leaves no module, every target is fuzzed."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

ROOT = Path(__file__).parent.parent
NATIVE = [
    path.relative_to(ROOT).as_posix()
    for package in ("fss", "protocols")
    for pattern in ("_*.c", "*.h")
    for path in (ROOT / package).rglob(pattern)
]


def make(*words: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(
        ["make", *words], cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


def test_every_native_source_and_header_is_a_prerequisite() -> None:
    assert len(NATIVE) > 10
    database = make("-pn", "setup")
    rule = next(line for line in database.splitlines() if line.startswith(".venv/.installed: "))
    assert set(NATIVE) <= set(rule.split())


def test_clean_leaves_no_extension_module(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for source in NATIVE:
        module = (tmp_path / source).with_suffix(".so")
        module.parent.mkdir(parents=True, exist_ok=True)
        module.touch()
    make("clean", cwd=tmp_path)
    assert list(tmp_path.rglob("*.so")) == []


@pytest.mark.skipif(not (ROOT / ".venv").is_dir(), reason="the Makefile's own environment")
def test_every_target_is_fuzzed() -> None:
    shown = make("-n", "-o", "setup", "fuzz").partition("for target in $(")[2].partition(")")[0]
    named = subprocess.run(shown.split(), cwd=ROOT, capture_output=True, text=True, check=True)
    assert named.stdout.split() == list(TARGETS)
