"""`tally run STATISTIC` and `tally compare STATISTIC`: a command per statistic.

Each is built when it is asked for, from the options that the statistic tells, so that one from an
outside package has its command, its help and its messages too.
"""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand, TyperOption
from typer.exceptions import TyperException

from tallyroom.protocols import registry
from tallyroom.protocols.categories import format_categories, parse_categories
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.plans.groups import Division
from tallyroom.protocols.predicates import canonical, parse_condition
from tallyroom.protocols.registry import look_up
from tallyroom.protocols.statistics import Statistic, statistic_named, statistics
from tallyroom.protocols.statistics.bounded import Clipped
from tallyroom.protocols.statistics.contract import Piloted
from tallyroom.protocols.statistics.grouped import answers_for_groups
from tallyroom.protocols.studies.contract import BOUNDS_METHODS, BOUNDS_SHARE
from tallyroom.simulation.command.common import (
    GROUPS,
    LightGroup,
    parameters_of,
    read_lightly,
)

COMPARE = "compare-aggregators"
ELSEWHERE = {
    "--coordinator": "aggregators are compared in simulations; `tally run` asks a federation",
    "--resume": "--resume KEY asks nothing new: leave the statistic out",
    "--statistic": f"--statistic goes with `tally run {COMPARE}`",
}
"""Options of the command that do not go with a statistic, and why."""
_keyword = partial(inspect.Parameter, kind=inspect.Parameter.KEYWORD_ONLY, default=None)
_PREFIX, _EXTRA = "statistic_", "extra_"
BOUNDS = ("given", "private")
EXTRAS: Mapping[str, tuple[Any, str, str | None]] = {
    "pilot": (str, "PUBLIC data like yours, to choose the number of pairs from.", None),
    "where": (
        str,
        "Of the records that meet a condition alone, such as 'age >= 40 and sex = \"F\"'.",
        "<condition>",
    ),
    "by": (str, "For each group of records, by a column or several: sex,region.", "<column>"),
    "groups": (
        list[str],
        "COLUMN=NAME,NAME: the groups of a column, which are public; repeat for more.",
        "<column=names>",
    ),
    "schema": (
        str,
        "FILE with a line for each column, COLUMN=LOWER:UPPER or COLUMN=NAME,NAME, or the "
        "name of a published one: adult.",
        None,
    ),
    "bounds": (
        str,
        "Whether you give the bounds, or a share of ε is spent to find them. [default: given]",
        f"[{'|'.join(BOUNDS)}]",
    ),
    "bounds_share": (
        float,
        f"The share of ε that finds private bounds. [default: {BOUNDS_SHARE}]",
        None,
    ),
    "bounds_by": (
        str,
        "How private bounds are found: from noisy counts, or by two servers that show "
        f"nothing but an index. [default: {BOUNDS_METHODS[0]}]",
        f"[{'|'.join(BOUNDS_METHODS)}]",
    ),
}
"""Options that several statistics have, beside their own: type, help, and metavar."""
OF_A_SCHEMA = ("attributes", "ranges", "lower")
"""Options whose values a public schema tells."""


@dataclass(frozen=True)
class ChosenOptions:
    """A statistic or a study with the options that were given for it, and public data to plan by.

    `bounds_share` is the part of ε that finds the bounds, by the method `bounds_by`; None where
    they are given. `schema` is a public schema, by its file or its name. `where`, `by` and `groups`
    say what part of the records it is about.
    """

    kind: Any
    given: Mapping[str, object]
    pilot: str | None
    bounds_share: float | None = None
    bounds_by: str = "histogram"
    schema: str | None = None
    where: str = ""
    by: tuple[str, ...] = ()
    groups: Mapping[str, str] = field(default_factory=dict)

    @property
    def grouping(self) -> tuple[str, ...]:
        """The columns that decide which records it is about."""
        conditional = parse_condition(self.where).columns if self.where else ()
        return tuple(dict.fromkeys((*conditional, *self.by)))


Action = Callable[[ChosenOptions, Any], None]


class GroupedCommand(TyperCommand):
    """Its help has a section for each group of options; unknown options get the nearest known."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                group = getattr(parameter, "rich_help_panel", None) or "Other"
                sections.setdefault(group, []).append(record)
        own = [name for name in sections if name not in (*GROUPS, "Other")]
        for name in (*own, *GROUPS, "Other"):
            if name in sections:
                with formatter.section(name):
                    formatter.write_dl(sections[name])

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if (help_option := self.get_help_option(ctx)) is not None:
            read_lightly(help_option)
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            option = getattr(error, "option_name", None)
            if option is None or type(error).__name__ != "NoSuchOption":
                raise
            raise LocalError(ELSEWHERE.get(option) or self._unknown(ctx, option)) from None

    def _unknown(self, ctx: Any, option: str) -> str:
        """ "ecdf has no --bins; did you mean --thresholds?" """
        own: list[str] = []
        common: list[str] = []
        for each in self.get_params(ctx):
            if isinstance(each, TyperOption):
                (own if (each.name or "").startswith((_PREFIX, _EXTRA)) else common).extend(
                    each.opts
                )
        near = _misspelt(option, [*own, *common]) or _alike(option, self.name or "")
        if option in ("--where", "--by"):
            return f"{self.name} has no {option}: it is about all records"
        hint = f"did you mean {near[0]}?" if near else f"it has {', '.join(own)}"
        return f"{self.name} has no {option}; {hint}"


def _misspelt(flag: str, known: list[str]) -> list[str]:
    names = {each.lstrip("-"): each for each in known}
    return [names[near] for near in get_close_matches(flag.lstrip("-"), names, n=1, cutoff=0.7)]


def _alike(flag: str, name: str) -> list[str]:
    """What plays the part in this statistic that the flag has in another: alone of its kind, but
    for numbers that are 0 unless somebody says."""

    for other in statistics().values():
        for option in other.options():
            if option.flag == flag and option.kind is not str:
                wanted = (option.kind, option.multiple)
                own = kind_named(name).options()
                said = [each for each in own if each.default != 0 or each.kind is bool]
                alike = [each.flag for each in said if (each.kind, each.multiple) == wanted]
                return alike if len(alike) == 1 else []
    return []


def kind_named(name: str) -> Any:
    """A statistic or a study. Raises `LocalError` with the nearest names if there is neither."""
    studies = registry.registered(registry.STUDIES)
    if name in studies:
        return registry.named(registry.STUDIES, name)
    if name in registry.registered(registry.QUESTIONS):
        study = statistic_named(name).part_of
        raise LocalError(f"{name} is a question that {study} asks: ask for that")
    look_up("statistic", name, {**registry.registered(registry.STATISTICS), **studies})
    return statistic_named(name)


def statistic_command(name: str, options: type, action: Action) -> TyperCommand:
    """Raises `LocalError` for a statistic that is not there, or claims an option of all."""
    kind = kind_named(name)
    common = parameters_of(options)
    taken = set(map(attrgetter("name"), common))
    own, panel = [], f"Options of {name}"
    for option in kind.options():
        if option.flag[2:].replace("-", "_") in taken:
            raise LocalError(f"{name} cannot have an option {option.flag}: every question has it")
        own.append(_parameter(option, panel))
    for extra in _extras_of(kind):
        of, help, metavar = EXTRAS[extra]
        flag = f"--{extra.replace('_', '-')}"
        shown = typer.Option(flag, help=help, rich_help_panel=panel, metavar=metavar)
        own.append(_keyword(_EXTRA + extra, annotation=Annotated[of | None, shown]))
    parameters = [*own, *common]

    def command(**given: Any) -> None:
        chosen, extra = {}, {}
        for key in list(given):
            if not key.startswith((_PREFIX, _EXTRA)):
                continue
            value = given.pop(key)
            if key.startswith(_EXTRA):
                extra[key.removeprefix(_EXTRA)] = value
            elif value is not None:
                chosen[key.removeprefix(_PREFIX)] = value
        for option in kind.options():
            if option.choices and option.name in chosen:
                look_up(option.name, str(chosen[option.name]), dict.fromkeys(option.choices))
        action(_about(kind, chosen, **extra), options(**given))

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer's
    kinds = command.__annotations__
    for each in parameters:
        kinds[each.name] = each.annotation
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=GroupedCommand, help=kind.summary())(command)
    built = typer.main.get_command(app)
    assert isinstance(built, TyperCommand)
    for option in built.params:
        read_lightly(option, _kind_of(kinds.get(option.name or "")))
    return built


def _kind_of(annotation: Any) -> Any:
    """X of `Annotated[X | None, …]` and of `Annotated[X, …]`; None if there is no annotation."""
    if annotation is None:
        return None
    inner = get_args(annotation)[0]
    kinds = set(get_args(inner))
    return (kinds - {NoneType}).pop() if NoneType in kinds and len(kinds) == 2 else inner


def _extras_of(kind: Any) -> list[str]:
    """Which of `EXTRAS` a statistic or study has."""
    found = ["pilot"] if issubclass(kind, Piloted) else []
    if by_group := issubclass(kind, Statistic) and answers_for_groups(kind):
        found += ["where", "by", "groups"]
    if by_group or not {option.name for option in kind.options()}.isdisjoint(OF_A_SCHEMA):
        found.append("schema")
    if issubclass(kind, Clipped):
        found += ["bounds", "bounds_share", "bounds_by"]
    return found


def _about(
    kind: Any,
    chosen: Mapping[str, object],
    pilot: str | None = None,
    schema: str | None = None,
    where: str | None = None,
    by: str | None = None,
    groups: Sequence[str] | None = None,
    bounds: str | None = None,
    bounds_share: float | None = None,
    bounds_by: str | None = None,
) -> ChosenOptions:
    """What was chosen, with the options of `EXTRAS` read. Raises `LocalError`."""
    about = ChosenOptions(kind, chosen, pilot, schema=schema)
    if (bounds, bounds_share, bounds_by) != (None, None, None):
        share, method = _finding_bounds(bounds, bounds_share, bounds_by)
        about = replace(about, bounds_share=share, bounds_by=method)
    if where is not None:
        about = replace(about, where=canonical(where))
    if by is not None:
        about = replace(about, by=parse_categories(by))
    if groups:
        about = replace(about, groups=_groups_of(groups))
    for column in about.groups:
        if column not in about.by:
            raise LocalError(f"--by does not name {column}: give --by {column}")
    return about


def _groups_of(texts: Sequence[str]) -> dict[str, str]:
    """The names of groups by column. Raises `LocalError`."""
    told = list(map(Division.parse, texts))
    found = {each.column: format_categories(each.names) for each in told}
    if len(found) < len(told):
        raise LocalError("each column has one --groups")
    return found


def _finding_bounds(
    bounds: str | None, share: float | None, method: str | None
) -> tuple[float | None, str]:
    """What share of ε finds them, None where they are given, and how."""

    look_up("bounds", bounds or "given", dict.fromkeys(BOUNDS))
    look_up("bounds-by", method or BOUNDS_METHODS[0], dict.fromkeys(BOUNDS_METHODS))
    if bounds == "private":
        return BOUNDS_SHARE if share is None else share, method or BOUNDS_METHODS[0]
    for flag, given in (("--bounds-share", share), ("--bounds-by", method)):
        if given is not None:
            raise LocalError(f"{flag} is for bounds that are found: give --bounds private")
    return None, BOUNDS_METHODS[0]


def _parameter(option: Any, group: str) -> inspect.Parameter:
    """None stands for what was not given: the statistic has its own default, which help shows."""
    flag = f"{option.flag}/--no-{option.flag[2:]}" if option.kind is bool else option.flag
    help = option.help
    default = option.default
    if option.role:
        help += " [default: the data set's own]"
    elif option.multiple and default:
        help += f" [default: {', '.join(map(str, default))}]"
    elif isinstance(default, bool):
        help += f" [default: {flag.split('/')[0 if default else 1]}]"
    elif default not in (None, "", ()):
        help += f" [default: {default}]"
    metavar = None if option.kind is bool else f"<{option.kind.__name__}>"
    if option.choices:
        metavar = f"[{'|'.join(option.choices)}]"
    flags = (flag, f"--{option.former}") if option.former else (flag,)
    shown = typer.Option(*flags, help=help, rich_help_panel=group, metavar=metavar)
    kind: Any = list[option.kind] if option.multiple else option.kind
    return _keyword(_PREFIX + option.name, annotation=Annotated[kind | None, shown])


class StatisticGroup(LightGroup):
    """The commands of one action on statistics, which subclasses build."""

    def list_commands(self, ctx: Any) -> list[str]:

        groups = (registry.STATISTICS, registry.STUDIES)
        return list(dict.fromkeys(name for each in groups for name in registry.registered(each)))

    @abstractmethod
    def get_command(self, ctx: Any, cmd_name: str) -> TyperCommand:
        """Raises `LocalError` for a statistic that is not there."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str, TyperCommand, list[str]]:
        return args[0], self.get_command(ctx, args[0]), args[1:]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The summaries whole, without building a command for each."""

        for title, group in (
            ("Statistics", registry.STATISTICS),
            ("Studies, which ask several questions", registry.STUDIES),
        ):
            found = registry.loadable(group).items()
            if shown := [(name, k.summary()) for name, k in found if not getattr(k, "part_of", "")]:
                with formatter.section(title):
                    formatter.write_dl(shown)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except TyperException as error:
            option = getattr(error, "option_name", None)
            if option is None or type(error).__name__ != "NoSuchOption":
                raise
            command = f"tally {self.name}"
            raise LocalError(
                f"which statistic? options come after it: `{command} STATISTIC {option} …`; "
                f"`{command} --help` lists them"
            ) from None


def by_statistic(name: str, group: type[StatisticGroup]) -> typer.Typer:
    """`tally NAME STATISTIC`."""
    return typer.Typer(
        name=name,
        cls=group,
        invoke_without_command=True,
        subcommand_metavar="STATISTIC [OPTIONS]",
        epilog=f"`tally {name} STATISTIC --help` lists the options of one.",
    )


def need_statistic(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        raise LocalError(f"which statistic? `tally {context.command.name} --help` lists them")


def comparison_of(args: list[str]) -> tuple[str, list[str]]:
    """`compare-aggregators --statistic NAME …`: which statistic, and the other words."""
    rest, name = [], "histogram"
    words = iter(args)
    for word in words:
        flag, equals, value = word.partition("=")
        if flag != "--statistic":
            rest.append(word)
        elif equals:
            name = value
        else:
            name = next(words, "")
    return name, rest
