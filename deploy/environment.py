"""Print environment.yml: the direct dependencies of pyproject.toml, and JupyterLab, as requirements.lock pins them.

repo2docker (and with it Binder and JupyterHub images), conda and mamba read that file. `make environment` writes it,
and tests/test_environment.py fails when the committed file is not what this prints.
"""

import tomllib
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

HEADER = """\
# Written by `make environment` from pyproject.toml and requirements.lock: change those, not this.
# The packages come through pip, so that these are the very builds of requirements.lock; conda brings Python alone.
# `-e .` needs the whole repository: seeing a local line, repo2docker copies the repository before it makes the
# environment, and conda and mamba run pip in the folder of this file. `-c` holds what those packages need in turn.
# An image may run anywhere, so torch is its CPU build; for a GPU, drop the --extra-index-url line.
"""


def locked_versions(lock: str, python: str) -> dict[str, Version]:
    """Read the versions that a lock installs on Linux under one Python, given as "3.11"."""
    linux = default_environment() | {
        "implementation_name": "cpython",
        "os_name": "posix",
        "platform_python_implementation": "CPython",
        "platform_system": "Linux",
        "python_full_version": f"{python}.99",  # conda and apt bring a late patch release; markers ask about early ones
        "python_version": python,
        "sys_platform": "linux",
    }
    versions = {}
    for line in lock.splitlines():
        pin = line.split("#")[0].strip()
        if not pin:
            continue
        requirement = Requirement(pin)
        if requirement.marker is None or requirement.marker.evaluate(dict(linux)):
            (specifier,) = requirement.specifier
            versions[canonicalize_name(requirement.name)] = Version(specifier.version)
    return versions


def environment(root: Path = ROOT) -> str:
    """Compose the text of environment.yml."""
    pyproject = tomllib.loads((root / "pyproject.toml").read_text())
    # The oldest Python that dolb supports is the one that the lock is resolved for.
    python = pyproject["tool"]["uv"]["pip"]["python-version"]
    versions = locked_versions((root / "requirements.lock").read_text(), python)
    project = pyproject["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["lab"]]
    direct = {canonicalize_name(Requirement(line).name) for line in wanted}
    pip = [
        "--extra-index-url https://download.pytorch.org/whl/cpu",
        "-c requirements.lock",
        "-e .",
        *(f"{name}=={versions[name]}" for name in sorted(direct)),
    ]
    lines = [
        f"name: {pyproject['project']['name']}",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        f"  - python={python}",
        "  - pip",
        "  - pip:",
        *(f"      - {line}" for line in pip),
    ]
    return HEADER + "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(environment(), end="")
