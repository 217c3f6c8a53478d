"""Public schemas: files that tell of columns, and loaders that know what a publisher says."""

import time
from pathlib import Path

import pytest

from tallyroom.parties.data import load
from tallyroom.parties.schema import PUBLISHED, merged, read_schema
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.attributes import parse_schema
from tallyroom.simulation.federation import Federation

HEADER = ",".join(text.partition("=")[0] for text in PUBLISHED["adult"])
ONE = "39,State-gov,77516,Bachelors,13,Divorced,Sales,Wife,White,Male,0,0,40,Cuba,<=50K"
OTHER = "95,?,9,Diploma,1,Single,None,Aunt,Blue,X,1,1,1,Mars,50K"


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "columns.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_lines_are_attributes_as_options_have_them(tmp_path: Path) -> None:
    text = '\ufeff# people\n\nage=17:90\r\n  sex = Female,Male \njob="a, b",c=d\n#x=1:2\n'
    found = read_schema(written(tmp_path, text))
    assert found == ("age=17:90", "sex=Female,Male", 'job="a, b",c=d')
    predictors, target = parse_schema(found, "job")
    assert target.names == ("a, b", "c=d")
    assert [each.name for each in predictors] == ["age", "sex"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "lists no column"),
        ("# nothing\n\n", "lists no column"),
        ("a=0:1\nb\n", "line 2: an attribute is COLUMN=LOWER:UPPER"),
        ("a=0:1\n=0:1\n", "line 2: an attribute is"),
        ("a=\n", "line 1: an attribute is"),
        ("a=0:1\nb=0:1\na=2:3\n", "line 3: 'a' is listed twice"),
        ("a=nan:1\n", "line 1: attribute a: nan must be below 1, both finite"),
        ("a=0:inf\n", "both finite"),
        ("a=2:1\n", "2 must be below 1"),
        ("a=x,y,x\n", "line 1: the category 'x' is listed twice"),
        ("a=x,,y\n", "line 1: categories are names"),
        (b"a=caf\xe9,b\n", "it is not UTF-8"),
        (b"\xff\xfea\x00", "it is not UTF-8"),
        ("".join(f"c{at}=0:1\n" for at in range(10**6)), "more than 256 attributes"),
        ("#\n" * 10**7, "larger than a schema may be"),
    ],
)
def test_a_bad_file_is_one_clear_line(tmp_path: Path, text: str | bytes, words: str) -> None:
    source = written(tmp_path, text)
    begun = time.perf_counter()
    with pytest.raises(LocalError, match=words) as refused:
        read_schema(source)
    assert "\n" not in str(refused.value)
    assert time.perf_counter() - begun < 5


def test_what_is_no_file_is_one_clear_line(tmp_path: Path) -> None:
    for source, words in (
        (str(tmp_path), "Is a directory"),
        (str(tmp_path / "none"), "No such file or directory; known by name: adult"),
        ("adlut", "known by name: adult"),
        ("a\0b", "cannot read the schema"),
        ("x" * 5000, "File name too long"),
    ):
        with pytest.raises(LocalError, match=words):
            read_schema(source)


def test_what_is_given_counts_before_the_schema() -> None:
    assert merged(("a=0:1", "b=0:1"), ("a=0:9", "c=x")) == ("b=0:1", "a=0:9", "c=x")


def test_a_published_schema_does_not_depend_on_the_records(tmp_path: Path) -> None:
    """Records of which everything is outside leave the schema, bounds and names as they are."""
    found = []
    for name, line in (("one", ONE), ("other", OTHER)):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"{HEADER},split\n{line},train\n" * 1)
        data = load(f"adult:{path}")
        assert any("published schema of adult: public" in note for note in data.notes)
        found.append((data.schema, data.bounds, data.categories))
    assert found[0] == found[1]
    assert found[0][0] == PUBLISHED["adult"] == read_schema("adult")
    assert found[0][1]["age"] == (17.0, 90.0)


def test_published_schemas_are_schemas() -> None:
    for schema in PUBLISHED.values():
        predictors, target = parse_schema(schema, schema[-1].partition("=")[0])
        assert len(predictors) == 14
        assert target.names == (">50K", "<=50K")


def test_a_public_file_with_other_columns_is_told(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("p,q\n1,2\n")
    with pytest.raises(LocalError, match="none of the columns of adult"):
        load(f"adult:{path}")
    path.write_text("age,sex\nold,Male\n")
    with pytest.raises(LocalError, match="line 2: column 'age' has 'old', not a number"):
        load(f"adult:{path}")
    path.write_text("age,sex\n40,Male\n")
    assert load(f"adult:{path}").schema == ("age=17:90", "sex=Female,Male")
    with pytest.raises(LocalError, match="No such file"):
        load(f"adult:{tmp_path / 'none.csv'}")


def test_a_target_is_read_with_the_columns_that_predict_it(tmp_path: Path) -> None:
    """It may be of names, and blanks elsewhere are for the question to mind."""
    path = tmp_path / "a.csv"
    path.write_text("age,sex,job\n40,Male,a\n,Female,b\n")
    for more in ("", "&value=age"):
        data = load(f"{path}?target=sex&missing=drop{more}")
        assert set(data.columns) == {"age", "sex", "job"}
        assert data.roles["target"] == "sex"
    assert len(data.about(["age", "sex"]).columns["age"]) == 1
    with pytest.raises(LocalError, match="no column 'sexx'"):
        load(f"{path}?target=sexx")


def test_by_its_name_a_study_goes_by_what_a_data_set_publishes() -> None:
    with Federation(parties=2, data="breast-cancer", aggregator="curator", seed=1) as federation:
        result = federation.run("projected-histogram", epsilon=5)
    assert result.privacy.epsilon == pytest.approx(5)
