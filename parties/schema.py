"""Public schemas: the values that each column can have, stated once for all questions about a file.

A file has one line per column, in the form that `--attribute` takes: AGE=17:90 or SEX=Female,Male;
lines that begin with # are comments. The file is read where the question is asked: its contents
become part of the question, as if they had been given there, and the file itself is not sent.
`PUBLISHED` has schemas known by name, written from a data set's documentation, not its records.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from tallyroom.protocols.categories import format_categories
from tallyroom.protocols.errors import LocalError
from tallyroom.protocols.statistics.attributes import MAX_ATTRIBUTES, parse_attribute

Schema = tuple[str, ...]

MAX_BYTES = 1 << 24
COMMENT = "#"

PUBLISHED: dict[str, Schema] = {
    # From UCI's description of the 1994 census extract: its names, and for numbers the range that
    # the census asks for or cuts off: ages over 16 and up to 90, two digits of hours, five of
    # gains.
    "adult": (
        "age=17:90",
        "workclass=Private,Self-emp-not-inc,Self-emp-inc,Federal-gov,Local-gov,State-gov,"
        "Without-pay,Never-worked",
        "fnlwgt=0:1500000",
        "education=Bachelors,Some-college,11th,HS-grad,Prof-school,Assoc-acdm,Assoc-voc,9th,"
        "7th-8th,12th,Masters,1st-4th,10th,Doctorate,5th-6th,Preschool",
        "education_num=1:16",
        "marital_status=Married-civ-spouse,Divorced,Never-married,Separated,Widowed,"
        "Married-spouse-absent,Married-AF-spouse",
        "occupation=Tech-support,Craft-repair,Other-service,Sales,Exec-managerial,Prof-specialty,"
        "Handlers-cleaners,Machine-op-inspct,Adm-clerical,Farming-fishing,Transport-moving,"
        "Priv-house-serv,Protective-serv,Armed-Forces",
        "relationship=Wife,Own-child,Husband,Not-in-family,Other-relative,Unmarried",
        "race=White,Asian-Pac-Islander,Amer-Indian-Eskimo,Other,Black",
        "sex=Female,Male",
        "capital_gain=0:99999",
        "capital_loss=0:5000",
        "hours_per_week=1:99",
        "native_country=United-States,Cambodia,England,Puerto-Rico,Canada,Germany,"
        "Outlying-US(Guam-USVI-etc),India,Japan,Greece,South,China,Cuba,Iran,Honduras,Philippines,"
        "Italy,Poland,Jamaica,Vietnam,Mexico,Portugal,Ireland,France,Dominican-Republic,Laos,"
        "Ecuador,Taiwan,Haiti,Columbia,Hungary,Guatemala,Nicaragua,Scotland,Thailand,Yugoslavia,"
        "El-Salvador,Trinadad&Tobago,Peru,Hong,Holand-Netherlands",
        "income=>50K,<=50K",
    ),
}


def read_schema(source: str) -> Schema:
    """Reads a file, or a published schema by name. Raises `LocalError` with one clear line."""
    path = Path(source)
    try:
        if source in PUBLISHED and not path.exists():
            return PUBLISHED[source]
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        known = "" if os.path.lexists(path) else f"; known by name: {', '.join(PUBLISHED)}"
        raise LocalError(f"cannot read the schema {source[:60]}: {error.strerror}{known}") from None
    except ValueError as error:
        raise LocalError(f"cannot read the schema {source[:60]!r}: {error}") from None
    return parse_lines(raw, str(path))


def parse_lines(raw: bytes, where: str) -> Schema:
    """Raises `LocalError`, which names `where` and the line."""
    if len(raw) > MAX_BYTES:
        raise LocalError(f"{where} is larger than a schema may be, {MAX_BYTES} bytes")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise LocalError(f"cannot read the schema {where}: it is not UTF-8") from None
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith(COMMENT):
            continue
        if len(found) == MAX_ATTRIBUTES:
            raise LocalError(f"{where} has more than {MAX_ATTRIBUTES} attributes")
        name, equals, values = (part.strip() for part in line.partition("="))
        try:
            attribute = parse_attribute(f"{name}{equals}{values}")
        except LocalError as error:
            raise LocalError(f"{where}, line {number}: {error}") from None
        if attribute.name in found:
            raise LocalError(f"{where}, line {number}: {attribute.name!r} is listed twice")
        found[attribute.name] = f"{name}={values}"
    if not found:
        raise LocalError(f"{where} lists no column: a line is COLUMN=LOWER:UPPER or COLUMN=A,B")
    return tuple(found.values())


def published_words(name: str) -> str:
    """The remark that a result carries about a published schema."""
    return f"bounds and names are the published schema of {name}: public, and not from the records"


def schema_words(source: str) -> str:
    """The remark that a result carries about a schema that `read_schema` read."""
    if source in PUBLISHED and not Path(source).exists():
        return published_words(source)
    return f"bounds and names are from {source}: they are part of the question, hence public"


def merged(schema: Iterable[str], given: Iterable[str]) -> Schema:
    """Merges two schemas; for a column in both, the `given` one counts."""
    own = tuple(given)
    names = {text.partition("=")[0] for text in own}
    return (*(text for text in schema if text.partition("=")[0] not in names), *own)


def bounds_of(schema: Iterable[str]) -> dict[str, tuple[float, float]]:
    """The bounds of the numeric columns."""
    found = map(parse_attribute, schema)
    return {each.name: each.bounds for each in found if each.bounds}


def names_of(schema: Iterable[str]) -> dict[str, str]:
    """The names in each column of names, as A,B,C."""
    found = map(parse_attribute, schema)
    return {each.name: format_categories(each.names) for each in found if each.names}
