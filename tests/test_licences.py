"""The list of licences has each package that this project names as a dependency."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| \[?([\w.-]+)\]?[^|]*\|([^|]*)\|([^|]*)\|", re.MULTILINE)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def test_each_direct_dependency_is_in_the_list_of_licences_with_a_version_and_a_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    wanted = [
        *project["dependencies"],
        *(one for extra in project["optional-dependencies"].values() for one in extra),
    ]
    rows = {normal(name): (version.strip(), licence.strip()) for name, version, licence in ROW.findall(
        (ROOT / "docs/licences.md").read_text("utf-8"))}  # fmt: skip
    assert len(wanted) > 20
    for requirement in wanted:
        name = normal(re.match(r"[\w.-]+", requirement)[0])
        assert name in rows, name
        version, licence = rows[name]
        assert re.match(r"\d", version), name
        assert licence not in ("", "unknown"), name
