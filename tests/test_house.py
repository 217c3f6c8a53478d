"""House rules that a reader relies on: one name for one thing, short functions, tests that can
fail."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("fss", "parties", "protocols", "servers", "simulation", "storage", "tallyroom")
MOST_LINES = 75
SAME = {
    "Auc": "a kernel and its statistic",
    "CollisionEntropy": "a kernel and its statistic",
    "Gini": "a kernel and its statistic",
    "KendallTau": "a kernel and its statistic",
    "Variance": "a kernel and its statistic",
    "Histogram": "a statistic and the circuit of the VDAF's specification that proves it",
    "Sum": "a statistic and the circuit of the VDAF's specification that proves it",
    "Prio3": "the VDAF and the aggregator that is made of it",
}
"""Classes of one name that are one thing, seen from two rooms."""


def files(*folders: str) -> list[str]:
    found = (path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return sorted(str(path.relative_to(ROOT)) for path in found)


@cache
def sources(*folders: str) -> dict[str, ast.Module]:
    return {name: ast.parse((ROOT / name).read_text()) for name in files(*folders)}


def defined(kinds: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Public classes by name, with the files that define them."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, module in kinds.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    return found


def test_a_name_stands_for_one_thing() -> None:
    """In the packages; a figure's file and a benchmark's are each for themselves."""
    alone = ("simulation/reproduce/", "simulation/bench/")
    kinds = {
        path: module for path, module in sources(*PACKAGES).items() if not path.startswith(alone)
    }
    twice = {
        name: places
        for name, places in defined(kinds).items()
        if len(places) > 1 and name not in SAME
    }
    assert twice == {}


def test_two_meanings_are_found() -> None:
    texts = {"a.py": "class Row: ...\nclass One: ...", "b.py": "class Row: ...\nclass _One: ..."}
    found = defined({path: ast.parse(text) for path, text in texts.items()})
    assert found == {"Row": ["a.py", "b.py"], "One": ["a.py"]}


def statements(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """The lines of a function without its signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def test_functions_are_short() -> None:
    """A file is as long as its idea; what is read in one go is a function."""
    long = {
        f"{path}: {node.name}": lines
        for path, module in sources(*PACKAGES).items()
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := statements(node)) > MOST_LINES
    }
    assert long == {}


def can_fail(function: ast.AST, asserting: set[str]) -> bool:
    """Whether it asserts, or calls what does."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else node.func
            name = called if isinstance(called, str) else getattr(called, "id", "")
            if name in ("raises", "fail", "warns") or name.startswith("assert_"):
                return True
            if name in asserting:
                return True
    return False


def functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, module in sources("tests").items():
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield path, node


def test_every_test_can_fail() -> None:
    """It asserts something, or a helper that it calls does."""
    known = list(functions())
    asserting: set[str] = set()
    while True:
        more = {
            node.name
            for _, node in known
            if not node.name.startswith("test_") and can_fail(node, asserting)
        }
        if more <= asserting:
            break
        asserting |= more
    tests = [(path, node) for path, node in known if node.name.startswith("test_")]
    assert len(tests) > 1500
    assert [f"{path}::{node.name}" for path, node in tests if not can_fail(node, asserting)] == []
