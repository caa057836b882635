"""What comes of the tests of clusters, most of which run at once."""

import inspect

import pytest
from sweeping import LONG, SCENARIOS, plain_sweep, play


@pytest.fixture(scope="session")
def outcomes(request, repo_root, tmp_path_factory) -> dict[str, BaseException | None]:
    """What came of the scenarios that this session asks for, all played at once."""
    asked = {item.name for item in request.session.items}
    wanted = {name: inspect.signature(steps).parameters for name, steps in SCENARIOS.items() if name in asked}
    found: dict[str, BaseException | None] = {}
    given = {"repo_root": repo_root}
    for part, fixture in (("slurm", "running_slurm"), ("horovod", "horovod")):
        needing = [name for name, names in wanted.items() if part in names]
        try:
            given[part] = request.getfixturevalue(fixture) if needing else None
        except BaseException as error:  # it may be a skip
            found |= dict.fromkeys(needing, error)
    if any("long" in names for names in wanted.values()):
        given["long"] = plain_sweep(LONG, tmp_path_factory.mktemp("long"))
    started = {}
    for name in wanted.keys() - found.keys():
        mine = given | {"store": tmp_path_factory.mktemp("store")}
        started[name] = SCENARIOS[name](**{each: mine[each] for each in wanted[name]})
    return found | play(started)
