"""Runs a test with every implementation that this machine has."""

import pytest

from tallyroom.fss import native


def _available() -> list[int | None]:
    best = 0 if native.compiled is None else native.compiled.best()
    return [None, *range(native.AES_NI, best + 1)]


@pytest.fixture(params=_available(), ids=lambda code: native.NAMES.get(code, "pure"))
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the implementation that runs for the rest of the test."""
    code: int | None = request.param
    monkeypatch.setattr(native, "instruction_set", lambda: code)
    return native.implementation()
