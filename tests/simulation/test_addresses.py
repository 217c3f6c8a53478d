"""Every address of a process is checked before it starts, and named by its option."""

import pytest

from tallyroom.protocols.errors import LocalError
from tallyroom.simulation.command.process_options import check_calls, check_listens
from tests.e2e.deployed import tally

BAD = ["nonsense", "a.example:", ":7101", "a.example:seven", "a.example:70000", "a.example:-1"]


@pytest.mark.parametrize("address", BAD)
def test_a_bad_address_is_refused_by_the_name_of_its_option(address: str) -> None:
    with pytest.raises(LocalError, match="metrics"):
        check_listens(listen="0.0.0.0:7101", metrics=address)
    with pytest.raises(LocalError, match="coordinator"):
        check_calls(coordinator=address)


def test_any_port_will_do_to_listen_and_none_to_call() -> None:
    check_listens(listen="127.0.0.1:0", metrics=None)
    check_calls(coordinator="[::1]:7100", enrolment="")
    with pytest.raises(LocalError, match="no port"):
        check_calls(server="127.0.0.1:0")


@pytest.mark.parametrize(
    "command",
    [
        ("server", "--identity", "nowhere", "--listen", "nonsense"),
        ("coordinator", "--identity", "nowhere", "--server", "nonsense", "--parties", "2"),
        ("party", "--identity", "nowhere", "--coordinator", "nonsense", "--data", "nowhere"),
    ],
)
def test_commands_check_them_first(command: tuple[str, ...]) -> None:
    done = tally(*command)
    assert done.returncode == 2
    assert "'nonsense' is not host:port" in done.stderr
    assert len(done.stderr.splitlines()) == 1
