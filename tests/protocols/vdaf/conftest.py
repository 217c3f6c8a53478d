"""Runs a test with the native loops and with the twins, or with every instance of Prio3."""

import pytest

from tallyroom.protocols.algebra.field import HAVE_NATIVE
from tallyroom.protocols.vdaf.prio3 import Prio3
from tests.protocols.vdaf.clients import INSTANCES


@pytest.fixture(params=["pure", "native"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of the implementation that runs for the rest of the test."""
    name: str = request.param
    if name == "native" and not HAVE_NATIVE:
        pytest.skip("the native loops are not built")
    monkeypatch.setenv("TALLYROOM_NATIVE", "1" if name == "native" else "0")
    return name


@pytest.fixture(params=INSTANCES)
def prio3(request: pytest.FixtureRequest) -> Prio3:
    return INSTANCES[request.param]
