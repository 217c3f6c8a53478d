"""Options that are read without pydantic.

Typer has pydantic read every option, also one that was not given, and loading it takes longer than
many a question does. What needs no more than Python is read here; all else, and the words for what
is wrong, are Typer's as before.
"""

from typing import Any

from typer.core import TyperGroup


def read_lightly(option: Any, kind: Any = None) -> None:
    """What was not given, and plain text and numbers of an option of this kind."""
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
    """A group of commands that reads its own options so."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for option in self.get_params(ctx):
            read_lightly(option)
        return super().parse_args(ctx, args)
