"""Many measurements: only what the store lacks is made, efficiencies follow, and simulated rows stand beside them."""

import warnings

import numpy as np
import pytest
import xarray as xr
from made_scaling import made_measurement, made_measurements, small_simulation

from dolb import results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks import launch, sweep

TINY = {"arch": "smallnet-4", "data": "digits", "batch_size_per_rank": 8, "steps": 1, "warmup_steps": 1}


def test_what_the_store_lacks_is_made_and_a_time_limit_drops_nothing_that_a_launch_has_made(tmp_path):
    known = ScalingConfig(**TINY)
    lacking = [
        ScalingConfig(**TINY, repeat=1, alone_steps=1),
        ScalingConfig(**TINY | {"steps": 2}, alone_steps=1, repeat=1),
    ]
    results.RunStore(tmp_path).put(made_measurement(123.0, **known.as_dict()))
    # The limit ends while the processes of the two start.
    ds = sweep.measure_all([known, *lacking], store=tmp_path, time_limit=2, progress=False)
    assert ds["key"].values.tolist() == [known.key, *(one.key for one in lacking)]
    assert ds["images_per_second"].values[0] == 123.0
    alone = ds["alone_images_per_second"].values[1:]
    assert ds["efficiency"].values[1:].tolist() == (ds["images_per_second"].values[1:] / alone).tolist()
    assert ds.attrs["unfinished"] == 0
    assert {path.stem for path in tmp_path.glob("*.nc")} == set(ds["key"].values)


def test_a_repetition_is_made_whole_before_the_next_by_as_few_processes_as_can_be():
    configs = [
        ScalingConfig(library=library, arch=arch, ranks=ranks, repeat=repeat)
        for repeat in range(2)
        for arch in ("smallnet-4", "smallnet-8")
        for library in ("ddp", "horovod")
        for ranks in (1, 2)
    ]
    groups = sweep.together([*configs, ScalingConfig(library="horovod", ranks=2, cycle_time_ms=5.0)])
    assert [len(group) for group in groups] == [2, 2, 2, 2, 1, 2, 2, 2, 2]
    assert [group[0].repeat for group in groups] == [0] * 5 + [1] * 4
    assert all(len({(one.library, one.ranks, one.cycle_time_ms) for one in group}) == 1 for group in groups)


def test_what_cannot_be_measured_is_refused_before_anything_is(tmp_path):
    many = launch.slots() + 1
    with pytest.raises(ValueError, match=f"{many} ranks need as many slots"):
        sweep.measure_all([ScalingConfig(**TINY), ScalingConfig(**TINY, ranks=many)], store=tmp_path)
    assert not list(tmp_path.glob("*.nc"))


def test_efficiency_is_against_one_rank_without_a_library_of_the_same_launch_where_there_is_one():
    rows = [
        made_measurement(90, library="ddp", alone=(100, 100)),
        made_measurement(180, library="ddp", ranks=2, alone=(50, 200)),  # geometric mean: 100
        made_measurement(180, library="horovod", ranks=2, alone=(120, 120)),
        made_measurement(100, ranks=4),
    ]
    found = sweep.with_efficiency(results.merge(rows))["efficiency"].values.tolist()
    assert found == pytest.approx([0.9, 0.9, 0.75, np.nan], nan_ok=True)


def test_the_whole_has_measured_and_simulated_rows_and_each_says_which(tmp_path):
    measured = made_measurements(lambda library, ranks, repeat: 90.0 * ranks)
    ds = sweep.complete(measured, small_simulation())
    assert set(ds["source"].values) == {"measured", "simulated"}
    assert (ds["source"] == "measured").sum() == len(measured)
    xr.testing.assert_identical(results.load(results.save(ds, tmp_path / "all.nc"))["variant"], ds["variant"])


def test_events_of_every_repetition_stay(repo_root):
    published = results.load(repo_root / "results" / "step-timeline.nc")
    renewed = sweep.complete([published], small_simulation())
    measured = np.flatnonzero(renewed["source"].values == "measured")
    assert set(renewed["repeat"].values[measured]) == set(range(5))
    assert set(measured) <= set(renewed["run_number"].values)


def test_a_table_has_one_machine_the_last_one_given_and_what_is_left_out_is_counted():
    rows = [
        *(made_measurement(100, device="old", repeat=repeat) for repeat in (0, 1, 1)),  # one of them twice
        made_measurement(100, device="older"),
        made_measurement(100, ranks=2, device="new"),
    ]
    with pytest.warns(UserWarning, match="left out: 2 on 'old', 1 on 'older'; the last one is on 'new'"):
        ds = sweep.complete(rows, small_simulation())
    assert set(ds["device"].values[ds["source"].values == "measured"]) == {"new"}
    with warnings.catch_warnings(action="error", category=UserWarning):
        sweep.complete([made_measurement(100), made_measurement(120, ranks=2)], small_simulation())


def test_the_published_measurements_still_join_with_new_ones(repo_root):
    published = results.load(repo_root / "results" / "ddp-vs-horovod.nc")
    few = published.isel(run=np.flatnonzero(published["source"].values == "measured")[:5])
    new = made_measurement(120, str(few["device"].values[0]), ranks=2, hosts=2, link=(20_000.0, 25e-6))
    ds = sweep.complete([few, new], small_simulation().isel(run=[0]))
    assert (ds["source"] == "measured").sum() == 6
