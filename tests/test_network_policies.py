"""Who reaches whom in the cluster, by what Kubernetes makes of the network policies.

A connection needs leave at both ends. A pod that some policy selects for a direction has what any
rule of these policies allows, and nothing else; a pod that none selects has everything.
"""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes"
Labels = dict[str, str]


class Pod(NamedTuple):
    """`labels` are None for whoever is not in the namespace."""

    name: str
    labels: Labels | None
    ports: dict[str, int]


STRANGER = Pod("a stranger", None, {"any": 4444})
ALL_PORTS = (4444, 7099, 7100, 7101, 9100)
WANTED = {
    ("party", "coordinator"): {7099, 7100},
    ("party", "server-0"): {7101},
    ("party", "server-1"): {7101},
    ("coordinator", "server-0"): {7101},
    ("coordinator", "server-1"): {7101},
    ("server-0", "server-1"): {7101},
    ("server-1", "server-0"): {7101},
    ("a stranger", "coordinator"): {7099, 7100, 9100},  # analysts, parties elsewhere; readers
    ("a stranger", "server-0"): {9100},
    ("a stranger", "server-1"): {9100},
}


def manifests(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def pods() -> list[Pod]:
    found = [STRANGER]
    for name in ("coordinator", "server-0", "server-1", "parties"):
        (stateful,) = (each for each in manifests(f"{name}.yaml") if each["kind"] == "StatefulSet")
        template = stateful["spec"]["template"]
        ports = template["spec"]["containers"][0].get("ports", [])
        named = {each["name"]: each["containerPort"] for each in ports}
        shown = "party" if name == "parties" else name
        found.append(Pod(shown, template["metadata"]["labels"], named))
    return found


POLICIES = manifests("network.yaml")


def selects(selector: dict[str, Any], labels: Labels) -> bool:
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    wanted: Labels = selector.get("matchLabels", {})
    alike = wanted.items() <= labels.items()
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In"
        alike = alike and labels.get(each["key"]) in each["values"]
    return alike


def matches(rule: dict[str, Any], way: str, other: Pod, served: Pod, port: int) -> bool:
    peers = rule.get(way)
    if peers is not None and not any(
        other.labels is not None
        and peer.keys() == {"podSelector"}  # of this namespace: others match no pod here
        and selects(peer["podSelector"], other.labels)
        for peer in peers
    ):
        return False
    ports = rule.get("ports")
    numbers = [served.ports.get(each["port"], each["port"]) for each in ports or []]
    return ports is None or port in numbers


def allowed(policies: list[dict[str, Any]], caller: Pod, called: Pod, port: int) -> bool:
    for pod, other, direction, way in (
        (caller, called, "Egress", "to"),
        (called, caller, "Ingress", "from"),
    ):
        if pod.labels is None:
            continue  # policies of this namespace are about its own pods
        specs = [each["spec"] for each in policies]
        ours = [
            spec
            for spec in specs
            if direction in spec["policyTypes"] and selects(spec["podSelector"], pod.labels)
        ]
        rules = [rule for spec in ours for rule in spec.get(direction.lower(), [])]
        if ours and not any(matches(rule, way, other, called, port) for rule in rules):
            return False
    return True


def reached(policies: list[dict[str, Any]]) -> dict[tuple[str, str], set[int]]:
    everybody = pods()
    return {
        (a.name, b.name): ports
        for a in everybody
        for b in everybody
        if (a is not b or a.name == "party") and not (a is STRANGER and b is STRANGER)
        if (ports := {port for port in ALL_PORTS if allowed(policies, a, b, port)})
    }


def test_pods_reach_whom_they_must_and_nobody_else() -> None:
    assert all(policy["kind"] == "NetworkPolicy" for policy in POLICIES)
    assert reached(POLICIES) == WANTED


@pytest.mark.parametrize("name", [each["metadata"]["name"] for each in POLICIES])
def test_no_policy_can_be_spared(name: str) -> None:
    """But that of names, which are asked outside, and the one that shuts all other pods."""
    without = [each for each in POLICIES if each["metadata"]["name"] != name]
    spared = name in ("all-ask-for-names", "nobody-calls-anybody")
    assert (reached(without) == WANTED) is spared


def test_a_pod_that_no_policy_names_is_shut() -> None:
    new = Pod("new", {"app": "new"}, {})
    assert not any(
        allowed(POLICIES, *pair, port)
        for other in pods()
        for pair in ((new, other), (other, new))
        for port in ALL_PORTS
    )
