"""Reads simple options without pydantic.

Typer has pydantic read every option, even those that were not given, and loading pydantic takes
longer than many a question. Text and plain numbers are read here; Typer reads everything else, and
words the errors.
"""

from typing import Any

from typer.core import TyperGroup


def read_lightly(option: Any, kind: Any = None) -> None:
    """Reads options that were not given, and plain text and numbers, without pydantic."""
    process = option.process_value

    def read(ctx: Any, value: Any) -> Any:
        if value is None:
            value = () if option.multiple else None
        elif kind in (str, int, float) and isinstance(value, str | int | float):
            try:
                value = kind(value)
            except ValueError:
                return process(ctx, value)
        else:
            return process(ctx, value)
        return value if option.callback is None else option.callback(ctx, option, value)

    if not option.required:
        option.process_value = read


class LightGroup(TyperGroup):
    """A group of commands that reads its own options in this way."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.get_params(ctx):
            read_lightly(option)
        return super().parse_args(ctx, args)
