"""Coverage-guided fuzzing of one target: `python -m tests.fuzz.run TARGET SECONDS`.

Needs atheris, which `make fuzz` installs. Ends with what libFuzzer counted; a finding ends it with
an error, and leaves the input beside it.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tallyroom", "tests.fuzz"]):
    from tests.fuzz.targets import TARGETS

MEMORY_MB = 2048
LONGEST_INPUT = 4096
SLOWEST_SECONDS = 10


def main() -> None:
    name, seconds = sys.argv[1], int(sys.argv[2])
    target = TARGETS[name]
    corpus = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    options = [
        sys.argv[0],
        str(corpus),
        f"-max_total_time={seconds}",
        f"-rss_limit_mb={MEMORY_MB}",
        f"-max_len={LONGEST_INPUT}",
        f"-timeout={SLOWEST_SECONDS}",
        f"-artifact_prefix={corpus}/",
        "-print_final_stats=1",
        "-verbosity=1",
    ]
    atheris.Setup(options, target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
