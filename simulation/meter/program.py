"""What is metered: a program of one or more roles, each a command that is started for each member.

```toml
name = "sum-of-three"
network = "wan"            # as `tally run --network`; none if left out

[[role]]
name = "party"
members = 3
command = ["{python}", "sum.py", "--hub={address:hub-0}:9000", "--me={index}"]

[[role]]
name = "hub"
as = "server"              # which column of a bill it is: party (the default), server, coordinator
command = ["./hub", "--listen", "{address}:9000"]
directory = "build"        # within that of the file
environment = { THREADS = "1" }
service = true             # it is stopped when all others have ended
after = 0.5                # seconds after the start

[limits]
seconds = 600
processes = 256
memory_mb = 4096
```

Commands are words, which no shell reads.
"""

import math
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.wire.messages import Role
from tallyroom.simulation.meter.box import BoxMember, Limits
from tallyroom.simulation.networks.network import ROLES, Network, network_of

MOST_BYTES = 1 << 20
MOST_MEMBERS = 1000
MOST_WORDS, LONGEST_WORD = 1000, 1 << 16
NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
PLACE = re.compile(r"\{([a-z]+)(?::([a-z0-9-]+))?\}")
KNOWN = ("name", "network", "role", "limits")
OF_A_ROLE = ("name", "as", "members", "command", "directory", "environment", "service", "after")
OF_LIMITS = ("seconds", "processes", "memory_mb")
PLACES = "{index}, {members}, {python}, {address} and {address:NAME-0}"


@dataclass(frozen=True)
class ProgramRole:
    name: str
    command: tuple[str, ...]
    role: Role = Role.PARTY
    members: int = 1
    directory: Path = Path()
    environment: dict[str, str] = field(default_factory=dict)
    service: bool = False
    after: float = 0.0

    def member(self, index: int) -> str:
        return f"{self.name}-{index}"


@dataclass(frozen=True)
class Program:
    """Without `apart`, all processes are of one command and share one loopback; its words are taken
    as they stand."""

    name: str
    roles: tuple[ProgramRole, ...]
    network: Network | None = None
    network_name: str = "none"
    limits: Limits = field(default_factory=Limits)
    apart: bool = True

    @property
    def members(self) -> dict[str, ProgramRole]:
        return {role.member(i): role for role in self.roles for i in range(role.members)}

    def started_at(
        self, addresses: Mapping[str, str], namespaces: Mapping[str, int]
    ) -> list[BoxMember]:
        """Each member with its words, where every name is the address that it has."""
        made = []
        for role in self.roles:
            for index in range(role.members):
                name = role.member(index)
                words = role.command
                if self.apart:
                    words = tuple(_filled(word, role, index, addresses) for word in words)
                environment = {
                    key: _filled(value, role, index, addresses)
                    for key, value in role.environment.items()
                }
                made.append(
                    BoxMember(
                        name=name,
                        command=words,
                        environment={**os.environ, **environment},
                        directory=str(role.directory.absolute()),
                        after=role.after,
                        service=role.service,
                        namespace=namespaces.get(name),
                    )
                )
        return sorted(made, key=lambda each: each.after)


def _filled(word: str, role: ProgramRole, index: int, addresses: Mapping[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        named = {
            "index": str(index),
            "members": str(role.members),
            "python": sys.executable,
            "address": addresses.get(match[2] or role.member(index)),
        }
        found = named.get(match[1])
        if found is None or (match[2] and match[1] != "address"):
            raise LocalError(f"nothing stands for {match[0]}; there are {PLACES}")
        return found

    return PLACE.sub(value, word)


def one_command(words: Sequence[str], limits: Limits) -> Program:
    name = re.sub(r"[^a-z0-9]+", "-", Path(words[0]).name.lower()).strip("-")[:30] or "command"
    return Program(name, (ProgramRole("program", tuple(words)),), limits=limits, apart=False)


def several(words: Sequence[str], members: int, network: str | None, limits: Limits) -> Program:
    """The same command for each of so many members, each with an address of its own."""
    if not 1 <= members <= MOST_MEMBERS:
        raise LocalError(f"--members is from 1 to {MOST_MEMBERS}, not {members}")
    role = ProgramRole("party", tuple(words), members=members)
    return _checked(Program(one_command(words, limits).name, (role,), limits=limits), network)


def read_program(path: Path, network: str | None, limits: Limits) -> Program:
    """`network` takes the place of the file's. Raises `LocalError` for anything but a program."""
    try:
        with path.open("rb") as file:
            source = file.read(MOST_BYTES + 1)
        if len(source) > MOST_BYTES:
            raise LocalError(f"{path} is larger than a specification may be")
        document = tomllib.loads(source.decode())
    except OSError as error:
        raise LocalError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LocalError(f"{path} is not TOML: {error}") from None
    return parse_program(document, path.parent, path.stem, network, limits)


def parse_program(
    document: Mapping[str, Any], folder: Path, name: str, network: str | None, limits: Limits
) -> Program:
    _only(document, KNOWN, "a metered program")
    given = document.get("role")
    if not isinstance(given, list) or not given:
        raise LocalError("a metered program has one [[role]] at least")
    roles = tuple(_role(each, folder) for each in given)
    if len({role.name for role in roles}) < len(roles):
        raise LocalError("two roles of one name")
    if sum(role.members for role in roles) > MOST_MEMBERS:
        raise LocalError(f"at most {MOST_MEMBERS} members in all")
    if all(role.service for role in roles):
        raise LocalError("all roles are services: nothing would ever end")
    named = document.get("name", re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-"))
    made = Program(_name(named, "name"), roles, limits=_limits(document.get("limits", {}), limits))
    chosen = network if network is not None else document.get("network")
    if chosen is not None and not isinstance(chosen, str):
        raise LocalError('network is text, such as "wan"')
    return _checked(made, chosen)


def _checked(program: Program, network: str | None) -> Program:
    """With its network; every word stands for something."""
    nowhere = dict.fromkeys(program.members, "")
    program.started_at(nowhere, {})
    if network in (None, "none"):
        return program
    assert network is not None
    return Program(
        program.name, program.roles, network_of(network), network, program.limits, program.apart
    )


def _role(table: object, folder: Path) -> ProgramRole:
    if not isinstance(table, dict):
        raise LocalError("[[role]] is a table")
    _only(table, OF_A_ROLE, "a role")
    name = _name(table.get("name"), "the name of a role")
    of = table.get("as", "party")
    if not isinstance(of, str) or of not in ROLES:
        raise LocalError(f"{name}: as is one of {', '.join(ROLES)}")
    service = table.get("service", False)
    if not isinstance(service, bool):
        raise LocalError(f"{name}: service is true or false")
    return ProgramRole(
        name=name,
        command=_words(table.get("command"), name),
        role=ROLES[of],
        members=_whole(table.get("members", 1), f"{name}: members", 1, MOST_MEMBERS),
        directory=_folder(table.get("directory", "."), folder, name),
        environment=_environment(table.get("environment", {}), name),
        service=service,
        after=_seconds(table.get("after", 0.0), f"{name}: after", 0.0),
    )


def _words(value: object, name: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(map(_is_word, value)):
        raise LocalError(f'{name}: command is a list of words, such as ["./party", "{{index}}"]')
    if len(value) > MOST_WORDS or not value[0]:
        raise LocalError(f"{name}: command has from 1 to {MOST_WORDS} words, the first not empty")
    return tuple(value)


def _is_word(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value and len(value) <= LONGEST_WORD


def _folder(value: object, folder: Path, name: str) -> Path:
    """Within the folder of the file, where a program keeps what it needs. What its command does is
    not confined to it: a specification is a program, and whoever runs it trusts it as one."""
    if not _is_word(value):
        raise LocalError(f"{name}: directory is a folder within that of the file")
    base = folder.resolve()
    wanted = (base / str(value)).resolve()
    if not wanted.is_relative_to(base) or not wanted.is_dir():
        raise LocalError(f"{name}: {str(value)[:60]!r} is no folder within that of the file")
    return wanted


def _environment(value: object, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or len(value) > MOST_WORDS:
        raise LocalError(f"{name}: environment is a table of texts")
    for key, text in value.items():
        if not _is_word(key) or not _is_word(text) or not key or "=" in key:
            raise LocalError(f"{name}: environment {str(key)[:30]!r} is no name with a text")
    return dict(value)


def _limits(table: object, other: Limits) -> Limits:
    """A file may ask for less than the command line allows, not for more."""
    if not isinstance(table, dict):
        raise LocalError("[limits] is a table")
    _only(table, OF_LIMITS, "[limits]")
    megabytes = _whole(table.get("memory_mb", other.memory >> 20), "memory_mb", 1, 1 << 30)
    return Limits(
        min(other.seconds, _seconds(table.get("seconds", other.seconds), "seconds", 0.001)),
        min(
            other.processes,
            _whole(table.get("processes", other.processes), "processes", 1, 1 << 22),
        ),
        min(other.memory, megabytes << 20),
    )


def _only(table: Mapping[str, Any], known: Sequence[str], what: str) -> None:
    for name in table:
        if name not in known:
            raise LocalError(f"{what} has no {name[:30]!r}; it has {', '.join(known)}")


def _name(value: object, what: str) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        shown = repr(value)[:40]
        raise LocalError(f"{what} is of small letters, digits and dashes, not {shown}")
    return value


def _whole(value: object, what: str, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise LocalError(f"{what} is a whole number from {least} to {most:,}, not {value!r}"[:120])
    return value


def _seconds(value: object, what: str, least: float) -> float:
    whole = isinstance(value, int | float) and not isinstance(value, bool)
    if not whole or not math.isfinite(value) or not least <= value <= 1e6:  # type: ignore[arg-type,operator]
        raise LocalError(f"{what} is a number of seconds, not {value!r}"[:120])
    return float(value)  # type: ignore[arg-type]
