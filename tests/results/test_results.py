"""Results follow one schema, are saved whole or not at all, and are never trusted when they do not read back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from dolb import results
from dolb.results import RunStore, SchemaError, StoreError
from dolb.training.config import LandscapeConfig, RunConfig

BLANKS = {"text": "something", "int": 1, "float": 0.5, "bool": False}


def finished(accuracy=(0.25, 0.5, 0.75), fingerprint="sha256:one", **changes) -> xr.Dataset:
    """Make the Dataset of one run that has every name a run must have."""
    config = RunConfig(**{"epochs": len(accuracy)} | changes)
    needed = {name: results.SCHEMA[name] for name in results.REQUIRED["epoch"]}
    run = {name: BLANKS[variable.kind] for name, variable in needed.items() if variable.dims == ("run",)}
    run |= config.as_dict() | {"key": config.key, "source": "measured", "data_fingerprint": fingerprint}
    by_epoch = {name: np.array(accuracy) for name, variable in needed.items() if variable.dims == ("run", "epoch")}
    return results.run_dataset(run, by_epoch)


def stored(folder: Path, **changes) -> tuple[RunStore, str, bytes]:
    """Put one run into a store; return the store, the run's key and the bytes of its file."""
    store, ds = RunStore(folder), finished(**changes)
    key = ds["key"].item()
    store.put(ds)
    return store, key, store.path(key).read_bytes()


def asides(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.aside-*"))]


# The schema


def test_every_fault_of_a_dataset_is_listed_at_once():
    ds = finished().drop_vars(["seed", "test_loss"]).assign(speed=("run", [1.0]))
    ds["batch_size"] = ("run", ["many"])
    ds["arch"] = ("epoch", ["a", "b", "c"])
    with pytest.raises(SchemaError) as error:
        results.validate(ds)
    for fault in (
        "seed is missing",
        "test_loss is missing",
        "speed is not a name of the schema",
        "batch_size has dtype <U4, expected int",
        "arch has dims ('epoch',), expected ('run',)",
    ):
        assert fault in str(error.value)


def test_a_dataset_that_is_no_kind_of_result_is_told_the_kinds():
    with pytest.raises(SchemaError, match=r"\['thing'\] tell no kind.*benchmark.*epoch.*event.*example"):
        results.validate(xr.Dataset({"label": ("thing", [1])}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"test_accuracy": 100.0}, "a fraction, not a percentage"),
        ({"test_accuracy": -0.5}, "outside 0 to 1"),
    ],
)
def test_an_accuracy_that_is_no_fraction_is_refused(change, says):
    ds = finished()
    with pytest.raises(SchemaError, match=says):
        results.validate(ds.assign({name: ds[name] * value for name, value in change.items()}))


def test_a_source_other_than_measured_or_simulated_is_refused():
    with pytest.raises(SchemaError, match=r"\['guessed'\]; accepted: measured, simulated"):
        results.validate(finished().assign(source=("run", ["guessed"])))


def test_a_run_that_is_there_twice_is_refused():
    with pytest.raises(SchemaError, match="two runs have the same key"):
        results.validate(xr.concat([finished(), finished()], "run", coords="minimal", compat="equals", data_vars="all"))


def test_a_run_without_any_accuracy_is_refused():
    with pytest.raises(SchemaError, match="no accuracy for its first epoch"):
        results.validate(finished(accuracy=(np.nan, 0.5)))


def test_every_config_field_is_a_name_of_the_schema():
    assert set(RunConfig().as_dict()) <= {n for n, variable in results.SCHEMA.items() if variable.role == "config"}


def test_every_setting_of_a_landscape_is_a_name_of_the_schema():
    assert set(LandscapeConfig().as_dict()) <= set(results.SCHEMA)


def test_a_run_needs_no_landscape_and_a_landscape_needs_all_of_it():
    results.validate(finished())
    with pytest.raises(SchemaError, match=r"top_eigenvalue is missing \(a Dataset with 'loss_over' needs it\)"):
        results.validate(finished().assign_coords(loss_over=["full"]))


# Saving and loading


def test_values_and_types_come_back_as_they_were_saved(tmp_path):
    ds = results.merge([finished(lr=0.1 + 0.2, seed=2**40), finished(accuracy=(0.5,), arch="smallnet-8")])
    ds["diverged"] = ("run", [True, False])
    back = results.load(results.save(ds, tmp_path / "deep" / "er" / "runs.nc"))
    xr.testing.assert_equal(back, ds)
    for name, variable in ds.variables.items():
        assert back[name].dtype.kind == variable.dtype.kind, name
    assert back["diverged"].values.tolist() == [True, False]
    assert back["seed"].values.tolist() == [2**40, 0]
    assert back["lr"].values[0] == 0.1 + 0.2
    assert back["test_accuracy"].attrs["long_name"] == results.SCHEMA["test_accuracy"].meaning


def test_a_dataset_outside_the_schema_is_not_saved(tmp_path):
    with pytest.raises(SchemaError):
        results.save(finished().drop_vars("seed"), tmp_path / "runs.nc")
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = results.save(finished(), tmp_path / "runs.nc")
    before = path.read_bytes()
    unwritable = finished(seed=1).assign_attrs(note=object())
    with pytest.raises(TypeError):
        results.save(unwritable, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_before_the_rename_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = results.save(finished(), tmp_path / "runs.nc")
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        results.save(finished(seed=1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_written_keeps_what_it_has(tmp_path, read_only):
    path = results.save(finished(), tmp_path / "runs.nc")
    before = path.read_bytes()
    with read_only(tmp_path), pytest.raises(PermissionError):
        results.save(finished(seed=1), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_absent_results_tell_how_to_make_them(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no results at .*none\.nc; make them with `dolb sweep`"):
        results.load(tmp_path / "none.nc")


def test_a_file_written_before_files_were_sealed_can_be_read(tmp_path):
    ds = finished()
    ds.to_netcdf(tmp_path / "old.nc", engine="h5netcdf")
    xr.testing.assert_equal(results.load(tmp_path / "old.nc"), ds)


# Merging


def test_shorter_runs_are_padded_with_nan():
    merged = results.validate(results.merge([finished((0.5, 0.6)), finished((0.1, 0.2, 0.3, 0.4), seed=1)]))
    expected = np.float32([[0.5, 0.6, np.nan, np.nan], [0.1, 0.2, 0.3, 0.4]])
    np.testing.assert_array_equal(merged["test_accuracy"], expected)
    assert merged["epoch"].values.tolist() == [1, 2, 3, 4]
    assert merged["epochs"].values.tolist() == [2, 4]
    assert merged["diverged"].dtype == bool


@pytest.mark.parametrize(("name", "value"), [("peak_host_memory_bytes", 2.0**33), ("device_share", 0.25)])
def test_runs_from_before_a_value_was_recorded_merge_with_later_ones(tmp_path, name, value):
    old, new = finished(seed=1), finished(seed=2).assign({name: ("run", [value])})
    path = results.save(results.merge([old, new]), tmp_path / "both.nc")
    np.testing.assert_array_equal(results.load(path)[name], [np.nan, value])


def test_of_two_runs_with_one_key_the_later_wins():
    first, second, other = finished((0.1, 0.2)), finished((0.8, 0.9)), finished((0.3, 0.4), seed=1)
    assert first["key"].item() == second["key"].item() != other["key"].item()
    merged = results.merge([first, other, second])
    accuracy = dict(zip(merged["key"].values, merged["test_accuracy"].values[:, -1], strict=True))
    assert accuracy == {first["key"].item(): np.float32(0.9), other["key"].item(): np.float32(0.4)}


def test_merged_runs_merge_again():
    runs = [finished((0.1, 0.2, 0.3), seed=seed) for seed in range(3)]
    at_once, in_steps = results.merge(runs), results.merge([results.merge(runs[:2]), runs[2]])
    xr.testing.assert_identical(at_once, in_steps)


def test_nothing_to_merge_is_an_error():
    with pytest.raises(SchemaError, match="no run"):
        results.merge([])


# The run store


def test_a_store_gives_back_what_was_put(tmp_path):
    store, key, _ = stored(tmp_path)
    xr.testing.assert_identical(store.get(key, "sha256:one"), finished())
    assert store.keys() == [key]
    assert store.get("another") is None


def test_a_truncated_file_is_set_aside_whole(tmp_path, capsys):
    store, key, content = stored(tmp_path)
    half = content[: len(content) // 2]
    store.path(key).write_bytes(half)
    assert store.get(key) is None
    assert (store.keys(), asides(tmp_path)) == ([], [half])
    assert f"{key}.nc.aside-1" in capsys.readouterr().out


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


def test_a_changed_letter_in_a_text_is_noticed(tmp_path):
    """HDF5 keeps no checksum of text: without the seal this would read as a run of another network."""
    store, key, content = stored(tmp_path)
    wrong = content.replace(b"smallnet-4", b"smallnet-8")
    assert wrong != content
    store.path(key).write_bytes(wrong)
    assert store.get(key) is None
    assert asides(tmp_path) == [wrong]


def test_a_flipped_byte_anywhere_is_noticed(tmp_path):
    store, key, content = stored(tmp_path)
    positions = np.random.default_rng(0).integers(0, len(content) - 100, 60).tolist()  # the seal is the last 77 bytes
    for position in positions:
        store.path(key).write_bytes(flip(content, position))
        assert store.get(key) is None, position
    kept = {path.read_bytes() for path in tmp_path.glob("*.aside-*")}
    assert kept == {flip(content, position) for position in positions}


def test_a_flipped_byte_in_the_seal_changes_no_result(tmp_path):
    store, key, content = stored(tmp_path)
    for position in range(len(content) - 80, len(content), 5):
        store.path(key).write_bytes(flip(content, position))
        ds = store.get(key)
        assert ds is None or ds.identical(finished()), position


def test_masks_from_before_a_number_had_its_name_were_made_with_its_default():
    made = {"key": ("run", ["a"]), "share": ("run", [0.05]), "map_start": ("run", ["random"])}
    before, after = xr.Dataset(coords={"key": ("run", ["b"])}), xr.Dataset(coords=made)
    both = results.merge([before, after])
    assert both["share"].values.tolist() == [0.0, 0.05]
    assert both["map_start"].values.tolist() == ["pca", "random"]


def test_files_set_aside_before_are_kept(tmp_path):
    store, key, content = stored(tmp_path)
    wrong = [content[:100], content[:200], b""]
    for part in wrong:
        store.path(key).write_bytes(part)
        assert store.get(key) is None
    store.put(finished())
    assert asides(tmp_path) == wrong
    assert store.get(key) is not None


def test_a_file_under_the_name_of_another_run_is_set_aside(tmp_path):
    store, key, content = stored(tmp_path)
    store.path(key).rename(store.path("0123456789abcdef"))
    assert store.get("0123456789abcdef") is None
    assert asides(tmp_path) == [content]


def test_a_run_made_from_other_data_is_set_aside(tmp_path, capsys):
    store, key, content = stored(tmp_path, fingerprint="sha256:old")
    assert store.get(key) is not None
    assert store.get(key, "sha256:new") is None
    assert asides(tmp_path) == [content]
    assert "was made from other data" in capsys.readouterr().out


def test_a_wrong_file_that_cannot_be_set_aside_is_told(tmp_path, read_only):
    store, key, content = stored(tmp_path)
    store.path(key).write_bytes(content[:100])
    with read_only(tmp_path), pytest.raises(StoreError, match=rf"{key}\.nc cannot be read back.*cannot be set aside"):
        store.get(key)
    assert store.path(key).read_bytes() == content[:100]


HOLD = """
import sys, time
from dolb.results import RunStore
with RunStore(sys.argv[1]).claim("some-run") as mine:
    print(mine, flush=True)
    time.sleep(600)
"""


def test_a_claim_excludes_another_process_until_that_one_is_killed(tmp_path):
    store = RunStore(tmp_path)
    store.check_writable()
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        try:
            assert holder.stdout.readline() == "True\n"
            with store.claim("some-run") as mine, store.claim("another-run") as other:
                assert (mine, other) == (False, True)
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            with store.claim("some-run") as mine:
                assert mine
        finally:
            holder.kill()


def test_a_claim_ends_with_its_block_however_the_block_ends(tmp_path):
    store = RunStore(tmp_path)
    store.check_writable()
    with pytest.raises(ZeroDivisionError), store.claim("some-run"):
        raise ZeroDivisionError
    with store.claim("some-run") as mine:
        assert mine
        with store.claim("some-run") as again:
            assert not again


def test_a_store_that_cannot_be_written_is_refused_by_name(tmp_path, read_only):
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(StoreError, match=rf"the store {file / 'store'} cannot be written \(Not a directory\)"):
        RunStore(file / "store").check_writable()
    folder = tmp_path / "store"
    folder.mkdir()
    with read_only(folder), pytest.raises(StoreError, match=rf"the store {folder} cannot be written \(Permission"):
        RunStore(folder).check_writable()
    assert list(folder.iterdir()) == []


def test_a_store_that_can_be_written_is_left_without_traces_of_the_question(tmp_path):
    RunStore(tmp_path / "new" / "store").check_writable()
    assert [path.name for path in (tmp_path / "new" / "store").iterdir()] == ["locks"]
    assert RunStore(tmp_path / "new" / "store").keys() == []


# Provenance


@pytest.fixture
def commit_unknown_yet():
    results.commit.cache_clear()
    yield
    results.commit.cache_clear()


def test_the_environment_may_name_the_commit(monkeypatch, commit_unknown_yet):
    monkeypatch.setenv("DOLB_COMMIT", "f00d")
    facts = results.provenance(torch_version="2", device="this one", engine="eager", data_fingerprint="sha256:one")
    assert facts["commit"] == "f00d"
    assert facts["source"] == "measured"
    assert set(facts) | {"key"} == {n for n, variable in results.SCHEMA.items() if variable.role == "provenance"}


def test_the_commit_is_that_of_the_checkout(monkeypatch, commit_unknown_yet, repo_root):
    monkeypatch.delenv("DOLB_COMMIT", raising=False)
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True)
    expected = git.stdout.strip() if git.returncode == 0 else "unknown"
    assert results.commit().removesuffix("+changes") == expected


@pytest.mark.parametrize("slug", ["batch-size", "benchmarks"])
def test_a_file_reads_as_xarray_itself_would_read_it(repo_root, slug):
    path = repo_root / "results" / f"{slug}.nc"
    theirs = xr.load_dataset(path, engine="h5netcdf")
    xr.testing.assert_equal(results.load(path), theirs)
    assert set(results.load(path).coords) == set(theirs.coords)


def test_runs_from_before_a_text_had_its_name_are_merged_with_newer_ones_and_have_it_empty():
    def made(key, **names):
        coords = {name: ("run", [value]) for name, value in {"key": key, **names}.items()}
        return xr.Dataset({"keep": ("example", [True, False])}, {"label": ("example", [0, 1]), **coords})

    merged = results.merge([made("a"), made("b", within="a")])
    assert merged["within"].values.tolist() == ["", "a"]
    assert results.merge([merged, made("c")])["within"].values.tolist() == ["", "a", ""]
