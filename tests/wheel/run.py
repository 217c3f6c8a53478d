"""Builds the wheel, with and without a compiler, and uses it where there is no checkout.

Run as `make wheel-test`: it needs a package index, and a minute or two.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent.parent
API = """
import tallyroom
from tallyroom import Ecdf, Federation
assert "site-packages" in tallyroom.__file__, tallyroom.__file__
with Federation(parties=6, servers=2, aggregator="fss", runtime="processes", seed=1) as federation:
    result = federation.run(Ecdf(value="score", thresholds=16), epsilon="inf")
assert result.error["max"] < 1e-9, result.error
print("the Python API answers:", result)
"""
PAGE = """
from importlib.resources import files
page = (files("tallyroom.simulation.web") / "static" / "index.html").read_text()
print("the page:", len(page), "characters")
"""


def call(*words: str | Path, cwd: Path, **environment: str) -> str:
    shown = " ".join(map(str, words))[:100].partition("\n")[0]
    print(f"$ {shown}", flush=True)
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": "", **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{shown} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return done.stdout


def build(folder: Path, compiler: bool) -> Path:
    """From a copy of what git keeps, so that nothing compiled before gets in."""
    source = folder / "source"
    for name in call("git", "ls-files", "-z", cwd=HERE).split("\0"):
        if name and (HERE / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HERE / name, source / name)
    none = {} if compiler else {"CC": "/nonexistent/cc"}
    call(sys.executable, "-m", "build", "--wheel", "--outdir", folder, source, cwd=folder, **none)
    (wheel,) = folder.glob("*.whl")
    return wheel


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment, elsewhere = folder / "environment", folder / "elsewhere"
        elsewhere.mkdir()
        venv.create(environment, with_pip=True)
        programs = environment / "bin"
        constraints = HERE / "constraints.txt"
        for compiler in (True, False):
            made = folder / ("compiled" if compiler else "pure")
            made.mkdir()
            wheel = build(made, compiler)
            again = [] if compiler else ["--force-reinstall", "--no-deps"]
            pip: list[str | Path] = [programs / "python", "-m", "pip", "install", "--quiet"]
            call(*pip, *again, "-c", constraints, f"{wheel}[web]", cwd=elsewhere)
            native = call(programs / "tally", "list", "runtimes", cwd=elsewhere).splitlines()[-1]
            print(f"{wheel.name}, {wheel.stat().st_size:,} bytes; {native}")
            if (native == "native loops: pure") is compiler:
                sys.exit(f"compiler: {compiler}, and yet {native}")
            print(call(programs / "tally", "demo", cwd=elsewhere).strip().splitlines()[-1])
            print(call(programs / "python", "-c", API, cwd=elsewhere).strip())
            print(call(programs / "python", "-c", PAGE, cwd=elsewhere).strip())
    print("1 passed, 0 failed")


if __name__ == "__main__":
    main()
