"""Generates the committed code from tally.proto; `--check` fails if it has drifted."""

import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
OUTPUTS = ("tally_pb2.py", "tally_pb2.pyi", "tally_pb2_grpc.py")


def generate(target: Path) -> None:
    arguments = ["protoc", f"-I{ROOT}"]
    arguments += [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main([*arguments, "tallyroom/protos/tally.proto"]) != 0:
        raise SystemExit("protoc failed")


def main() -> None:
    if "--check" not in sys.argv:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        for name in OUTPUTS:
            if (Path(folder) / "tallyroom" / "protos" / name).read_bytes() != (
                ROOT / "protos" / name
            ).read_bytes():
                raise SystemExit(f"protos/{name} has drifted from tally.proto: run `make protos`")
    print("protos: generated code matches tally.proto")


if __name__ == "__main__":
    main()
