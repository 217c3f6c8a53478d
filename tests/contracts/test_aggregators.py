"""Every installed aggregator that offers sums passes the contract."""

import pytest

from protocols.aggregation import aggregators
from protocols.errors import LocalError
from tests.contracts.aggregator_contract import AggregatorContract, allowed_servers, query_for

INSTALLED = {name: each for name, each in aggregators().items() if "sum" in each.offers}

for _name, _aggregator in INSTALLED.items():
    _title = f"Test{_name.title().replace('-', '')}"
    globals()[_title] = type(_title, (AggregatorContract,), {"aggregator": _aggregator})


def test_ours_are_installed() -> None:
    assert {"curator", "additive"} <= INSTALLED.keys()
    for name, aggregator in INSTALLED.items():
        assert aggregator.name == name
        assert f"Test{name.title().replace('-', '')}" in globals()


def test_numbers_of_servers() -> None:
    assert allowed_servers(INSTALLED["curator"]) == [1]
    assert allowed_servers(INSTALLED["additive"]) == [2, 3, 4]
    with pytest.raises(LocalError, match="additive needs at least 2 servers, not 1"):
        INSTALLED["additive"].check(query_for(INSTALLED["additive"], 1, 1, 1))
    with pytest.raises(LocalError, match="curator has 1 server, not 2"):
        INSTALLED["curator"].check(query_for(INSTALLED["curator"], 2, 1, 1))


def test_any_servers_but_one_may_collude_in_additive() -> None:
    for servers in (2, 3, 4):
        assert INSTALLED["additive"].threat_model(servers).colluding == servers - 1
