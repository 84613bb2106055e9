"""An autograder for Gradescope: one zip file, uploaded as it is.

    setup.sh            run once: Python, and the packages in exactly these versions
    run_autograder      run for each submission: writes results/results.json
    assignment.toml     the assignment, as the teacher wrote it
    constraints.txt     the versions that are installed here
    package/clearhead/  this version of clearhead

The same assignment and the same versions give the same bytes: members are sorted, stored without
compression, and dated 1980. Nothing but the packages of constraints.txt is fetched.
"""

import re
import zipfile
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import BinaryIO

import clearhead
from clearhead.exercises.assignment import read_assignment
from clearhead.files.reading import read_bytes
from clearhead.files.writing import replace_file

PACKAGE = Path(clearhead.__file__).parent
SUFFIXES = (".py", ".html", ".css", ".txt", ".json")
NEEDED = ("torch", "numpy", "typer", "rich")  # what grading imports
MAX_BYTES = 8 << 20

SETUP = f"""#!/usr/bin/env bash
# Gradescope runs this once, as root, when it builds the image.
set -e
cd "$(dirname "${{BASH_SOURCE[0]}}")"
find_python() {{
  for each in python3.13 python3.12 python3.11; do command -v "$each" && return; done
  return 1
}}
if ! find_python > /dev/null; then
  apt-get update
  apt-get install -y --no-install-recommends python3.11
fi
python=$(find_python)
"$python" -c "import ensurepip" 2> /dev/null ||
  apt-get install -y --no-install-recommends "$(basename "$python")-venv"
"$python" -m venv venv
# To get PyTorch without CUDA, set PIP_EXTRA_INDEX_URL here to an index with builds for the CPU.
venv/bin/pip install --no-cache-dir --constraint constraints.txt {" ".join(NEEDED)}
"""

# The container holds one submission and is thrown away, so grading goes on where the kernel of
# Gradescope's machines offers the sandbox fewer layers: --unsafe. results.json names the level.
RUN = """#!/usr/bin/env bash
# Gradescope runs this for each submission, in a new container.
root="${AUTOGRADER_ROOT:-/autograder}"
python="${AUTOGRADER_PYTHON:-$root/source/venv/bin/python}"
export PYTHONPATH="$root/source/package"
exec "$python" -P -m clearhead.cli.main grade "$root/submission" --unsafe \\
  --assignment "$root/source/assignment.toml" --gradescope "$root/results/results.json"
"""


def write_gradescope_zip(assignment: Path, out: Path) -> None:
    """Write the zip file for an assignment; the file is replaced whole or not at all."""
    read_assignment(assignment)
    members = {
        "setup.sh": SETUP.encode(),
        "run_autograder": RUN.encode(),
        "assignment.toml": read_bytes(assignment, MAX_BYTES),
        "constraints.txt": "".join(f"{line}\n" for line in list_versions()).encode(),
        **{f"package/clearhead/{name}": data for name, data in _read_package()},
    }
    with replace_file(out) as file:
        write_zip(file, members)


def write_zip(file: BinaryIO, members: dict[str, bytes]) -> None:
    """Write members in the order of their names, with nothing that differs between two runs."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            member = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            member.create_system = 3  # Unix, on every machine
            is_program = members[name].startswith(b"#!")
            member.external_attr = (0o100755 if is_program else 0o100644) << 16
            archive.writestr(member, members[name])


def list_versions() -> list[str]:
    """name==version of every installed package that grading needs, directly or not."""
    versions: dict[str, str] = {}
    waiting = list(NEEDED)
    while waiting:
        name = _simplify(waiting.pop())
        try:
            found = distribution(name)
        except PackageNotFoundError:  # for another system or Python
            continue
        if name not in versions:
            versions[name] = found.version.partition("+")[0]  # 2.6.0+cpu is 2.6.0
            waiting += [each for each in found.requires or () if "extra ==" not in each]
    return [f"{name}=={versions[name]}" for name in sorted(versions)]


def _simplify(requirement: str) -> str:
    """The name in a requirement, as packages are compared: Jinja2>=3 is jinja2."""
    found = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", found[0]).lower() if found else requirement


def _read_package() -> Iterator[tuple[str, bytes]]:
    for path in PACKAGE.rglob("*"):
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(PACKAGE).as_posix(), path.read_bytes()
