"""pyproject.toml, requirements.lock and environment.yml describe one environment."""

import runpy
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
RUNTIME = [Requirement(line) for line in PROJECT["dependencies"]]
LAB = [Requirement(line) for line in PROJECT["optional-dependencies"]["lab"]]
EXTRAS = [Requirement(line) for lines in PROJECT["optional-dependencies"].values() for line in lines]
OLDEST_PYTHON = PYPROJECT["tool"]["uv"]["pip"]["python-version"]
GENERATOR = runpy.run_path(str(ROOT / "deploy" / "environment.py"))


@cache
def locked(python):
    return GENERATOR["locked_versions"]((ROOT / "requirements.lock").read_text(), python)


def test_environment_yml_is_what_make_environment_writes():
    assert (ROOT / "environment.yml").read_text() == GENERATOR["environment"](), "run `make environment`"


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("requirement", RUNTIME + EXTRAS, ids=lambda requirement: requirement.name)
def test_the_lock_holds_every_direct_dependency_within_its_range(requirement, python):
    version = locked(python).get(canonicalize_name(requirement.name))
    assert version is not None, f"{requirement.name} is not in requirements.lock: run `make lock`"
    assert version in requirement.specifier


def test_environment_yml_holds_the_direct_dependencies_and_jupyterlab_and_nothing_else():
    *conda, pip = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert conda == [f"python={OLDEST_PYTHON}", "pip"]
    pins = {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in pip["pip"] if not line.startswith("-"))
    }
    versions = locked(OLDEST_PYTHON)
    assert pins == {name: str(versions[name]) for name in (canonicalize_name(r.name) for r in RUNTIME + LAB)}


def test_every_tool_means_the_same_oldest_python():
    assert PROJECT["requires-python"] == f">={OLDEST_PYTHON}"
    assert PYPROJECT["tool"]["mypy"]["python_version"] == OLDEST_PYTHON
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + OLDEST_PYTHON.replace(".", "")


def test_the_workflow_tests_the_oldest_python_and_only_supported_ones():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())
    pythons = workflow["jobs"]["test"]["strategy"]["matrix"]["python"]
    assert OLDEST_PYTHON in pythons
    assert all(python in SpecifierSet(PROJECT["requires-python"]) for python in pythons)


def test_a_lock_line_for_another_python_or_system_is_left_out():
    lock = "numpy==2.4.6 ; python_full_version < '3.12'\nnumpy==2.5.4 ; python_full_version >= '3.12'\n"
    lock += "appnope==1.0.0 ; sys_platform == 'darwin'\n    # via ipykernel\n"
    read = GENERATOR["locked_versions"]
    assert {name: str(version) for name, version in read(lock, "3.11").items()} == {"numpy": "2.4.6"}
    assert {name: str(version) for name, version in read(lock, "3.12").items()} == {"numpy": "2.5.4"}
