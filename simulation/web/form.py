"""The form: the options of `tally run` and `tally compare` as those commands describe them."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from typer.core import TyperOption

from tallyroom.parties.data import BUNDLED
from tallyroom.protocols.aggregation import aggregator_names
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics import offered
from tallyroom.protocols.studies import studies
from tallyroom.simulation.command.by_statistic import kind_named, statistic_command
from tallyroom.simulation.command.common import DEPLOYED, OUTPUT, CompareOptions, RunOptions
from tallyroom.simulation.runtimes import runtimes

ACTIONS = {"run": RunOptions, "compare": CompareOptions}
NOT_OFFERED = frozenset({"policy", "model", "runtime", "hosts", "extra_schema"})
"""Options about files of this machine and places to run: the page has its own, or offers none."""
DATA_FLAGS = ("--data", "--pilot")
MOST_VALUES, MOST_CHARACTERS = 64, 500


@lru_cache(maxsize=256)
def options_of(action: str, statistic: str) -> tuple[dict[str, Any], ...]:
    """Returns flag, help, group, choices and kind of every option that the page offers.

    Raises `LocalError` for an unknown statistic.
    """
    command = statistic_command(statistic, ACTIONS[action], lambda *_: None)
    fields = []
    for each in command.params:
        if not isinstance(each, TyperOption) or each.name in ("help", *NOT_OFFERED):
            continue
        group = getattr(each, "rich_help_panel", None) or "Other"
        if group == DEPLOYED or (group == OUTPUT and each.name != "repeat"):
            continue
        flag = each.opts[0]
        fields.append(
            {
                "flag": flag,
                "off": each.secondary_opts[0] if each.secondary_opts else "",
                "label": flag.removeprefix("--").replace("-", " "),
                "help": each.help or "",
                "group": group,
                "switch": bool(each.is_flag),
                "many": bool(each.multiple),
                "choices": _choices(flag, each.metavar or ""),
                "default": "" if each.default in (None, False) else str(each.default),
            }
        )
    fields.append(
        {
            "flag": "--runtime",
            "off": "",
            "label": "runtime",
            "help": "Where the parties and servers run: see `tally list runtimes`.",
            "group": "Federation",
            "switch": False,
            "many": False,
            "choices": [name for name in runtimes() if name in ("inprocess", "processes")],
            "default": "inprocess",
        }
    )
    return tuple(fields)


def _choices(flag: str, metavar: str) -> list[str]:
    if flag == "--aggregator":
        return aggregator_names()
    if metavar.startswith("[") and metavar.endswith("]"):
        return metavar[1:-1].split("|")
    return []


def catalogue() -> list[dict[str, str]]:
    """Lists what can be asked, with a line on each."""
    kinds: dict[str, Any] = {**offered(), **studies()}
    return [{"name": name, "summary": kind.summary()} for name, kind in kinds.items()]


def arguments(asked: object, any_file: bool) -> list[str]:
    """Returns the command's arguments for a submitted form. Raises `LocalError`.

    Only flags of the form are accepted; `any_file` says whether data may be a file of this machine.
    """
    if not isinstance(asked, Mapping):
        raise LocalError("a form must be a JSON object")
    action, statistic = asked.get("action"), asked.get("statistic")
    if action not in ACTIONS or not isinstance(statistic, str) or len(statistic) > 60:
        raise LocalError("a form must name an action, run or compare, and a statistic")
    kind_named(statistic)
    known = {each["flag"]: each for each in options_of(str(action), statistic)}
    options = asked.get("options", {})
    if not isinstance(options, Mapping) or len(options) > len(known):
        raise LocalError("options must be a JSON object")
    words = [str(action), statistic]
    for flag, value in options.items():
        if flag not in known:
            raise LocalError(f"{statistic} has no option {str(flag)[:40]}")
        words += _words(known[flag], value)
    for flag in DATA_FLAGS:
        data = options.get(flag)
        if data and not any_file and str(data).partition("?")[0] not in BUNDLED:
            raise LocalError(f"from another machine, {flag} must be one of the bundled data sets")
    return words


def _words(option: Mapping[str, Any], value: object) -> list[str]:
    flag = option["flag"]
    if option["switch"]:
        if not isinstance(value, bool):
            raise LocalError(f"{flag} must be true or false")
        off = [option["off"]] if option["off"] else []
        return [flag] if value else off
    values = value if isinstance(value, list) else [value]
    if len(values) > (MOST_VALUES if option["many"] else 1):
        raise LocalError(f"{flag} is given too many times")
    for each in values:
        if not isinstance(each, str) or len(each) > MOST_CHARACTERS or "\0" in each:
            raise LocalError(f"{flag} must be a text of at most {MOST_CHARACTERS} characters")
    return [f"{flag}={each}" for each in values if each]
