"""What `deploy/` ships: compose files, units, alert rules and a dashboard, over what there is."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from prometheus_client import generate_latest

from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.descriptors import CONNECTION_BYTES, FOR_CONNECTIONS
from tallyroom.protos.identity_files import read_identity
from tallyroom.servers.coordinator_service import CoordinatorConfig, CoordinatorService
from tallyroom.servers.federation_folder import create_federation
from tallyroom.servers.metrics import Metrics
from tallyroom.simulation.command import coordinator, party, server

DEPLOY = Path(__file__).resolve().parents[1] / "deploy"
COMMANDS = {
    "server": server.commands,
    "coordinator": coordinator.commands,
    "party": party.commands,
}
MEGABYTE = 1 << 20


def options_of(role: str) -> set[str]:
    found = typer.main.get_command(COMMANDS[role])
    command = found.commands.get(role, found) if hasattr(found, "commands") else found
    return {name for parameter in command.params for name in parameter.opts}


def service(role: str) -> dict[str, Any]:
    loaded = yaml.safe_load((DEPLOY / "organisation" / f"{role}.yml").read_text())
    assert loaded["services"].keys() == {role}
    found: dict[str, Any] = loaded["services"][role]
    return found


@pytest.mark.parametrize("role", COMMANDS)
def test_a_compose_file_of_an_organisation_runs_one_closed_role(role: str) -> None:
    found = service(role)
    assert found["command"][:2] == ["tally", role]
    given = {word.partition("=")[0] for word in found["command"][2:]}
    assert given <= options_of(role)
    assert found["restart"] == "unless-stopped"  # survives a reboot
    assert found["image"].startswith("${TALLY_IMAGE:?")  # whatever runs was chosen, by its digest
    assert found["read_only"]
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    ports = [port.rpartition(":")[0] for port in found.get("ports", [])]
    assert (
        ports
        == {
            "server": ["7101", "127.0.0.1:9100"],
            "coordinator": ["7100", "7099", "127.0.0.1:9101"],
            "party": [],
        }[role]
    )


def test_one_machine_may_run_every_role() -> None:
    """Neither volumes nor ports are shared: two processes on one store would be refused."""
    files = [
        yaml.safe_load((DEPLOY / "organisation" / f"{role}.yml").read_text()) for role in COMMANDS
    ]
    assert len({each["name"] for each in files}) == len(files)
    ports = [
        port.rpartition(":")[0] for role in COMMANDS for port in service(role).get("ports", [])
    ]
    published = [port.rpartition(":")[2] for port in ports]
    assert len(set(published)) == len(published) == 5


@pytest.mark.parametrize("role", COMMANDS)
def test_connections_fit_into_the_limits_of_a_container(role: str) -> None:
    found = service(role)
    assert found["mem_limit"] == "1g"
    assert (
        found["ulimits"]["nofile"]["hard"] * CONNECTION_BYTES <= 1024 * MEGABYTE // FOR_CONNECTIONS
    )


@pytest.mark.parametrize("role", COMMANDS)
def test_a_unit_starts_its_role_with_options_that_there_are(role: str) -> None:
    text = (DEPLOY / "systemd" / f"tally-{role}.service").read_text()
    (command,) = re.findall(r"^ExecStart=((?:.*\\\n)*.*)$", text, re.M)
    words = command.replace("\\\n", " ").split()
    assert words[:2] == ["/opt/tally/bin/tally", role]
    assert {word for word in words if word.startswith("--")} <= options_of(role)
    for line in ("Restart=always", "RestartPreventExitStatus=2", "NoNewPrivileges=yes"):
        assert line in text.splitlines()


def test_units_share_no_folder_and_no_port() -> None:
    texts = [(DEPLOY / "systemd" / f"tally-{role}.service").read_text() for role in COMMANDS]
    for pattern in (
        r"^StateDirectory=(.*)$",
        r"(?:--store|--identity) (/var/lib/[\w-]+)",
        r":(9\d+)",
    ):
        found = [set(re.findall(pattern, text, re.M)) for text in texts]
        assert sum(map(len, found)) == len(set().union(*found)), pattern


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all that a coordinator serves, which has whatever a server has."""
    folder = tmp_path_factory.mktemp("room")
    create_federation(folder / "fed", 1, 1)
    credentials = read_identity(folder / "fed" / "coordinator", Role.COORDINATOR)

    async def scrape() -> str:
        metrics = Metrics(lambda: credentials)
        service = CoordinatorService(CoordinatorConfig(credentials, 1, ("127.0.0.1:1",)))
        service.watch(metrics)
        metrics.ended("answered")
        text = generate_latest(metrics._registry).decode()
        await service.close()
        return text

    text = asyncio.run(scrape())
    return set(re.findall(r"^(\w+)", text, re.M)) | set(re.findall(r"^# TYPE (\w+)", text, re.M))


def expressions() -> list[str]:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    alerts = [rule["expr"] for group in rules["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert len(alerts) >= 7
    assert len(panels) >= 12
    return alerts + panels


@pytest.mark.parametrize("expression", expressions())
def test_alerts_and_panels_ask_for_figures_that_there_are(
    expression: str, figures: set[str]
) -> None:
    named = set(re.findall(r"\b(?:tally|process)_\w+", expression))
    assert named
    known = figures | {f"{name}_bucket" for name in figures} | {f"{name}_total" for name in figures}
    assert named <= known
    assert expression.count("(") == expression.count(")")


def test_every_alert_says_what_is_wrong() -> None:
    rules = yaml.safe_load((DEPLOY / "monitoring" / "alerts.yaml").read_text())
    for group in rules["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"]
            assert rule["labels"]["severity"] in ("page", "ticket")


def test_panels_do_not_lie_on_each_other() -> None:
    board = json.loads((DEPLOY / "monitoring" / "dashboard.json").read_text())
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in board["panels"]]
    assert len(set(places)) == len(places)
    assert len({panel["id"] for panel in board["panels"]}) == len(places)
