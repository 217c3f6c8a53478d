"""As if another package had something among its entry points."""

from importlib.metadata import EntryPoint

import pytest

from tallyroom.protocols import registry


def register(monkeypatch: pytest.MonkeyPatch, group: str, name: str, value: str) -> None:
    """Until the test ends, `value` (`module:attribute`) is found by `name` in the group."""
    before = registry.registered
    entry = EntryPoint(name, value, group)

    def registered(asked: str) -> dict[str, EntryPoint]:
        return {**before(asked), **({name: entry} if asked == group else {})}

    monkeypatch.setattr(registry, "registered", registered)


def register_twofold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another noise law than those that are bundled, `twofold`."""
    register(
        monkeypatch, registry.NOISE_LAWS, "twofold", "tests.example_aggregator.twofold:Twofold"
    )
