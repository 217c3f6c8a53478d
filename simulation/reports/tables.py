"""An answer's table and errors as text, for pages and terminals."""

from collections.abc import Sequence

from tallyroom.simulation.result import Result

Row = Sequence[float | str]


def texts(rows: Sequence[Row]) -> list[list[str]]:
    return [[cell if isinstance(cell, str) else f"{cell:.6g}" for cell in row] for row in rows]


def spread(rows: Sequence[Row], most: int) -> list[Row]:
    """All of them, or so many evenly spread, the first and the last among them."""
    if len(rows) <= most:
        return list(rows)
    return [rows[round(place * (len(rows) - 1) / (most - 1))] for place in range(most)]


def error_parts(result: Result) -> list[tuple[str, dict[str, float]]]:
    """What the noise did, and what the method did by itself, where that is known."""
    pairs = "pairs" in str(result.privacy.mechanism) or result.lost_pairs > 0
    method = "sampling of pairs and the grid" if pairs else "clipping and the grid"
    parts = [("by the noise", result.noise_error), (f"by {method}", result.method_error)]
    return [(name, part) for name, part in parts if part is not None]
