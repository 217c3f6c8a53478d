"""Writes what today's code answers to every case: `python -m tests.golden.make [NAME …]`.

A case is run with several seeds. What differs between them depends on drawn noise, or on which
pairs were drawn, and is written as `VARIES`: it is golden that it is there, not what it is.
"""

import hashlib
import json
import math
import sys
import warnings
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tallyroom
from tallyroom import Federation, Result, TallyError
from tests.golden.cases import FEW, SINGLE, TABLE, UNEVEN, Case, cases

GOLDEN = Path(__file__).parent / "golden.json"
VARIES = "~"
DIGITS = 10
SAME, NOTHING = 1e-8, 1e-9
"""Relative and absolute differences that arithmetic in another order may make."""
SEEDS = range(12)
MOST_NUMBERS = 64
LONG = 48
"""What takes more characters is written once."""
DATA = {"uneven": UNEVEN, "single": SINGLE, "few": FEW}


def tables(name: str) -> list[dict[str, Any]]:
    """A party's records each."""
    columns = {key: cells for key, cells in DATA[name].items() if key != "sizes"}
    ends = np.cumsum(DATA[name]["sizes"])
    begins = ends - DATA[name]["sizes"]
    return [
        {key: cells[begin:end] for key, cells in columns.items()}
        for begin, end in zip(begins, ends, strict=True)
    ]


def asked(case: Case, **options: Any) -> Any:
    question = getattr(tallyroom, case.kind)(**case.options | options)
    bounds = case.row.bounds
    return question if bounds is None else tallyroom.PrivateBounds(question, **bounds)


def run(case: Case, seed: int) -> dict[str, Any]:
    """What is golden of one run, or the refusal."""
    aggregator, _, _ = case.aggregator.partition("/")
    row = case.row
    try:
        with Federation(
            servers=case.servers, aggregator=aggregator, data=tables(row.data), hosts=1, seed=seed
        ) as federation:
            how: dict[str, Any] = {"noise": row.noise, "unit": row.unit, "delta": case.delta}
            if row.first is not None:
                federation.run(asked(case, **row.first), case.epsilon, **how)
            result = federation.run(asked(case), case.epsilon, **how)
    except TallyError as error:
        return {"refused": f"{type(error).__name__}: {error.args[0]}"}
    document: dict[str, Any] = json.loads(json.dumps(result.as_json()))
    found: dict[str, Any] = rounded(_exact(document, result) if case.exact else _noisy(document))
    return found


def _exact(document: dict[str, Any], result: Result) -> dict[str, Any]:
    return {
        "estimate": document["estimate"],
        "truth": document.get("truth"),
        "heads": result.table()[0],
        "privacy": document["privacy"],
        **_both(document),
        "questions": [_both(each) for each in document.get("questions", ())],
    }


def _noisy(document: dict[str, Any]) -> dict[str, Any]:
    return {
        "privacy": document["privacy"],
        "interval": _widths(document.get("interval")),
        "method_error": document.get("method_error"),
        **_both(document),
        "questions": [
            {
                "epsilon": each["epsilon"],
                "delta": each["delta"],
                "privacy": each["privacy"],
                "interval": _widths(each.get("interval")),
                **_both(each),
            }
            for each in document.get("questions", ())
        ],
    }


def _both(document: dict[str, Any]) -> dict[str, Any]:
    """Without the bytes of the query: its encoding may change."""
    bill = document["communication"]
    phases = {name: sent for name, sent in bill["phases"].items() if name != "query"}
    data = {name: said for name, said in document.get("data", {}).items() if name != "name"}
    return {
        "statistic": document["statistic"],
        "data": data,
        "reused": document.get("reused", False),
        "charged": [[each["epsilon"], each["delta"]] for each in document.get("receipts", ())],
        "aggregator": document["federation"]["aggregator"],
        "messages": bill["messages"],
        "rounds": bill["rounds"],
        "phases": {name: [sent["bytes"], sent["messages"]] for name, sent in phases.items()},
        "party": {
            name: sent["bytes"] for name, sent in bill["links"].items() if name.startswith("party")
        },
        "notes": document.get("notes", []),
    }


def _widths(interval: dict[str, Any] | None) -> dict[str, Any] | None:
    """Half of each width, also in standard errors, for errors that noise has a part in."""
    interval = interval and {name: each for name, each in interval.items() if name != "covers"}
    if interval is None or interval["low"] is None:
        return interval
    low, high, errors = (
        np.asarray(interval[name], dtype=float) for name in ("low", "high", "standard_error")
    )
    half = (high - low) / 2
    ratios = np.divide(half, errors, out=np.zeros_like(half), where=errors > 0)
    return interval | {"half_width": half.tolist(), "errors_wide": ratios.tolist()}


def _sums(numbers: NDArray[np.float64]) -> list[float]:
    """Two numbers that a change of any place moves."""
    return [float(numbers.sum()), float(numbers @ np.arange(len(numbers)))]


def rounded(found: Any) -> Any:
    """Numbers as they are written; of many, some and what they add up to."""
    if isinstance(found, float):
        return float(f"{found:.{DIGITS}g}") if np.isfinite(found) else str(found)
    if isinstance(found, list) and len(found) > MOST_NUMBERS and set(map(type, found)) == {float}:
        ends = [*found[:3], *found[-3:]]
        return rounded({"of": len(found), "ends": ends, "sums": _sums(np.asarray(found))})
    if isinstance(found, list):
        return [rounded(each) for each in found]
    if isinstance(found, dict):
        return {name: rounded(each) for name, each in found.items()}
    return found


def alike(one: Any, other: Any) -> bool:
    """Whether two leaves are the same, numbers within what arithmetic may do."""
    numbers = all(isinstance(each, int | float) for each in (one, other))
    if numbers and float in (type(one), type(other)):
        return math.isclose(one, other, rel_tol=SAME, abs_tol=NOTHING)
    return type(one) is type(other) and bool(one == other)


def stable(one: Any, other: Any) -> Any:
    """The part of two documents that is the same in both."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return {name: stable(one[name], other[name]) for name in one}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [stable(*both) for both in zip(one, other, strict=True)]
    return one if alike(one, other) else VARIES


def differences(golden: Any, found: Any, at: str = "") -> list[str]:
    """Fields that are not as they were, each with both."""
    if golden == VARIES:
        return []
    if isinstance(golden, dict) and isinstance(found, dict) and golden.keys() == found.keys():
        return [
            each
            for name in golden
            for each in differences(golden[name], found[name], f"{at}.{name}")
        ]
    if isinstance(golden, list) and isinstance(found, list) and len(golden) == len(found):
        both = enumerate(zip(golden, found, strict=True))
        return [each for i, (one, other) in both for each in differences(one, other, f"{at}[{i}]")]
    return [] if alike(golden, found) else [f"{at.lstrip('.')}: was {golden!r}, is {found!r}"]


def golden_of(case: Case) -> Any:
    """What all seeds agree on."""
    first, *others = (run(case, seed) for seed in SEEDS[: 6 if case.exact else None])
    for other in others:
        first = stable(first, other)
    for each in (first, *first.get("questions", ())):
        if isinstance(each, dict) and (interval := each.get("interval")):
            each["interval"] = _unclipped(interval)
    return first


def _unclipped(interval: dict[str, Any]) -> dict[str, Any]:
    """Without widths between ends that noise does not move: those are where the statistic ends.
    Nor are errors kept of which noise has moved any: others may have been at their largest."""
    if "half_width" not in interval:
        return interval
    errors = interval["standard_error"]
    if isinstance(errors, list) and VARIES in errors:
        errors = VARIES

    def free(low: Any, high: Any, error: Any, width: Any) -> Any:
        if isinstance(width, list):
            ways = [
                each if isinstance(each, list) else [each] * len(width)
                for each in (low, high, error)
            ]
            return [free(*place) for place in zip(*ways, width, strict=True)]
        return width if VARIES == low == high or error == width == 0 else VARIES

    of = interval["low"], interval["high"], errors
    kept = {name: free(*of, interval[name]) for name in ("half_width", "errors_wide")}
    return interval | kept | {"low": VARIES, "high": VARIES, "standard_error": errors}


def interned(found: Any, words: dict[str, Any]) -> Any:
    """With all that is long in `words`, under a name made of it."""
    if isinstance(found, list):
        found = [interned(each, words) for each in found]
    if isinstance(found, dict):
        found = {name: interned(each, words) for name, each in found.items()}
    if len(text := _json(found)) < LONG:
        return found
    name = "@" + hashlib.sha256(text.encode()).hexdigest()[:8]
    words[name] = found
    return name


def spelled(found: Any, words: dict[str, Any]) -> Any:
    """The reverse of `interned`."""
    if isinstance(found, str) and found.startswith("@"):
        word = words[found]
        return word if isinstance(word, str) else spelled(word, words)
    if isinstance(found, list):
        return [spelled(each, words) for each in found]
    if isinstance(found, dict):
        return {name: spelled(each, words) for name, each in found.items()}
    return found


def _json(found: Any) -> str:
    return json.dumps(found, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def read() -> dict[str, Any]:
    """What is golden, by the labels of cases."""
    document = json.loads(GOLDEN.read_text())
    return {label: spelled(found, document["words"]) for label, found in document["cases"].items()}


def write(found: dict[str, Any]) -> None:
    """A line for each case and each long value."""
    words: dict[str, Any] = {}
    kept = {
        label: {name: interned(part, words) for name, part in each.items()}
        for label, each in found.items()
    }

    def lines(table: dict[str, Any]) -> str:
        return ",\n".join(f"{_json(name)}: {_json(table[name])}" for name in sorted(table))

    GOLDEN.write_text(f'{{"cases": {{\n{lines(kept)}\n}},\n"words": {{\n{lines(words)}\n}}}}\n')


def _made(name: str) -> dict[str, Any]:
    return {case.label: golden_of(case) for case in cases(name)}


def main(names: list[str]) -> None:
    warnings.simplefilter("error")
    found = read() if names else {}
    found = {label: each for label, each in found.items() if label.split()[0] not in names}
    with Pool() as pool:
        for made in pool.imap_unordered(_made, names or TABLE):
            found |= made
    write(found)
    print(f"{len(found)} cases are in {GOLDEN}")


if __name__ == "__main__":
    main(sys.argv[1:])
