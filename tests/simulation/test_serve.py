"""`tally serve` against other sites, other hosts, hostile folders and forms."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="the extra `web` is not installed")

from tallyroom.protocols.errors import LocalError, RunFailed
from tallyroom.protocols.identity.certificates import Identity
from tallyroom.protocols.wire.messages import Role
from tallyroom.protos.identity_files import write_identity
from tallyroom.simulation import Federation
from tallyroom.simulation.runtimes import Progress
from tallyroom.simulation.runtimes.processes import Processes
from tallyroom.simulation.watch import at_work, is_running, watched
from tallyroom.simulation.web.folder import RunFolder
from tallyroom.simulation.web.form import arguments
from tests.conftest import COMMAND, Tally

TOKEN = "a-token-of-the-tests"


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("runs")
    (folder / "one").mkdir()
    (folder / "one" / "result.json").write_text('{"statistic": "mean", "estimate": 1.5}')
    (folder / "one" / "secret.txt").write_text("secret")
    (folder / "one" / "estimate.csv").symlink_to("/etc/passwd")
    (folder / "other").symlink_to("/etc")
    words = [*COMMAND, "serve", str(folder), "--port", "0", "--token", TOKEN]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    found = re.search(r":(\d+)/\?token=", process.stdout.readline())
    assert found is not None
    yield int(found[1])
    process.kill()
    process.wait()
    process.stdout.close()


def call(
    port: int, path: str, method: str = "GET", body: str | None = None, **headers: str
) -> tuple[int, str, dict[str, str]]:
    connection = HTTPConnection("127.0.0.1", port, timeout=20)
    named = {name.capitalize(): value for name, value in headers.items()}
    connection.request(method, path, body, named)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text, dict(answer.getheaders())


def cookie(port: int) -> str:
    return f"tallyroom-{port}={TOKEN}"


PATHS = [
    "/",
    "/api/catalogue",
    "/api/runs",
    "/api/events",
    "/files/one/result.json",
    "/static/app.js",
]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_shown_without_the_token(port: int, path: str) -> None:
    assert call(port, path)[0] == 403
    assert call(port, path, cookie=f"tallyroom-{port}=another")[0] == 403


def test_the_token_becomes_a_cookie_and_leaves_the_address(port: int) -> None:
    status, _, headers = call(port, f"/?token={TOKEN}")
    assert (status, headers["location"]) == (303, "/")
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=strict" in headers["set-cookie"]
    assert call(port, "/?token=wrong")[0] == 403
    status, text, headers = call(port, "/", cookie=cookie(port))
    assert (status, "<title>Tallyroom" in text) == (200, True)
    assert "script-src 'self'" in headers["content-security-policy"]


def test_a_name_that_points_here_is_not_believed(port: int) -> None:
    """DNS rebinding: another site's name that resolves to the loopback."""
    assert call(port, "/api/runs", cookie=cookie(port), host="evil.example")[0] == 400


@pytest.mark.parametrize("origin", ["", "http://evil.example", "null", "http://localhost:1"])
def test_other_sites_start_nothing(port: int, origin: str) -> None:
    body = '{"action": "run", "statistic": "mean"}'
    status, _, _ = call(port, "/api/runs", "POST", body, cookie=cookie(port), origin=origin)
    assert status == 403


def test_only_files_of_runs_are_given(port: int) -> None:
    mine = {"cookie": cookie(port)}
    assert call(port, "/files/one/result.json", **mine)[0] == 200
    for path in ("one/secret.txt", "one/estimate.csv", "other/passwd", "..%2fone/result.json"):
        assert call(port, f"/files/{path}", **mine)[0] == 404
    listed = json.loads(call(port, "/api/runs", **mine)[1])
    assert [each["name"] for each in listed] == ["one"]


@pytest.mark.parametrize(
    "body", ["", "[]", "{", "[" * 60000, '{"action": "rm"}', '{"action": "run", "statistic": "no"}']
)
def test_a_form_that_is_none_gets_one_line(port: int, body: str) -> None:
    own = {"cookie": cookie(port), "origin": f"http://127.0.0.1:{port}"}
    status, text, _ = call(port, "/api/runs", "POST", body, **own)
    assert status == 400
    assert set(json.loads(text)) == {"error"}
    assert call(port, "/api/runs", "POST", "x" * 70000, **own)[0] == 413


def test_a_form_gives_the_words_of_the_command() -> None:
    options = {"--epsilon": "2", "--fresh": True, "--aggregator": ["fss"], "--value": ""}
    asked = {"action": "run", "statistic": "ecdf", "options": options}
    words = ["run", "ecdf", "--epsilon=2", "--fresh", "--aggregator=fss"]
    assert arguments(asked, True) == words


@pytest.mark.parametrize(
    "options",
    [
        {"--out": "/tmp/x"},
        {"--coordinator": "a:1"},
        {"--policy": "/etc/passwd"},
        {"--runtime": ["inprocess", "docker"]},
        {"--epsilon": 1},
        {"--epsilon": "1" * 501},
        {"--epsilon": "1\0"},
        {"--aggregator": ["fss"] * 65},
        {"--fresh": "yes"},
        {"--data": "/etc/passwd"},
    ],
)
def test_a_form_has_no_other_words(options: dict[str, object]) -> None:
    with pytest.raises(LocalError):
        arguments({"action": "run", "statistic": "mean", "options": options}, False)


def test_no_file_is_read_for_another_machine() -> None:
    """Neither as the data, nor as public data to plan by."""
    options = {"--pilot": "/etc/passwd"}
    asked = {"action": "run", "statistic": "auc", "options": options}
    with pytest.raises(LocalError, match="--pilot must be one of the bundled"):
        arguments(asked, False)
    assert arguments(asked, True) == ["run", "auc", "--pilot=/etc/passwd"]
    options["--pilot"] = "synthetic:scores?n=50"
    assert arguments(asked, False)


def test_what_lies_in_a_folder_is_not_believed(tmp_path: Path) -> None:
    texts = {"a": "{", "b": "[]", "c": '{"federation": 3, "privacy": [], "receipts": 7}'}
    texts |= {"d": "[" * 100000, "e": '{"estimate": NaN, "receipts": [1, {}]}'}
    texts |= {"f": '{"epsilon": 1e999}', "g": r'{"statistic": "\ud800", "\udfff": 1}'}
    texts |= {"h": '{"a":' * 900 + "1" + "}" * 900, "i": '{"statistic": {"x": [1]}}'}
    texts |= {"j": json.dumps({"statistic": "x" * 10**6, "points": [0.5] * 10**5})}
    texts |= {"k": json.dumps({str(i): i for i in range(10**5)})}
    for name, text in texts.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "progress.json").write_text('{"state": "running"}')
    seen = {each.name: each for each in RunFolder(tmp_path).all()}
    assert set(seen) == {*texts, "deep"}
    assert seen["deep"].state == "failed"
    for each in seen.values():
        said = json.dumps(each.detail(), allow_nan=False, ensure_ascii=False).encode()
        assert len(said) < 10**5
        assert len(json.dumps(each.summary())) < 1000


def test_what_is_no_plain_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe would be waited for without end, a link would show a file from elsewhere."""
    secret = tmp_path / "secret"
    secret.write_text('{"statistic": "of somebody else"}')
    runs = tmp_path / "runs"
    for name in ("links", "pipes"):
        (runs / name).mkdir(parents=True)
        (runs / name / "job.json").write_text('{"statistic": "mean"}')
    for file in ("result.json", "job.log", "progress.json", ".running", "estimate.csv"):
        (runs / "links" / file).symlink_to(secret)
        os.mkfifo(runs / "pipes" / file)
    program = (
        "import json, sys; from pathlib import Path;"
        "from tallyroom.simulation.web.folder import RunFolder;"
        "print(json.dumps([each.detail() for each in RunFolder(Path(sys.argv[1])).all()]))"
    )
    words = [sys.executable, "-c", program, str(runs)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
    assert "somebody else" not in done.stdout
    for each in json.loads(done.stdout):
        assert (each["statistic"], each["state"], each["files"]) == ("mean", "failed", [])


def test_a_watched_run_tells_how_it_ends(tmp_path: Path) -> None:
    folder = tmp_path / "run"

    def a_run_that_fails() -> None:
        with watched(folder, {"statistic": "mean"}, lambda _: None) as report:
            assert not folder.exists()
            report(Progress("submit", 3, 3))
            assert is_running(folder)
            assert RunFolder(tmp_path).all()[0].state == "running"
            raise RunFailed("a server died")

    with pytest.raises(RunFailed):
        a_run_that_fails()
    assert not is_running(folder)
    (seen,) = RunFolder(tmp_path).all()
    assert (seen.state, seen.reason) == ("failed", "a server died")


def test_a_run_goes_on_until_its_files_are_written(tmp_path: Path) -> None:
    """Its answer may be there a while before its plots, and a comparison has several answers."""
    folder = tmp_path / "run"
    with at_work(folder):
        for _ in range(2):
            with watched(folder, {"statistic": "mean"}, lambda _: None) as report:
                report(Progress("submit", 3, 3))
            assert [each.state for each in RunFolder(tmp_path).all()] == ["running"]
        (folder / "result.json").write_text("{}")
    assert not (folder / ".running").exists()
    (seen,) = RunFolder(tmp_path).all()
    assert seen.state == "failed"  # an empty answer is none
    (folder / "result.json").write_text('{"statistic": "mean"}')
    assert [each.state for each in RunFolder(tmp_path).all()] == ["done"]


def test_parties_that_were_caught_are_shown_as_refused(tmp_path: Path) -> None:
    words = ["--aggregator", "prio3", "--parties", "5", "--cheat", "3:out-of-range"]
    program = [sys.executable, "-c", "from tallyroom.simulation.command.main import main; main()"]
    out = tmp_path / "run"
    subprocess.run(
        [*program, "run", "histogram", *words, "--out", str(out)], check=True, capture_output=True
    )
    (seen,) = RunFolder(tmp_path).all()
    assert seen.progress["states"] == [[1, 3], [2, 1], [1, 1]]
    assert seen.progress["standing"] == {"waiting": 0, "submitted": 4, "refused": 1, "gone": 0}
    # what somebody else wrote there changes nothing, and breaks nothing
    result = json.loads((out / "result.json").read_text())
    for caught in ([{"party": "party-99"}], [{"party": 3}], ["party-3"], {"a": 1}, [None], []):
        (out / "result.json").write_text(json.dumps(result | {"caught": caught}))
        (seen,) = RunFolder(tmp_path).all()
        assert seen.progress["states"] == [[1, 5]]
    (out / "result.json").write_text(json.dumps(result))
    progress = json.loads((out / "progress.json").read_text())
    for states in (
        [[1, 10**15], [1, 5 - 10**15]],
        [[1, 10**15]],
        [[1, -5]],
        [["x", 5]],
        [[1]],
        "abc",
        [[300, 5]],
        [],
    ):
        (out / "progress.json").write_text(json.dumps(progress | {"states": states}))
        (seen,) = RunFolder(tmp_path).all()
        assert seen.progress["states"] == states


def test_a_question_that_is_refused_leaves_no_folder(tally_here: Tally, tmp_path: Path) -> None:
    done = tally_here("run", "mean", "--lower", "3", "--upper", "1", "--out", str(tmp_path / "x"))
    assert (done.returncode, (tmp_path / "x").exists()) == (2, False)


def test_a_killed_run_is_not_taken_for_a_living_one(tmp_path: Path) -> None:
    program = (
        "import os, sys; from pathlib import Path; from tallyroom.simulation.watch import Watch;"
        "from tallyroom.simulation.runtimes import Progress;"
        "w = Watch(Path(sys.argv[1]), {}, lambda _: None); w.report(Progress('submit', 1, 1));"
        "os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "run")], check=False)
    (seen,) = RunFolder(tmp_path).all()
    assert (seen.state, "killed" in seen.reason) == ("failed", True)


def test_a_partys_token_is_not_taken_for_the_pages(
    tally_here: Tally, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page prints its token; that of a party, in the environment, lets somebody join as it."""
    monkeypatch.setenv("TALLY_TOKEN", "too-short")
    done = tally_here("serve", "--port", "70000")
    assert done.stderr == "tally: --port must be from 0 to 65535, not 70000\n"


def test_bad_options_get_one_line(tally_here: Tally, tmp_path: Path) -> None:
    for words in (["--token", "short"], ["--port", "70000"], ["--coordinator", "a:1"]):
        done = tally_here("serve", str(tmp_path / "runs"), *words)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not os.path.exists(tmp_path / "runs")


def told(port: int, wanted: str) -> dict[str, object]:
    """The first thing that the stream says of the federation with this in it."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/api/events", headers={"Cookie": cookie(port)})
    answer = connection.getresponse()
    try:
        for _ in range(400):
            line = answer.readline().decode()
            if line.startswith("event: federation"):
                said: dict[str, object] = json.loads(answer.readline().decode()[6:])
                if wanted in said:
                    return said
        raise AssertionError(f"nothing said {wanted}")
    finally:
        connection.close()


@pytest.mark.slow
def test_a_deployed_federation_is_only_looked_at(tmp_path: Path) -> None:
    """Real processes; then the coordinator dies, and the page goes on."""
    with Federation(3, runtime="processes") as federation:
        federation.start()
        runtime = federation.runtime
        assert isinstance(runtime, Processes)
        coordinator = runtime.listens("coordinator")
        write_identity(tmp_path / "analyst", runtime._credentials(Identity(Role.ANALYST)))
        place = ["--coordinator", coordinator, "--identity", str(tmp_path / "analyst")]
        words = ["serve", str(tmp_path / "runs"), "--port", "0", "--token", TOKEN, *place]
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)/\?token=", process.stdout.readline())
            assert found is not None
            port = int(found[1])
            said = told(port, "present")
            assert (said["parties"], said["servers"], said["records"]) == (3, 2, 2000)
            own = {"cookie": cookie(port), "origin": f"http://127.0.0.1:{port}"}
            body = '{"action": "run", "statistic": "mean"}'
            assert call(port, "/api/runs", "POST", body, **own)[0] == 403
            runtime.children["coordinator"].kill()
            assert "coordinator" in str(told(port, "away")["away"])
            assert call(port, "/api/runs", **own)[0] == 200
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()
