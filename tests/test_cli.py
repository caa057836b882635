"""The `dolb` command as a user meets it: what it prints, what it writes, and how it fails."""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import nbformat
import numpy as np
import pytest
from executed import held_to_one_core
from made_runs import made_run
from made_scaling import made_measurement
from made_strong_weak import made_steps
from PIL import Image
from sklearn.decomposition import PCA
from typer.testing import CliRunner
from waiting import wait_until

from dolb import cli, data, recipes, results, viewer
from dolb.cli import app
from dolb.filtering import decisions, masks, noise
from dolb.filtering.config import FilterConfig

TINY = ["--batch-sizes", "256", "--lrs", "0.1", "--archs", "smallnet-4", "--epochs", "1"]


def dolb(*arguments, code=0):
    outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert outcome.exit_code == code, outcome.output
    return " ".join(outcome.output.split())


def test_help_lists_every_command_keeps_what_stands_in_brackets_and_waits_for_no_large_package():
    text = dolb("--help")
    sent = ("sweep", "status", "cancel")
    for command in ("data", "run", *sent, "publish", "restore", "pages", "book", "archive", "view", "keep", "predict"):
        assert command in text
        assert len(dolb(command, "--help")) > 100
    assert "[default: DOLB_DATA, or a cache]" in dolb("data", "--help")
    program = "import sys, dolb.cli; print({'torch', 'numpy', 'xarray', 'rich'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_data_says_what_is_there():
    text = dolb("data", "digits")
    assert "1,437 training and 360 test images" in text
    assert "sha256:" in text


def test_predict_prints_a_table_and_writes_a_chart_that_fetches_nothing(tmp_path):
    chart = tmp_path / "mine.html"
    text = dolb(
        "predict", "--network", "resnet50", "--batch", 64, "--gpus", 8, "--nodes", "1,2,4,8,16", "--gbit", 100,
        "--library", "ddp", "--output", chart,
    )  # fmt: skip
    assert "Simulated: resnet50" in text
    assert "128" in text.split("nodes", 1)[1]
    assert "published efficiencies are met within" in text
    assert "https://cdn." not in chart.read_text(encoding="utf-8")


@pytest.mark.parametrize(("gpu", "precision"), [("A100", "tf32"), ("V100", "fp32")])
def test_predict_takes_a_precision_that_is_known_of_the_gpu(gpu, precision, tmp_path):
    assert f"{gpu} in {precision}" in dolb("predict", "--gpu", gpu, "--nodes", "1", "--output", tmp_path / "one.json")


def test_what_the_book_shows_of_python_runs_as_it_stands(tmp_path, monkeypatch, repo_root):
    page = (repo_root / "book" / "from-python.md").read_text()
    monkeypatch.chdir(tmp_path)
    there = {}
    for block in re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL):
        exec(block, there)
    assert there["runs"]["arch"].unique().tolist() == ["resnet18"]
    assert (tmp_path / "mine.png").stat().st_size > 1000
    assert there["table"]["nodes"].tolist() == [1, 2, 4]


def test_a_sweep_without_an_experiment_lists_all_with_what_is_published():
    said = dolb("sweep")
    assert " warmup-start 4 0 The first epochs of runs" in said
    assert re.findall(r"(\S+) \d+ \d+ [A-Z]", said) == list(recipes.RECIPES)


def test_a_sweep_says_what_came_out_and_goes_on_from_its_store(tmp_path):
    first = dolb("sweep", "batch-size", "--store", tmp_path, *TINY)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}
    assert f"{len(kept)} runs are in" in first
    assert "batch_size lr bn_workers accuracy seeds 256 0.1 1 " in first  # what varies, the smallest first
    for path in kept:
        assert f" {100 * results.load(path)['test_accuracy'].item():.4g} 1 " in first
    again = dolb("sweep", "batch-size", "--store", tmp_path, *TINY)
    assert f"{len(kept)} runs, {len(kept)} in" in again
    assert kept == {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.nc")}


@pytest.fixture
def photographs(tmp_path):
    """A folder of images, two classes of twelve to train on, as the name of a data set and where it is."""
    pixels = np.random.default_rng(0).integers(0, 256, (48, 8, 8, 3)).astype(np.uint8)
    for k, image in enumerate(pixels):
        folder = tmp_path / "data" / "photos" / ("train" if k % 2 else "test") / ("cat" if k % 4 > 1 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(folder / f"{k}.png")
    return "imagefolder:photos", tmp_path / "data"


def test_a_sweep_on_another_data_set_has_runs_of_its_own(photographs, tmp_path):
    name, folder = photographs
    narrow = ["--batch-sizes", "16", *TINY[2:], "--store", tmp_path / "store"]
    dolb("sweep", "batch-size", *narrow)
    name = f"imagefolder:{folder / 'photos'}"
    said = dolb("sweep", "batch-size", "--data", name, *narrow)
    assert "1 runs, 0 in" in said
    assert "batch_size lr accuracy seeds 16 0.1 " in said
    store = results.RunStore(tmp_path / "store")
    assert {str(store.get(key)["data"].item()) for key in store.keys()} == {"digits", name}  # noqa: SIM118


def test_on_another_data_set_nothing_else_of_an_experiment_changes():
    # Those of strong-weak are volumes, as many as LUNA16 has.
    for slug in (slug for slug in recipes.RECIPES if recipes.takes(slug, "data") and slug != "strong-weak"):
        own, other = recipes.configs(slug, "demo"), recipes.configs(slug, "demo", data="mine")
        assert [run.as_dict() | {"data": "mine"} for run in own] == [run.as_dict() for run in other], slug


def test_winners_on_another_data_set_follow_from_the_search_on_it(tmp_path):
    slug, narrow = "large-batch-remedies", {"methods": ["lars"], "batch_sizes": [128]}
    store = results.RunStore(tmp_path)
    for run in recipes.configs(slug, "demo", part="search", data="mine", **narrow):
        store.put(made_run((0.5,) * run.epochs, **run.as_dict()))
    winners = ["sweep", slug, "--part", "winners", "--methods", "lars", "--batch-sizes", "128", "--dry-run"]
    assert "4 runs, 0 in" in dolb(*winners, "--data", "mine", "--store", tmp_path)
    said = dolb(*winners, "--store", tmp_path, code=2)
    assert "follows from the search" in said
    assert "of which 4 runs are not there" in said


def test_a_dry_run_trains_nothing_and_its_lines_tell_runs_apart(tmp_path):
    paper = ["sweep", "batch-size", "--scale", "paper", "--dry-run", "--store", tmp_path / "none"]
    assert "batch_size 20480" in dolb(*paper)
    assert not (tmp_path / "none").exists()
    for slug, scale in itertools.product(recipes.RECIPES, ("demo", "paper")):
        configs = recipes.configs(slug, scale)
        lines = [line.split(maxsplit=1)[1] for line in cli._listing(configs, set())]
        assert len(set(lines)) == len({config.key for config in configs}), slug
    *others, last = cli._listing(configs, {configs[-1].key})
    assert last.endswith("(done)")
    assert not any(line.endswith("(done)") for line in others)


def test_storage_is_measured_for_a_gpu_with_the_network_and_the_workers_of_one():
    said = dolb("sweep", "data-pipeline", "--scale", "paper", "--part", "training", "--device", "cuda", "--dry-run")
    assert "60 runs" in said  # six forms in two orders, five seeds
    assert said.count("loader_workers 16") == said.count("arch resnet50") == 60


def test_ranks_are_measured_on_gpus_where_these_are_asked_for_or_not_at_all():
    asked = ("--scale", "paper", "--device", "cuda", "--ranks", "1,2", "--dry-run")
    assert "device_kind cuda" in dolb("sweep", "ddp-vs-horovod", *asked)
    assert "step-timeline measures on the CPU" in dolb("sweep", "step-timeline", *asked, code=2)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A folder that looks like the project's, and is the current one."""
    for folder in ("notebooks", "results"):
        (tmp_path / folder).mkdir()
    (tmp_path / "_toc.yml").write_text("format: jb-book\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_publishing_merges_the_studys_own_runs_into_the_results(checkout):
    store, publish = results.RunStore(checkout / "store"), ["publish", "batch-size", "--store", checkout / "store"]
    assert "dolb sweep batch-size" in dolb(*publish, code=2)
    store.put(made_run((0.5,) * 5, data="imagefolder:mine", arch="resnet18"))
    assert "holds no finished run of batch-size" in dolb(*publish, code=2)
    store.put(made_run((0.5,) * 5, data="cifar10", arch="resnet18", subset="mine-0a1b2c3d"))
    store.put(made_run((0.5,) * 5, data="cifar10", arch="resnet18", seed=1))
    (store.folder / "mine.nc").write_text("my own notes")
    said = dolb(*publish)
    assert "1 runs, 1 of them new" in said
    assert "left alone, as no key names them: mine.nc" in said
    store.put(made_run((0.6,) * 5, data="cifar10", arch="resnet18", seed=2))
    assert "2 runs, 1 of them new" in dolb(*publish)
    assert results.load(checkout / "results" / "batch-size.nc")["seed"].values.tolist() == [1, 2]
    store.put(made_run((0.6,) * 5, data="digits", seed=3))
    assert "demo runs" in dolb(*publish, code=2)


@pytest.fixture
def small_disk(tmp_path, require_part):
    """A disk of 300 KB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", folder], capture_output=True)
    require_part("mount", mounted.returncode == 0, "only root can make a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.mark.parametrize("command", [["restore", "batch-size"], ["sweep", "batch-size", *TINY, "--seeds", "0,1,2,3,4"]])
@pytest.mark.faults
def test_a_full_disk_ends_a_command_in_one_line_and_leaves_whole_files(small_disk, command):
    said = dolb(*command, "--store", small_disk, code=2)
    assert said.endswith("cannot be written (No space left on device)")
    store = results.RunStore(small_disk)
    assert all(store.get(key) is not None for key in store.keys())  # noqa: SIM118
    assert not list(small_disk.rglob(".*.tmp"))


def test_publishing_counts_the_runs_of_equal_updates_among_those_that_lack(checkout):
    slug, sizes = "filtered-small-batch", {"full": 50_000, recipes.masks("paper")["network"].subset: 47_438}
    store, plain = results.RunStore(checkout / "store"), recipes.configs(slug, "paper")
    whole = recipes.configs(slug, "paper", kept=(47_438, 50_000))
    assert len(whole) > len(plain)
    for count, subset in enumerate(sizes, 1):
        config = next(config for config in plain if config.subset == subset)
        ds = made_run((0.5,) * config.epochs, **config.as_dict())
        store.put(ds.assign(training_examples=("run", [sizes[subset]])))
        said = dolb("publish", slug, "--store", store.folder)
        grid = whole if count == len(sizes) else plain
        assert f"the paper grid lacks {len(grid) - count}" in said
        assert ("those of equal updates" in said) == (count < len(sizes))  # they are known once both sizes are


def test_runs_of_a_tree_with_changes_are_published_only_if_told(checkout):
    store = results.RunStore(checkout / "store")
    made = made_run((0.5,) * 5, data="cifar10", arch="resnet18")
    store.put(made.assign(commit=("run", ["0" * 40 + "+changes"])))
    refused = dolb("publish", "batch-size", "--store", store.folder, code=2)
    assert "1 runs were made from a tree with changes" in refused
    assert made["key"].item() in refused
    assert not (checkout / "results" / "batch-size.nc").exists()
    dolb("publish", "batch-size", "--store", store.folder, "--allow-changes")
    dolb("publish", "batch-size", "--store", store.folder)  # what is published already is not refused


def test_what_is_simulated_is_renewed_without_a_new_measurement_and_not_restored(checkout):
    measured, old = (
        made_measurement(experiment="step-timeline", data="cifar10", repeat=repeat).assign(same_order=("run", [True]))
        for repeat in (0, 1)
    )
    old["source"] = ("run", ["simulated"])
    results.save(results.merge([measured, old]), checkout / "results" / "step-timeline.nc")
    said = dolb("publish", "step-timeline", "--store", checkout / "store")
    ds = results.load(checkout / "results" / "step-timeline.nc")
    kept = ds.isel(run=(ds["source"] == "measured").to_numpy())
    assert kept["key"].values.tolist() == measured["key"].values.tolist()
    assert old["key"].item() not in ds["key"].values
    assert (ds["source"] == "simulated").any()
    assert f"{(ds['source'] == 'simulated').sum().item()} of them new" in said
    assert "1 of them new" in dolb("restore", "step-timeline", "--store", checkout / "store")
    assert results.RunStore(checkout / "store").keys() == measured["key"].values.tolist()


def test_steps_are_published_with_those_of_more_workers_on_every_device(checkout):
    store = results.RunStore(checkout / "store")
    for kind in ("cpu", "cuda"):
        made = made_steps(kind=kind).assign(device=lambda ds, kind=kind: ("run", [kind] * ds.sizes["run"]))
        for one in results.split(made.isel(run=made["source"].to_numpy() == "measured")):
            store.put(one)
    dolb("publish", "strong-weak-steps", "--store", store.folder)
    ds = results.load(checkout / "results" / "strong-weak-steps.nc")
    assert set(ds["device"].to_numpy()) == {"cpu", "cuda", "none: simulated"}
    simulated = ds.isel(run=ds["source"].to_numpy() == "simulated")
    assert set(simulated["ranks"].to_numpy()) == {2, 4, 8, 16, 32}


def test_publishing_from_another_machine_counts_what_is_new_and_says_what_is_left_out(checkout):
    store = results.RunStore(checkout / "store")
    made = {"experiment": "step-timeline", "data": "cifar10"}
    for repeat in range(3):
        store.put(made_measurement(device="old", repeat=repeat, **made).assign(same_order=("run", [True])))
    dolb("publish", "step-timeline", "--store", store.folder)
    newer = results.RunStore(checkout / "newer")
    newer.put(made_measurement(device="new", repeat=3, **made).assign(same_order=("run", [True])))
    with pytest.warns(UserWarning, match="left out: 3 on 'old'"):
        said = dolb("publish", "step-timeline", "--store", newer.folder)
    assert "1 of them new" in said  # though there are fewer runs than before


def test_a_sweep_goes_on_from_restored_runs_and_masks(checkout, tmp_path):
    slug, store = "filtered-small-batch", tmp_path / "fresh"
    runs = recipes.configs(slug, "paper", batch_sizes=[64])
    results.save(
        results.merge([made_run((0.5,) * run.epochs, **run.as_dict()) for run in runs[:3]]),
        checkout / "results" / f"{slug}.nc",
    )
    shutil.copy(Path(__file__).parents[1] / "results" / "noise.nc", checkout / "results")
    said = dolb("restore", slug, "--store", store)
    assert "3 of them new" in said
    assert "3 in" in dolb("sweep", slug, "--scale", "paper", "--store", store, "--dry-run")
    network = recipes.masks("paper")["network"]
    ds = results.RunStore(store).get(network.key)
    assert ds["keep"].sum() == 50_000 - round(network.share * 50_000) + 1
    again = dolb("restore", slug, "--store", store)
    assert again.count("0 of them new") == 2


def test_winners_of_a_search_are_swept_from_its_store_a_restored_one_and_what_is_published(
    checkout, tmp_path, monkeypatch
):
    monkeypatch.setenv("DOLB_RESULTS", str(checkout / "results"))
    slug = "large-batch-remedies"
    narrowed = {"methods": ["lars"], "batch_sizes": [1024]}
    store, search = results.RunStore(checkout / "store"), recipes.configs(slug, "paper", part="search", **narrowed)
    for place, run in enumerate(search):
        accuracy = 0.9 if run.optimizer == "lars" and place == len(search) - 1 else 0.5
        store.put(made_run((accuracy,) * run.epochs, **run.as_dict()))
    winners = ["sweep", slug, "--scale", "paper", "--part", "winners", "--methods", "lars", "--batch-sizes", "1024"]
    said = dolb(*winners, "--dry-run", "--store", store.folder)
    assert "10 runs, 0 in" in said  # plain and LARS, five seeds each
    assert said.count(f"lr {search[-1].lr} ") == 5
    assert f"the paper grid lacks {256 - len(search) + 10}, and those that may" in dolb(
        "publish", slug, "--store", store.folder
    )
    dolb("restore", slug, "--store", tmp_path / "fresh")
    for folder in (tmp_path / "fresh", tmp_path / "none"):
        assert dolb(*winners, "--dry-run", "--store", folder).count("optimizer lars") == 5


@pytest.mark.slow
def test_plain_papermill_runs_the_notebook_from_any_folder(repo_root, tmp_path):
    command = [sys.executable, "-m", "papermill", repo_root / "notebooks" / "01-batch-size.ipynb", "out.ipynb"]
    parameters = ["-p", "scale", "demo", "-y", "{archs: [smallnet-4], batch_sizes: [256, 1024], lrs: [0.1], epochs: 1}"]
    with held_to_one_core():
        subprocess.run([*command, *parameters], cwd=tmp_path, check=True, capture_output=True, timeout=240)
    outputs = [out for cell in nbformat.read(tmp_path / "out.ipynb", 4).cells for out in cell.get("outputs", [])]
    assert any("Demo: small networks on digits" in str(out) for out in outputs)


@pytest.mark.slow
def test_a_notebook_that_is_interrupted_ends_in_a_line_and_its_runs_are_kept(tmp_path):
    narrow = ["-p", "archs=['smallnet-4']", "-p", "batch_sizes=256,1024", "-p", "epochs=2000"]
    command = [sys.executable, "-m", "dolb.cli", "run", "batch-size", "--scale", "demo", *narrow]
    command += ["-p", f"store={tmp_path / 'store'}", "--output", str(tmp_path / "out.ipynb")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as run:
        next(line for line in run.stderr if line.startswith("runs: "))
        run.send_signal(signal.SIGINT)
        said = run.stderr.read()
    assert run.returncode == 130
    assert "the same command goes on from there" in said
    assert "Traceback" not in said
    assert list((tmp_path / "store" / "paused").iterdir())


def about(**changes):
    """What the pipeline notes of a mask."""
    config = FilterConfig(experiment="noise", data="imagefolder:photos", trained_by="0" * 16, **changes)
    known = {"commit": "made", "feature_width": 16, "network_accuracy": 0.9, "seconds": 1.0, "peak_memory_bytes": 1}
    return config, {**config.as_dict(), "key": config.key, **known}


def test_publishing_noise_writes_the_images_of_the_map_where_the_data_set_is(photographs, checkout, tmp_path):
    name, folder = photographs
    photos = data.load(name, folder)
    place = np.random.default_rng(1).normal(size=(len(photos.train_labels), 2))
    keep = np.arange(len(place)) > 3
    until = noise.noise_until(place, photos.train_labels)
    store = results.RunStore(tmp_path / "store")
    first, known = about()
    store.put(masks.keep_dataset(keep, photos, first.subset, coordinates=place, noise_until=until, about=known))
    other, known = about(filter="random", size_of=first.key)
    store.put(masks.keep_dataset(keep[::-1].copy(), photos, other.subset, about=known))
    path = tmp_path / "results" / "noise-images.npz"
    text = dolb("publish", "noise", "--store", store.folder, "--data-dir", tmp_path / "elsewhere")
    assert "2 runs, 2 of them new" in text
    assert "noise-images.npz is not renewed, as its images are not here" in text
    assert not path.exists()
    assert f"{len(place)} images" in dolb("publish", "noise", "--store", store.folder, "--data-dir", folder)
    images = viewer.Thumbnails.load(path)
    assert images.fingerprint == photos.fingerprint
    # Of several masks the page shows the one whose size others have.
    dolb("view", tmp_path / "results" / "noise.nc", "--data-dir", folder, "--output", tmp_path / "page", "--no-open")
    assert "4 of 24" in (tmp_path / "page" / "index.html").read_text()


@pytest.fixture
def decided(tmp_path):
    """The file of decisions of a review that dropped twenty examples, and the mask whose map was viewed."""
    digits = data.load("digits")
    pixels = digits.train_images.reshape(len(digits.train_labels), -1).astype(float)
    coordinates = PCA(2, random_state=0).fit_transform(pixels)
    until = noise.noise_until(coordinates, digits.train_labels)
    how = {"coordinates": coordinates, "noise_until": until}
    mask = masks.save_keep(tmp_path / "keep.nc", until <= np.quantile(until, 0.95), digits, "network", **how)
    path = tmp_path / "digits-decisions.json"
    path.write_text(json.dumps(decisions.header(digits) | {"dropped": list(range(20))}))
    return path, mask


@pytest.mark.slow
def test_view_serves_the_page_and_opens_a_browser_until_it_is_stopped(decided, tmp_path):
    _, path = decided
    opened, browser = tmp_path / "opened.txt", tmp_path / "browser.sh"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    program = [sys.executable, "-u", "-m", "dolb.cli", "view", str(path), "--port", "0"]
    environment = {**os.environ, "BROWSER": str(browser)}
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True, env=environment) as server:
        said = next(line for line in server.stdout if "serving" in line)
        address = re.search(r"http://127\.0\.0\.1:\d+/", said)[0]
        try:
            straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine needs no proxy
            with straight.open(address, timeout=60) as answer:
                assert b"dolb-viewer" in answer.read()
            wait_until(lambda: opened.exists() and opened.read_text().strip() == address)
            server.send_signal(signal.SIGINT)
            assert server.wait(timeout=60) == 0
        finally:
            server.kill()


def test_keep_makes_a_mask_of_decisions_which_can_be_viewed_again(decided, tmp_path):
    path, viewed = decided
    target = tmp_path / "mine.nc"
    assert "20 of 1,437 examples of digits are dropped" in dolb("keep", path, "--map", viewed, "--output", target)
    keep = masks.load_keep(target, data.load("digits"))
    assert np.flatnonzero(~keep).tolist() == list(range(20))
    page = tmp_path / "page" / "index.html"
    assert str(page) in dolb("view", target, "--output", page.parent, "--no-open")
    assert "20 of 1,437" in page.read_text()


def test_what_cannot_be_written_where_asked_is_a_clear_error(decided, tmp_path, read_only):
    for words in (["keep", decided[0]], ["view", decided[1], "--no-open"], ["run", "batch-size"]):
        with read_only(tmp_path):
            text = dolb(*words, "--output", tmp_path / "new" / "out.ipynb", code=2)
        assert "error:" in text
        assert str(tmp_path) in text


OWN = ["--sets", "full", "--batch-sizes", "256", "--seeds", "0", "--epochs", "1"]


@pytest.mark.slow
def test_a_sweep_trains_on_a_mask_of_ones_own_and_another_one_makes_other_runs(decided, tmp_path):
    path, _ = decided
    slug, store = "filtered-large-batch", tmp_path / "store"
    # An epoch of all and one of the rest have six updates either way, so equal epochs and equal updates are one run.
    dolb("sweep", slug, *OWN, "--keep", f"mine={path}", "--store", store)
    runs = results.merge(map(results.load, sorted(store.glob("*.nc"))))
    trained = {
        str(run["subset"].item()).split("-")[0]: run["training_examples"].item() for _, run in runs.groupby("run")
    }
    assert trained == {"full": 1437, "mine": 1437 - 20}
    assert not (store / "networks").exists()  # no network is trained for masks that nobody asked for
    assert "2 runs, 2 in" in dolb("sweep", slug, *OWN, "--keep", f"mine={path}", "--store", store, "--dry-run")
    path.write_text(path.read_text().replace("[0, ", "["))
    assert "2 runs, 1 in" in dolb("sweep", slug, *OWN, "--keep", f"mine={path}", "--store", store, "--dry-run")
