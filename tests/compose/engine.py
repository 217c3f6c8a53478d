"""A docker engine for the compose test: the one that is there, or one of our own from Debian's
packages, with images built from Debian alone. Whatever is started here is stopped here."""

import configparser
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PACKAGES = ("docker.io", "docker-compose", "iptables", "mmdebstrap")
BASES = {
    "python:3.11-slim": "python3,python3-venv,ca-certificates",
    "python:3.11": "python3,python3-venv,python3-dev,gcc,libc6-dev,ca-certificates",
}
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy")


class NoEngine(Exception):  # noqa: N818 - a reason to skip, not a mistake
    """Why there can be no engine here."""


def say(text: str) -> None:
    print(f"compose-test: {text}", flush=True)


def output(command: list[str], environment: dict[str, str], seconds: float = 900) -> str:
    """Standard output. Raises `SystemExit` with what the command said if it fails."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=seconds, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    return done.stdout


def succeeds(command: list[str], environment: dict[str, str]) -> bool:
    try:
        return (
            subprocess.run(
                command, capture_output=True, env=environment, timeout=60, check=False
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


@contextmanager
def engine(work: Path) -> Iterator[dict[str, str]]:
    """An environment in which `docker` reaches an engine. Raises `NoEngine`."""
    environment = dict(os.environ)
    if succeeds(["docker", "info"], environment):
        say("using the engine that is here")
        yield _with_builder(environment)
        return
    _install()
    environment = _with_builder(environment)
    with _own_engine(work, environment) as ours:
        for tag, packages in BASES.items():
            _import_base(tag, packages, work, ours)
        yield ours


def _install() -> None:
    if os.geteuid() != 0:
        raise NoEngine("no engine answers, and only root can start one")
    if all(shutil.which(name) for name in ("dockerd", "docker-compose", "iptables", "mmdebstrap")):
        return
    if shutil.which("apt-get") is None:
        raise NoEngine("no engine answers, and there is no apt-get to install one with")
    say(f"installing {', '.join(PACKAGES)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES],
    ):
        if subprocess.run(command, capture_output=True, env=environment, check=False).returncode:
            raise NoEngine(f"no engine answers, and `{' '.join(command)}` failed")


def _with_builder(environment: dict[str, str]) -> dict[str, str]:
    """Puts a docker command first that can build with secrets: with buildx, or older than 23."""
    for folder in environment.get("PATH", "").split(os.pathsep):
        command = Path(folder) / "docker"
        if not os.access(command, os.X_OK):
            continue
        version = re.search(r"version (\d+)\.", output([str(command), "--version"], environment))
        modern = succeeds([str(command), "buildx", "version"], environment)
        if modern or (version and int(version[1]) < 23):
            path = f"{folder}{os.pathsep}{environment['PATH']}"
            return {**environment, "PATH": path, "DOCKER_BUILDKIT": "1"}
    raise NoEngine("no docker command here can build with secrets: install buildx")


@contextmanager
def _own_engine(work: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    socket = work / "docker.sock"
    had_bridge = Path("/sys/class/net/docker0").exists()
    log = (work / "dockerd.log").open("wb")
    # The host's packet filter stays as it is: containers talk to each other, builds use the host's
    # network, and nothing is published.
    daemon = subprocess.Popen(
        [
            *("dockerd", "--iptables=false", "--ip6tables=false", "-H", f"unix://{socket}"),
            *("--data-root", str(work / "data"), "--exec-root", str(work / "exec")),
            *("--pidfile", str(work / "docker.pid")),
        ],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=environment,
    )
    ours = {**environment, "DOCKER_HOST": f"unix://{socket}"}
    try:
        deadline = time.monotonic() + 60
        while not succeeds(["docker", "info"], ours):
            if daemon.poll() is not None or time.monotonic() > deadline:
                last = (work / "dockerd.log").read_text(errors="replace").splitlines()[-1:]
                raise NoEngine(f"dockerd does not start here: {' '.join(last)}")
            time.sleep(0.5)
        say("started an engine of our own")
        yield ours
    finally:
        daemon.terminate()
        try:
            daemon.wait(60)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
        log.close()
        if not had_bridge and shutil.which("ip"):
            subprocess.run(["ip", "link", "delete", "docker0"], capture_output=True, check=False)
        say("stopped the engine")


def _import_base(tag: str, packages: str, work: Path, environment: dict[str, str]) -> None:
    """The base image from Debian's packages, where no registry can be reached."""
    if succeeds(["docker", "pull", "--quiet", tag], environment):
        return
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "bookworm")
    say(f"no registry: making {tag} from Debian {release}")
    archive = work / "base.tar"
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={packages}"]
    output([*command, release, str(archive)], environment)
    output(["docker", "import", str(archive), tag], environment)
    archive.unlink()


def build_secrets(work: Path) -> list[str]:
    """What pip needs to know on this machine, for one step of the build and no layer."""
    options: list[str] = []
    bundle = os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE")
    bundle = bundle or "/etc/ssl/certs/ca-certificates.crt"
    if Path(bundle).is_file():
        options += ["--secret", f"id=ca_bundle,src={bundle}"]
    settings = configparser.RawConfigParser()
    settings["global"] = {}
    listed = subprocess.run(
        ["python3", "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    for key, value in re.findall(r"^(?:global|:env:)\.([\w-]*index-url)='(.*)'$", listed, re.M):
        if value.startswith("http"):
            settings["global"][key] = value
    configuration = work / "pip.conf"
    with configuration.open("w") as file:
        settings.write(file)
    configuration.chmod(0o600)
    options += ["--secret", f"id=pip_conf,src={configuration}"]
    for name in PROXIES:
        if name in os.environ:
            options += ["--build-arg", name]
    return options
