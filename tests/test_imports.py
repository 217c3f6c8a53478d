"""Imports point one way, and the cores know no network."""

import ast
import dataclasses
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from parties.process import PartyConfig

ROOT = Path(__file__).parent.parent
LAYERS = ("fss", "protos", "protocols", "storage", "parties", "servers", "simulation")
PACKAGES = (*LAYERS, "tallyroom")
ALLOWED: dict[str, set[str]] = {
    "fss": {"fss"},
    "protocols": {"protocols", "fss"},
    "protos": {"protos", "protocols"},
    "storage": {"storage", "protos", "protocols"},
    "parties": {"parties", "storage", "protos", "protocols", "fss"},
    "servers": {"servers", "storage", "protos", "protocols", "fss"},
    "simulation": set(LAYERS),
    "tallyroom": set(PACKAGES),
}

ROOMS: dict[str, set[str]] = {
    "algebra": set(),
    "garbling": {"algebra"},
    "vdaf": {"algebra"},
    "local": {"privacy"},
    "privacy": {"local", "run"},
    "identity": {"run"},
    "statistics": {"algebra", "garbling", "joint", "local", "pairwise", "privacy", "run"},
    "studies": {"algebra", "privacy", "statistics"},
    "joint": {"aggregation", "algebra", "garbling", "run"},
    "pairwise": {"aggregation", "algebra", "garbling", "joint", "run", "statistics"},
    "aggregation": {
        "algebra",
        "identity",
        "joint",
        "local",
        "privacy",
        "run",
        "statistics",
        "vdaf",
    },
    "run": {"aggregation", "algebra", "garbling", "identity", "joint", "privacy", "statistics"},
}
"""What each room of `protocols` may import of the others; files beside the rooms are open to all.
Nothing that computes (algebra, garbling, vdaf) knows a statistic, an aggregator or a run, and a
statistic knows no aggregator."""


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports anywhere, also within functions."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add((node.module or "").split(".")[0])
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = (imported(path) & {*PACKAGES, "tests"}) - ALLOWED[package]
        assert not wrong, f"{path} imports {wrong}"


def rooms_imported(path: Path) -> set[str]:
    """The rooms of `protocols` that a file imports anywhere, for its types too."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("protocols.")} & ROOMS.keys()


def test_the_table_has_every_room() -> None:
    folders = {path.parent.name for path in (ROOT / "protocols").glob("*/__init__.py")}
    assert folders == ROOMS.keys()


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_of_the_protocols_import_what_the_table_says(room: str) -> None:
    """Exactly: an import that is no more leaves the table as well."""
    files = sorted((ROOT / "protocols" / room).rglob("*.py"))
    used = {path: rooms_imported(path) - {room} for path in files}
    for path, rooms in used.items():
        assert rooms <= ROOMS[room], f"{path} imports {rooms - ROOMS[room]}"
    assert set().union(*used.values()) == ROOMS[room]


@pytest.mark.parametrize("package", ["fss", "protocols"])
def test_no_network_in_the_cores(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = imported(path) & {"grpc", "grpc_health", "socket", "asyncio", "sqlite3", "time"}
        assert not wrong, f"{path} imports {wrong}"


def test_importing_all_of_the_cores_loads_no_grpc() -> None:
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for package in ("fss", "protocols")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    program = (
        f"import importlib, sys; [importlib.import_module(m) for m in {modules!r}];"
        "from protocols.aggregation import aggregators; aggregators();"
        "print([m for m in sys.modules if m.split('.')[0] in ('grpc', 'protos', 'servers')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_party_process_starts_with_libraries_that_it_does_not_need() -> None:
    """Each of 500 of them would pay for pages of scipy that it never reads."""
    program = (
        "import sys; from simulation.runtimes.children import preload; preload();"
        "heavy = ('scipy', 'sklearn', 'cvxopt', 'matplotlib', 'rich', 'typer');"
        "print([m for m in sys.modules if m in heavy])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_deployed_parties_and_servers_cannot_be_scripted() -> None:
    """Cheating and falling silent are the harness's: no name for it is left where parties and
    servers are, and nothing there imports the harness."""
    scripted = re.compile(
        r"cheat(s|ers|ing_machine)?|misbehav\w*|liars?|exaggerat\w*|lying\w*", re.I
    )
    for package in ("protocols", "storage", "parties", "servers"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(parsed(path)):
                names = [
                    getattr(node, "name", None),
                    getattr(node, "id", None),
                    getattr(node, "attr", None),
                    getattr(node, "arg", None),
                ]
                wrong = [name for name in names if name and scripted.fullmatch(str(name))]
                assert not wrong, f"{path}: {wrong}"
    fields = {field.name for field in dataclasses.fields(PartyConfig)}
    assert fields == {"credentials", "coordinator", "holdings", "seed", "store", "peer", "policy"}


def test_helpers_of_tests_are_in_modules_of_their_own() -> None:
    """A test module that others import runs when they do, and cannot be renamed or split."""
    importing = {
        f"{path.relative_to(ROOT)}: {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        if re.search(r"tests\.(\w+\.)*test_", path.read_text())  # parsing all takes seconds
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith("tests.")
        and node.module.rpartition(".")[2].startswith("test_")
    }
    assert importing == set()
