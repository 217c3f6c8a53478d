"""Imports point one way, and the cores know no network."""

import ast
import dataclasses
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tallyroom.parties.process import PartyConfig

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

ORDER = (
    "algebra",
    "privacy",
    "wire",
    "identity",
    "garbling",
    "vdaf",
    "local",
    "kernels",
    "joint",
    "plans",
    "statistics",
    "studies",
    "query",
    "aggregation",
    "pairwise",
    "run",
)
"""The rooms of `protocols`, and a query between statistics and those who compute them: each imports
only what stands before it. Other files beside the rooms know none of them."""
BESIDE = {"__init__", "query"}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def modules_imported(path: Path) -> set[str]:
    """What a file imports anywhere, also within functions and for its types."""
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def imported(path: Path) -> set[str]:
    """The packages that a file imports; ours by the name of their folder."""
    return {
        folder_of(name) if name.startswith("tallyroom.") else name.split(".")[0]
        for name in modules_imported(path)
    }


def folder_of(module: str) -> str:
    """`tallyroom.protocols.errors` is of `protocols`, `tallyroom.Federation` of `tallyroom`."""
    folder = module.split(".")[1]
    return folder if folder in LAYERS else "tallyroom"


def test_everything_is_imported_under_one_name() -> None:
    """A user's own folder `storage` or `servers` must not stand before ours."""
    for path in (
        each for folder in (*PACKAGES, "tests", "docs") for each in (ROOT / folder).rglob("*.py")
    ):
        wrong = {name.split(".")[0] for name in modules_imported(path)} & set(LAYERS)
        assert not wrong, f"{path} imports {wrong}"


@pytest.mark.parametrize("package", PACKAGES)
def test_imports_point_one_way(package: str) -> None:
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = (imported(path) & {*PACKAGES, "tests"}) - ALLOWED[package]
        assert not wrong, f"{path} imports {wrong}"


def top_level(module: ast.Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that are carried out when a file is loaded."""
    for node in module.body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node


def rooms_imported(path: Path) -> set[str]:
    """The rooms of `protocols` that a file needs before it can be loaded."""
    found = set()
    for node in top_level(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    names = {name for name in found if name.startswith("tallyroom.protocols.")}
    return {name.split(".")[2] for name in names} & set(ORDER)


def test_the_order_has_every_room() -> None:
    folders = {path.parent.name for path in (ROOT / "protocols").glob("*/__init__.py")}
    assert folders == set(ORDER) - BESIDE


@pytest.mark.parametrize("room", ORDER)
def test_rooms_of_the_protocols_import_only_those_before_them(room: str) -> None:
    folder = ROOT / "protocols" / room
    files = sorted(folder.rglob("*.py")) or [folder.with_suffix(".py")]
    allowed = set(ORDER[: ORDER.index(room) + 1])
    for path in files:
        later = rooms_imported(path) - allowed
        assert not later, f"{path} imports {later}"


def test_files_beside_the_rooms_know_none_of_them() -> None:
    for path in sorted((ROOT / "protocols").glob("*.py")):
        if path.stem not in BESIDE:
            assert not rooms_imported(path), path


@pytest.mark.parametrize("package", ["fss", "protocols"])
def test_no_network_in_the_cores(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        wrong = imported(path) & {"grpc", "grpc_health", "socket", "asyncio", "sqlite3", "time"}
        assert not wrong, f"{path} imports {wrong}"


def test_importing_all_of_the_cores_loads_no_grpc() -> None:
    modules = [
        ".".join(["tallyroom", *path.relative_to(ROOT).with_suffix("").parts])
        for package in ("fss", "protocols")
        for path in sorted((ROOT / package).rglob("*.py"))
    ]
    program = (
        f"import importlib, sys; [importlib.import_module(m) for m in {modules!r}];"
        "from tallyroom.protocols.aggregation import aggregators; aggregators();"
        "wrong = ('grpc', 'tallyroom.protos', 'tallyroom.servers');"
        "print([m for m in sys.modules if m in wrong])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_no_party_process_starts_with_libraries_that_it_does_not_need() -> None:
    """Each of 500 of them would pay for pages of scipy that it never reads."""
    program = (
        "import sys; from tallyroom.simulation.runtimes.children import preload; preload();"
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
