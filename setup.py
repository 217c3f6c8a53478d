"""Native loops: every `_name.c` beside the Python becomes an optional extension module.

Without a compiler the build goes on and the pure twins serve; `tally list` says which run.
"""

from pathlib import Path

from setuptools import Extension, setup

PACKAGES = ("fss", "protocols")


def extension(source: Path) -> Extension:
    return Extension(
        ".".join(["tallyroom", *source.with_suffix("").parts]),
        [source.as_posix()],
        depends=[
            header.as_posix() for package in PACKAGES for header in Path(package).rglob("*.h")
        ],
        extra_compile_args=["-O3", "-std=c11", "-Wall", "-Wextra"],
        optional=True,
    )


setup(
    ext_modules=[
        extension(source) for package in PACKAGES for source in sorted(Path(package).rglob("_*.c"))
    ]
)
