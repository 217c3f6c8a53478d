"""Runs a test with the native loops and with the twins."""

import pytest

from protocols.field import HAVE_NATIVE


@pytest.fixture(params=["pure", "native"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the implementation that runs for the rest of the test."""
    name: str = request.param
    if name == "native" and not HAVE_NATIVE:
        pytest.skip("the native loops are not built")
    monkeypatch.setenv("TALLYROOM_NATIVE", "1" if name == "native" else "0")
    return name
