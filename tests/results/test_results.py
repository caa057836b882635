"""Results follow one schema, are saved whole or not at all, and are never trusted when they do not read back."""

import os
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr
from made_runs import made_run

from dolb import results
from dolb.results import RunStore, SchemaError, StoreError, files
from dolb.training.config import LandscapeConfig, NoiseScaleConfig, RunConfig, StartConfig


def finished(accuracy=(0.25, 0.5, 0.75), fingerprint="sha256:one", **changes) -> xr.Dataset:
    """Make the Dataset of one run that has every name a run must have."""
    return results.describe(made_run(accuracy, **changes).assign(data_fingerprint=("run", [fingerprint])))


def stored(folder: Path, **changes) -> tuple[RunStore, str, bytes]:
    """Put one run into a store; return the store, the run's key and the bytes of its file."""
    store, ds = RunStore(folder), finished(**changes)
    key = ds["key"].item()
    store.put(ds)
    return store, key, store.path(key).read_bytes()


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


@pytest.mark.parametrize(("factor", "says"), [(100.0, "a fraction, not a percentage"), (-0.5, "outside 0 to 1")])
def test_an_accuracy_that_is_no_fraction_is_refused(factor, says):
    ds = finished()
    with pytest.raises(SchemaError, match=says):
        results.validate(ds.assign(test_accuracy=ds["test_accuracy"] * factor))


def test_every_config_field_is_a_name_of_the_schema():
    assert set(RunConfig().as_dict()) <= {n for n, variable in results.SCHEMA.items() if variable.role == "config"}
    for more in (LandscapeConfig(), StartConfig(), NoiseScaleConfig()):
        assert set(more.as_dict()) <= set(results.SCHEMA)


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


def test_runs_from_before_something_was_recorded_have_what_they_were_made_with_or_nothing(tmp_path):
    options = {"weight_decay_on": "all", "trust": 0.001, "max_gradient_norm": 1.0}
    old = results.validate(finished(seed=1).drop_vars(list(options)))
    new = finished(seed=2, optimizer="lars", trust=0.02, weight_decay_on="filters").assign_coords(within=("run", ["a"]))
    new = new.assign(device_share=("run", [0.25]))
    merged = results.load(results.save(results.merge([old, new]), tmp_path / "both.nc"))
    assert {name: merged[name].values[0] for name in options} == options
    assert merged["within"].values.tolist() == ["", "a"]
    np.testing.assert_array_equal(merged["device_share"], [np.nan, 0.25])
    configs = [RunConfig.from_dict({name: merged[name].values[k] for name in RunConfig().as_dict()}) for k in range(2)]
    assert [config.key for config in configs] == merged["key"].values.tolist()


def test_of_two_runs_with_one_key_the_later_wins():
    first, second, other = finished((0.1, 0.2)), finished((0.8, 0.9)), finished((0.3, 0.4), seed=1)
    assert first["key"].item() == second["key"].item() != other["key"].item()
    merged = results.merge([first, other, second])
    accuracy = dict(zip(merged["key"].values, merged["test_accuracy"].values[:, -1], strict=True))
    assert accuracy == {first["key"].item(): np.float32(0.9), other["key"].item(): np.float32(0.4)}
    swapped = results.merge([merged, merged.isel(run=[1, 0])])  # runs of a later part stand where they first came
    xr.testing.assert_identical(swapped, merged)
    xr.testing.assert_identical(results.merge(results.split(merged)), merged)


# The run store


def test_a_store_gives_back_what_was_put(tmp_path):
    store, key, _ = stored(tmp_path)
    xr.testing.assert_identical(store.get(key, "sha256:one"), finished())
    assert store.keys() == [key]
    assert store.get("another") is None


def flip(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]


@pytest.mark.faults
def test_a_flipped_byte_anywhere_is_noticed(tmp_path):
    store, key, content = stored(tmp_path)
    positions = np.random.default_rng(0).integers(0, len(content) - 100, 20).tolist()  # the seal is the last 77 bytes
    for position in positions:
        store.path(key).write_bytes(flip(content, position))
        assert store.get(key) is None, position
    kept = {path.read_bytes() for path in tmp_path.glob("*.aside-*")}
    assert kept == {flip(content, position) for position in positions}


def test_a_wrong_file_that_cannot_be_set_aside_is_told(tmp_path, read_only):
    store, key, content = stored(tmp_path)
    store.path(key).write_bytes(content[:100])
    with read_only(tmp_path), pytest.raises(StoreError, match=rf"{key}\.nc cannot be read back.*cannot be set aside"):
        store.get(key)
    assert store.path(key).read_bytes() == content[:100]


@pytest.mark.faults
def test_a_run_of_a_later_schema_is_refused_with_the_version_it_needs_and_stays(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "VERSION", 99)
    monkeypatch.setattr(files, "__version__", "7.1.0")
    store, key, content = stored(tmp_path)
    monkeypatch.undo()
    with pytest.raises(StoreError, match=rf"{key}\.nc needs dolb 7\.1\.0 or later \(schema 99\); this is dolb"):
        store.get(key)
    assert store.path(key).read_bytes() == content


# What killed processes leave


@pytest.fixture
def holding(tmp_path):
    """Start programs that hold something open in a folder and say so; they are killed at the end."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    started = []

    def start(program: str) -> tuple[subprocess.Popen, str]:
        text = f"import sys, time\nfrom pathlib import Path\nfrom dolb.results import files\n{program}"
        words = [sys.executable, "-c", text]
        started.append(subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1], started[-1].stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.wait()


SAYING = """
def say(handle):
    print(handle.name, flush=True)
    time.sleep(600)
files.write_whole(Path({path!r}), say)
"""


@pytest.mark.faults
def test_a_temporary_file_is_removed_at_the_next_start_if_its_process_is_gone(tmp_path, holding):
    killed, left = holding(SAYING.format(path=str(tmp_path / "a.nc")))
    _, alive = holding(SAYING.format(path=str(tmp_path / "networks" / "b.pt")))
    killed.kill()
    killed.wait()
    assert Path(left).exists()
    RunStore(tmp_path).check_writable()
    assert (Path(left).exists(), Path(alive).exists()) == (False, True)


@pytest.mark.faults
def test_a_temporary_folder_is_removed_at_the_next_start_if_its_process_is_gone(tmp_path, holding):
    program = "with files.scratch('dolb-made-') as folder:\n    print(folder, flush=True)\n    time.sleep(600)"
    (killed, left), (_, alive) = holding(program), holding(program)
    killed.kill()
    killed.wait()
    assert Path(left).exists()
    with files.scratch("dolb-made-", tmp_path) as now:
        assert sorted(tmp_path.glob("dolb-made-*")) == sorted([now, Path(alive)])
    assert not now.exists()


# Provenance


def test_the_commit_is_that_of_the_checkout_unless_the_environment_names_one(monkeypatch, repo_root):
    commit = results.commit.__wrapped__
    monkeypatch.delenv("DOLB_COMMIT", raising=False)
    git = subprocess.run(["git", "rev-parse", "HEAD"], cwd=repo_root, capture_output=True, text=True)
    assert commit().removesuffix("+changes") == (git.stdout.strip() if git.returncode == 0 else "unknown")
    monkeypatch.setenv("DOLB_COMMIT", "f00d")
    assert commit() == "f00d"


def test_what_is_noted_of_a_run_is_what_the_schema_wants():
    facts = results.provenance(torch_version="2", device="this one", engine="eager", data_fingerprint="sha256:one")
    assert set(facts) | {"key"} == {n for n, variable in results.SCHEMA.items() if variable.role == "provenance"}


@pytest.mark.parametrize("slug", ["batch-size", "benchmarks", "loss-landscape"])
def test_a_file_reads_as_xarray_itself_would_read_it_and_is_written_so(repo_root, slug, tmp_path):
    path = repo_root / "results" / f"{slug}.nc"
    ours = results.load(path)
    for file in (path, results.save(ours, tmp_path / "again.nc")):
        theirs = xr.load_dataset(file, engine="h5netcdf")
        xr.testing.assert_equal(ours, theirs)
        assert set(ours.coords) == set(theirs.coords)
        assert ours["device"].attrs == theirs["device"].attrs
        with h5py.File(file) as opened:  # NetCDF's own library refuses a file with a dimension of two
            assert {item.ndim for item in opened.values() if item.is_scale} == {1}


def test_text_of_a_file_is_compressed_and_comes_back_whatever_its_letters(tmp_path):
    ds = results.merge([finished(seed=seed, fingerprint="sha256:" + 64 * "0") for seed in range(100)])
    ds["device"][:] = ["", "H200", "Prozessör 核", "CPU"] * 25
    path = results.save(ds, tmp_path / "runs.nc")
    xr.testing.assert_identical(results.load(path), ds)
    with h5py.File(path) as opened:
        item = opened["data_fingerprint"]
        assert item.id.get_storage_size() < item.nbytes / 10
