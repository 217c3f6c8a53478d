"""Options that every question has, in groups. Those of a statistic are its own to tell."""

import dataclasses
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict, get_type_hints

import typer
from typer.core import TyperGroup

from tallyroom.protocols.errors import LocalError


def option(group: str, help: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=help, rich_help_panel=group, **more)


Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DATA, FEDERATION, PRIVACY = "Data", "Federation", "Privacy"
OUTPUT, MISBEHAVIOUR, DEPLOYED = "Output", "Misbehaviour", "A running federation"
GROUPS = (DATA, FEDERATION, PRIVACY, OUTPUT, MISBEHAVIOUR, DEPLOYED)
"""In the order of the help, after the statistic's own."""


@dataclass(frozen=True)
class SimulationOptions:
    """What makes a simulated federation."""

    data: Annotated[
        str | None, option(DATA, "FILE.csv?value=COLUMN, or a bundled set: breast-cancer …")
    ] = None
    model: Annotated[
        str | None,
        option(
            DATA,
            "logistic: train it on half of FILE.csv?label=COLUMN, which is taken as public, and "
            "judge it on the other half.",
        ),
    ] = None
    parties: Annotated[
        int | None, option(FEDERATION, "Number of parties; 20 unless the data says.")
    ] = None
    servers: Annotated[
        int | None, option(FEDERATION, "Number of servers; as few as the aggregator needs.")
    ] = None
    runtime: Annotated[str, option(FEDERATION, "Where they run: see `tally list runtimes`.")] = (
        "inprocess"
    )
    hosts: Annotated[
        int | None, option(FEDERATION, "Number of processes that share the parties.")
    ] = None
    peer: Annotated[
        str | None,
        option(FEDERATION, "How parties reach each other, if they must: direct or relay."),
    ] = None
    network: Annotated[
        str | None,
        option(
            FEDERATION,
            "Emulate lan, wan, mobile or delay=40ms,rate=50mbit,loss=0.1%; by role: "
            "party=mobile,server=lan; with root, by real TCP: wan,by=namespaces.",
        ),
    ] = None
    seed: Annotated[
        int | None, option(FEDERATION, "Makes the run reproducible, hence not private.")
    ] = None
    cap: Annotated[
        str | None,
        option(
            PRIVACY,
            "The most that servers may release in total: ε; `3, delta = 1e-6`, added up in ρ; or "
            "`rho 0.1`.",
        ),
    ] = None
    cap_delta: Annotated[
        float | None, option(PRIVACY, "The most δ that servers may release in total.")
    ] = None
    policy: Annotated[
        Path | None,
        option(PRIVACY, "TOML file: what every party agrees to; anything, if left out."),
    ] = None
    dropout: Annotated[float, option(MISBEHAVIOUR, "Fraction of the parties that fall silent.")] = (
        0.0
    )
    drop_after: Annotated[
        int, option(MISBEHAVIOUR, "How many messages such a party still sends.")
    ] = 0
    cheat: Annotated[
        list[str] | None,
        option(
            MISBEHAVIOUR,
            "A party that cheats, as 3:out-of-range, 3:malformed or 3:garbled-weight; a server: "
            "server-0:no-noise; repeat for more.",
            metavar="<party:kind>",
        ),
    ] = None


@dataclass(frozen=True)
class QuestionOptions:
    """How a question is put, wherever."""

    epsilon: Annotated[
        str | None, option(PRIVACY, "Privacy budget ε, 1 if left out; inf adds no noise.")
    ] = None
    rho: Annotated[
        str | None,
        option(PRIVACY, "Privacy budget in ρ of zCDP instead, for --noise-law gaussian."),
    ] = None
    delta: Annotated[float, option(PRIVACY, "Privacy budget δ, for mechanisms that need it.")] = 0.0
    noise: Annotated[
        str | None,
        option(
            PRIVACY,
            "Who adds it: curator, each-server, joint, shared, shared?honest=H, parties; of pairs: "
            "total, per-pair.",
        ),
    ] = None
    noise_law: Annotated[
        str,
        option(
            PRIVACY,
            "Its law: see `tally list noise-laws`; auto takes the one of less error, and says why.",
            metavar="<name>",
        ),
    ] = "laplace"
    questions: Annotated[
        int,
        option(PRIVACY, "For --noise-law auto: how many questions like this you will ask."),
    ] = 1
    security: Annotated[
        str,
        option(
            PRIVACY,
            "How sure two servers are of what they compute together: semi-honest, covert or "
            "malicious.",
            metavar="<level>",
        ),
    ] = ""
    unit: Annotated[str, option(PRIVACY, "What is protected: a record, or a whole party.")] = (
        "record"
    )
    fresh: Annotated[
        bool,
        option(PRIVACY, "Draw new noise, and pay for it, instead of reusing.", "--fresh"),
    ] = False
    min_parties: Annotated[
        int | None, option(FEDERATION, "Least number of parties in the answer; all, if left out.")
    ] = None
    deadline: Annotated[float, option(FEDERATION, "Seconds to wait for parties.")] = 30.0
    interval: Annotated[
        str,
        option(
            OUTPUT,
            "What ± covers: noise, about these records; or population, with the sampling of the "
            "records added.",
            metavar="<noise|population>",
        ),
    ] = "noise"
    out: Annotated[
        Path | None, option(OUTPUT, "Folder for the result, its plots and a report.")
    ] = None
    as_json: Annotated[
        bool, option(OUTPUT, "Print one JSON object and nothing else.", "--json")
    ] = False

    @property
    def granted(self) -> str:
        """The budget as `PrivacyLoss.granted` reads it. Raises `LocalError`."""
        if self.rho is None:
            return "1" if self.epsilon is None else self.epsilon
        if self.epsilon is not None:
            raise LocalError("the privacy budget is given by --epsilon or by --rho, not by both")
        return f"rho {self.rho}"


class Asking(TypedDict):
    """What of them `run` of a federation takes, simulated or deployed, beside the question."""

    epsilon: str
    noise: str | None
    noise_law: str
    security: str
    questions: int
    unit: str
    min_parties: int | None
    deadline: float
    delta: float
    fresh: bool
    interval: str


def asking(options: QuestionOptions) -> Asking:
    return {
        "epsilon": options.granted,
        "noise": options.noise,
        "noise_law": options.noise_law,
        "security": options.security,
        "questions": options.questions,
        "unit": options.unit,
        "min_parties": options.min_parties,
        "deadline": options.deadline,
        "delta": options.delta,
        "fresh": options.fresh,
        "interval": options.interval,
    }


@dataclass(frozen=True)
class CompareOptions(QuestionOptions, SimulationOptions):
    """`tally compare`: always in simulations."""

    repeat: Annotated[
        int, option(OUTPUT, "Ask so many times, and tell the mean error and its spread.")
    ] = 1

    beside: Annotated[
        list[Path] | None,
        option(OUTPUT, "result.json of `tally meter`, to stand in the same table; repeat."),
    ] = None

    aggregator: Annotated[
        list[str] | None,
        option(
            FEDERATION,
            "One to compare, see `tally list aggregators`; repeat. All of them, if left out.",
            metavar="<name>",
        ),
    ] = None


@dataclass(frozen=True)
class RunOptions(QuestionOptions, SimulationOptions):
    """`tally run`: in a simulation, or asked of a federation that runs."""

    aggregator: Annotated[
        list[str] | None,
        option(
            FEDERATION,
            "How sums are computed, see `tally list aggregators`; additive, if left out.",
            metavar="<name>",
        ),
    ] = None
    coordinator: Annotated[
        str | None,
        option(DEPLOYED, "host:port: ask it, and simulate nothing.", envvar="TALLY_COORDINATOR"),
    ] = None
    identity: Annotated[
        Path | None,
        option(DEPLOYED, "Folder of the analyst's identity.", envvar="TALLY_IDENTITY"),
    ] = None
    key: Annotated[
        str | None, option(DEPLOYED, "A name for the question, to fetch its answer by later.")
    ] = None


def parameters_of(options: type) -> list[inspect.Parameter]:
    """The fields of such a dataclass, as a function that Typer reads would declare them."""
    hints = get_type_hints(options, include_extras=True)
    found, kind = [], inspect.Parameter.KEYWORD_ONLY
    for each in dataclasses.fields(options):
        hint = hints[each.name]
        found.append(inspect.Parameter(each.name, kind, default=each.default, annotation=hint))
    return found


def read_lightly(option: Any, kind: Any = None) -> None:
    """Reads options that were not given, and plain text and numbers, without pydantic.

    Typer has pydantic read every option, even those that were not given, and loading pydantic takes
    longer than many a question. Typer reads everything else, and words the errors.
    """
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
