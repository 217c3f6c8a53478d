"""The manifests: valid, complete, and as closed as docs/deployment.md says."""

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[1] / "deploy" / "kubernetes"
DOCS = FOLDER.parents[1] / "docs" / "deployment.md"


def _kustomization() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    return loaded


def _manifests() -> list[dict[str, Any]]:
    return [
        manifest
        for name in _kustomization()["resources"]
        for manifest in yaml.safe_load_all((FOLDER / name).read_text())
    ]


def _pods() -> list[dict[str, Any]]:
    return [m["spec"]["template"]["spec"] for m in _manifests() if m["kind"] == "StatefulSet"]


def test_every_manifest_is_a_resource_of_the_kustomization() -> None:
    files = {path.name for path in FOLDER.glob("*.yaml")} - {"kustomization.yaml"}
    assert files == set(_kustomization()["resources"])


@pytest.mark.parametrize(
    "manifest", _manifests(), ids=lambda m: f"{m['kind']}-{m['metadata']['name']}"
)
def test_manifests_are_valid_strictly(manifest: dict[str, Any]) -> None:
    assert kubernetes_validate.validate(manifest, "1.31", strict=True) == "1.31"


def test_validation_refuses_what_kubernetes_does_not_know() -> None:
    namespace = {**_manifests()[0], "surplus": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(namespace, "1.31", strict=True)


def test_pods_are_closed() -> None:
    pods = _pods()
    assert len(pods) == 4
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        for container in [*pod["containers"], *pod.get("initContainers", [])]:
            closed = container["securityContext"]
            assert closed["readOnlyRootFilesystem"]
            assert not closed["allowPrivilegeEscalation"]
            assert closed["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_what_is_released_is_capped() -> None:
    keepers = [
        container
        for pod in _pods()
        for container in pod["containers"]
        if container["name"] in ("coordinator", "server")
    ]
    assert len(keepers) == 3
    for container in keepers:
        environment = {each["name"]: each["value"] for each in container["env"]}
        assert 0 < float(environment["TALLY_CAP"]) < 100
        assert 0 < float(environment["TALLY_CAP_DELTA"]) < 1e-3
        assert "--store=/store" in container["args"]


@pytest.mark.parametrize("name", ["docker-compose.yml", "compose.override.example.yml"])
def test_compose_has_a_cap_where_nobody_names_one(name: str) -> None:
    """An empty CAP must not answer without noise: `:-` stands for an empty one as well."""
    text = (FOLDER.parents[1] / name).read_text()
    assert text.count("TALLY_CAP: ${CAP:-10}") == 1
    assert text.count("TALLY_INSECURE: ${INSECURE:-0}") == 1
    assert "${CAP:-}" not in text


def test_who_listens_is_given_time_to_read_its_journal() -> None:
    """A liveness probe that began at once would kill a server that reads a long journal, again and
    again. Limits leave room for what the servers' memory is bounded by."""
    listening = [pod["containers"][0] for pod in _pods() if pod["containers"][0].get("ports")]
    assert len(listening) == 3
    for container in listening:
        startup, liveness = container["startupProbe"], container["livenessProbe"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 600
        assert startup["tcpSocket"] == liveness["tcpSocket"]
        assert container["readinessProbe"]["exec"]["command"][:2] == ["tally", "health"]
        assert container["resources"]["limits"]["memory"] in ("512Mi", "1Gi")


def test_pods_and_image_run_as_the_same_user_who_is_not_root() -> None:
    assert {pod["securityContext"]["runAsUser"] for pod in _pods()} == {10001}
    image = (FOLDER.parents[1] / "Dockerfile").read_text()
    assert re.search(r"^USER\s+10001\b|--uid[ =]10001\b", image, re.M)
    assert re.search(r"^USER\s+(?!root|0\b)", image, re.M)


def test_secrets_come_by_reference_and_each_is_explained() -> None:
    assert not [m for m in _manifests() if m["kind"] == "Secret"]
    names = {
        volume["secret"]["secretName"]
        for pod in _pods()
        for volume in pod["volumes"]
        if "secret" in volume
    }
    assert len(names) == 5
    text = DOCS.read_text()
    for name in names:
        assert name in text


def test_no_server_can_read_another_servers_key() -> None:
    for i in range(2):
        (_, stateful) = yaml.safe_load_all((FOLDER / f"server-{i}.yaml").read_text())
        volumes = stateful["spec"]["template"]["spec"]["volumes"]
        secrets = [v["secret"]["secretName"] for v in volumes if "secret" in v]
        assert secrets == [f"server-{i}-identity"]


def test_what_runs_is_chosen_by_its_digest() -> None:
    """The one that is shipped is of no image: who applies it unchanged runs nothing."""
    (image,) = _kustomization()["images"]
    assert image["name"] == "tallyroom"
    assert "newTag" not in image
    assert image["digest"] == "sha256:" + 64 * "0"
    containers = [
        container
        for pod in _pods()
        for container in pod["containers"] + pod.get("initContainers", [])
    ]
    assert {container["image"] for container in containers} == {"tallyroom"}  # and so replaced
    assert "kustomize edit set image tallyroom=" in DOCS.read_text()
