"""How sure servers are of what they compute together, as a query says it."""

import json
from fractions import Fraction

import pytest

from tallyroom.protocols.errors import LocalError, PeerError
from tallyroom.protocols.joint.levels import Level, Security, parse_security
from tallyroom.protocols.privacy.mechanisms import Placement
from tallyroom.protocols.query import Query, decode_query, run_name
from tallyroom.protocols.run.promise import promise_of
from tallyroom.protocols.statistics.choices import Mode
from tallyroom.protocols.statistics.of_pairs import Gini
from tests.samples import a_query

LEVELS = ("semi-honest", "covert", "covert?circuits=3", "malicious")
MODE = Mode(lower=0.0, upper=1.0, bins=4)
PAIRS = Gini(lower=0.0, upper=1.0, meet="servers")


def joint(security: str = "", **changes: object) -> Query:
    asked = {"noise": Placement.JOINT, "epsilon": Fraction(1), "security": security}
    return a_query(**{**asked, **changes})


@pytest.mark.parametrize("level", LEVELS)
def test_it_crosses_the_wire_and_is_part_of_what_is_asked(level: str) -> None:
    query = joint(level)
    assert decode_query(query.run, query.encode(), "coordinator") == query
    assert query.run != joint().run
    assert query.stream != joint().stream
    assert query.release != joint().release
    assert str(parse_security(level)) == level


def test_nobody_who_says_nothing_asks_anything_else_than_before() -> None:
    assert "security" not in json.loads(joint().encode())
    assert joint().secured_noise == Security(Level.MALICIOUS)


@pytest.mark.parametrize(
    "text",
    ["perfect", "covert?circuits=2", "covert?circuits=1", "covert?circuits=9", "covert?", " ",
     "Covert", "malicious?circuits=3", "covert?circuits=99999999999"],
)  # fmt: skip
def test_a_level_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(LocalError, match=r"security is|covert security opens"):
        joint(text)


@pytest.mark.parametrize("level", [None, 1, True, ["covert"], {"level": "covert"}, 0.5])
def test_a_peer_cannot_say_another_thing_for_a_level(level: object) -> None:
    said = json.loads(joint("covert").encode()) | {"security": level}
    data = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(PeerError):
        decode_query(run_name(joint().nonce, data), data, "coordinator")


def test_what_is_left_out_has_one_encoding() -> None:
    said = json.loads(joint().encode()) | {"security": ""}
    data = json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(PeerError, match="canonical"):
        decode_query(run_name(joint().nonce, data), data, "coordinator")


@pytest.mark.parametrize("level", LEVELS)
def test_servers_that_garble_nothing_are_not_said_to_be_sure_of_it(level: str) -> None:
    with pytest.raises(LocalError, match="leave --security out, or take --noise joint"):
        a_query(security=level)


@pytest.mark.parametrize(
    ("security", "statistic", "weakest"),
    [
        ("", None, Level.MALICIOUS),
        ("", MODE, Level.MALICIOUS),
        ("", PAIRS, Level.SEMI_HONEST),
        ("covert", None, Level.COVERT),
        ("covert", MODE, Level.COVERT),
        ("malicious", PAIRS, Level.MALICIOUS),
        ("semi-honest", MODE, Level.SEMI_HONEST),
    ],
)
def test_the_weakest_part_is_what_counts(
    security: str, statistic: Mode | Gini | None, weakest: Level
) -> None:
    changes = {} if statistic is None else {"statistic": statistic}
    assert joint(security, **changes).weakest_level is weakest
    assert a_query().weakest_level is None


def test_an_answer_says_whom_one_has_to_trust() -> None:
    def model(security: str, **changes: object) -> str:
        return promise_of(joint(security, **changes)).threat_model

    assert "ends the run, unless it guesses" in model("")
    assert model("") == model("malicious")
    assert "not noticed in one of 2 cases, and else proved to have lied" in model("covert")
    assert "in one of 3 cases" in model("covert?circuits=3")
    assert "server-0 can leave the noise out" in model("semi-honest")
    assert "garbled by either once and compared" in model("", statistic=MODE)
    assert "server-0 chooses what is opened" in model("semi-honest", statistic=MODE)
    assert "is not checked" in model("", statistic=PAIRS)
    assert "is not checked" not in model("malicious", statistic=PAIRS)
