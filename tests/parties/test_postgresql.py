"""A PostgreSQL database of our own: read as a file of the same cells is, and never written."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tallyroom.parties.data import held, load
from tallyroom.protocols.errors import LocalError

psycopg = pytest.importorskip("psycopg", reason="PostgreSQL is an optional source")

TOOLS = shutil.which("initdb") or next(
    (str(each) for each in sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None
)
PEOPLE = """
create table people (id int, age numeric, pay float8, sex text, day date, well bool);
insert into people values (1, 40, 1.5, 'F', '2024-02-29', true), (2, 39.5, null, 'M', null, false),
    (3, -1, 'nan', null, '2023-01-01', null);
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where the server is: a socket in a folder of its own, without a port."""
    if TOOLS is None:
        pytest.skip("PostgreSQL is not installed")
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    tools, data = Path(TOOLS).parent, folder / "data"
    become = []
    if os.geteuid() == 0:  # the server does not start as root
        if not shutil.which("runuser") or subprocess.run(["id", "postgres"]).returncode:
            pytest.skip("PostgreSQL does not run as root, and there is no other user")
        shutil.chown(folder, "postgres")
        become = ["runuser", "-u", "postgres", "--"]
    started = [*become, str(tools / "pg_ctl"), "-D", str(data), "-w", "-l", str(folder / "log")]
    options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off"
    create = [*become, str(tools / "initdb"), "-D", str(data), "-U", "owner", "-A", "trust"]
    try:
        subprocess.run([*create, "--no-sync"], check=True, capture_output=True, timeout=60)
        subprocess.run(
            [*started, "-o", options, "start"], check=True, stdout=subprocess.DEVNULL, timeout=60
        )
        found = f"postgresql://owner@/postgres?host={folder}"
        with psycopg.connect(found) as database:
            database.execute(PEOPLE)
        os.environ["PGHOST"] = str(folder)
        yield "postgresql://owner@/postgres"
    except subprocess.SubprocessError:
        pytest.skip("PostgreSQL does not start here")
    finally:
        os.environ.pop("PGHOST", None)
        subprocess.run([*started, "-m", "immediate", "stop"], capture_output=True, timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def test_it_is_read_as_the_same_cells_of_a_file(address: str, tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text(
        "id,age,pay,sex,day,well\n1,40,1.5,F,2024-02-29,true\n2,39.5,,M,,false\n3,-1,,,2023-01-01,\n"
    )
    found = held(f"{address}?query=select * from people order by id")
    expected = held(str(path))
    assert found.columns.keys() == expected.columns.keys()
    for name, column in found.columns.items():
        assert column.tobytes() == expected.columns[name].tobytes(), name
    assert load(f"{address}?query=select age from people&value=age").roles == {"value": "age"}


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "which records"),
        ("selec 1", "syntax error"),
        ("select * from nobody", "does not exist"),
        ("select * from people where id > 9", "no records"),
        ("select age, age from people", "same name"),
        ("delete from people", "read-only transaction"),
        ("drop table people", "read-only transaction"),
        ("insert into people (id) values (9) returning id", "read-only transaction"),
        ("commit; delete from people", "multiple commands"),
        ("set transaction read write", "no records"),
    ],
)
def test_what_is_no_reading_is_refused(address: str, query: str, words: str) -> None:
    with pytest.raises(LocalError, match=words) as refused:
        load(f"{address}?query={query.replace(';', '%3B')}")
    assert "\n" not in str(refused.value)
    with psycopg.connect(address) as database:
        assert database.execute("select count(*) from people").fetchall() == [(3,)]


def test_a_password_is_for_no_result(address: str) -> None:
    with pytest.raises(LocalError, match="leave the password out"):
        load("postgresql://owner:secret@/postgres?query=select 1")
    with pytest.raises(LocalError, match="does not answer"):
        load("postgresql://nobody@/nowhere?query=select 1")
