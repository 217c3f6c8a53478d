"""An answer's table and errors as text, for pages and terminals."""

from collections.abc import Sequence

from tallyroom.simulation.result import Result

Row = Sequence[float | str]


def words_of(column: str) -> str:
    """The name of a column as text: "party computing" for `party_computing_seconds`."""
    return column.removesuffix("_seconds").replace("_", " ")


def counted(number: object, one: str, several: str) -> str:
    """A number with its noun: "1 round", "12,000 messages"."""
    return f"{number:,} {one if number == 1 else several}"


def texts(rows: Sequence[Row]) -> list[list[str]]:
    return [[cell if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows]


def spread(rows: Sequence[Row], most: int) -> list[Row]:
    """Returns all rows, or `most` of them evenly spread, including the first and the last."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def error_parts(result: Result) -> list[tuple[str, dict[str, float]]]:
    """The error of the noise, and that of the method itself if it is known."""
    pairs = "pairs" in str(result.privacy.mechanism) or result.lost_pairs > 0
    method = "sampling of pairs and the grid" if pairs else "clipping and the grid"
    parts = [("by the noise", result.noise_error), (f"by {method}", result.method_error)]
    return [(name, part) for name, part in parts if part is not None]
