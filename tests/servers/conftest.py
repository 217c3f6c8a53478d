"""What all tests of servers have."""

import pytest

from tests.registering import register_twofold


@pytest.fixture(autouse=True)
def another_noise_law(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a lie can be told about the law of a query."""
    register_twofold(monkeypatch)
