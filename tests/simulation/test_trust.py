"""The table of trust that `tally list aggregators` shows."""

import json
from functools import partial

import pytest
from rich.console import Console

import tallyroom.protocols.aggregation as registry
from tallyroom.protocols.registry import AGGREGATORS
from tallyroom.simulation.reports import terminal
from tallyroom.simulation.reports.trust import promises, show_promises
from tests.conftest import Tally
from tests.registering import register

FIELDS = {
    "summary",
    "servers",
    "colluding",
    "may_collude",
    "behaviour",
    "dropouts",
    "reveals",
    "catches",
    "rounds",
    "stages",
    "party_bytes",
    "offers",
    "options",
}


def test_json_has_every_field_of_every_aggregator(tally_here: Tally) -> None:
    found = json.loads(tally_here("list", "aggregators", "--json").stdout)["aggregators"]
    assert found.keys() == set(registry.aggregators())
    for name, row in found.items():
        assert row.keys() == FIELDS
        kind = registry.aggregator_named(name)
        assert row["rounds"] == kind.rounds
        assert row["party_bytes"] == kind.party_bytes
    assert (found["curator"]["colluding"], found["curator"]["servers"]) == (0, 1)
    assert (found["additive"]["colluding"], found["additive"]["servers"]) == (1, 2)
    assert found["additive"]["options"] == {}


def test_plain_text_is_aligned_and_says_everything(tally_here: Tally) -> None:
    lines = tally_here("list", "aggregators").stdout.splitlines()
    head, rows = lines[0], lines[1 : 1 + len(registry.aggregators())]
    at = head.index("may collude")
    assert [row.split()[0] for row in rows] == sorted(registry.aggregators())
    for row in rows:
        assert row[at - 2 : at] == "  "
        assert row[at:].startswith(("any ", "nobody"))
    text = "\n".join(lines)
    for kind in registry.aggregators().values():
        model = kind.threat_model(kind.servers)
        for words in (model.behaviour, model.dropouts, model.reveals, kind.party_bytes):
            assert words in text


def test_a_terminal_gets_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "Console", partial(Console, force_terminal=True, width=160))
    show_promises(promises())
    shown = capsys.readouterr().out
    assert "\x1b[1maggregator" in shown
    for words in ("additive", "any 1 of 2", "semi-honest parties"):
        assert words in shown


def test_a_broken_package_is_named_and_breaks_nothing_else(
    tally_here: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(monkeypatch, AGGREGATORS, "broken", "no.such.module:Broken")
    assert "broken" not in registry.aggregators()
    done = tally_here("list", "aggregators")
    assert done.returncode == 0
    assert "broken: aggregator 'broken' cannot be loaded: No module named 'no'" in done.stdout
    found = json.loads(tally_here("list", "aggregators", "--json").stdout)["aggregators"]
    assert found["broken"].keys() == {"error"}
    assert found["additive"].keys() == FIELDS
