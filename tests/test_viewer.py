"""The viewer's page as Python writes it: its numbers, its images, its size, and what it refuses."""

import base64
import io
import json
import re
import sys
import warnings

import numpy as np
import pytest
import xarray as xr
from PIL import Image

from dolb import data, results, viewer
from dolb.filtering import noise
from dolb.findings import noise as study


@pytest.fixture(scope="module")
def made():
    """Two thousand points in three classes, with noise radii and the mask of eps 0.5."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 2000)
    coordinates = rng.normal(size=(2000, 2)) * 6 + label[:, None] * 20
    until = noise.noise_until(coordinates, label)
    arrays = {
        "x": coordinates[:, 0],
        "y": coordinates[:, 1],
        "label": label,
        "keep": until <= 0.5,
        "noise_until": until,
    }
    return xr.Dataset({name: ("example", values) for name, values in arrays.items()})


def page_data(shown):
    """Return what the page's script is given."""
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', shown.html)[1])


def array(text, kind):
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_the_page_answers_as_dbscan_does_at_every_step_of_the_slider(made):
    given = page_data(viewer.show(made))
    until = array(given["removedUntil"], "<u2")
    coordinates = np.stack([made["x"], made["y"]], axis=1)
    for step in range(0, len(given["eps"]), 20):
        clusters = noise.ClassDBSCAN(eps=given["eps"][step], on_empty_class="keep")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a class is noise whole, at a small eps
            labels = clusters.fit_predict(coordinates, made["label"].values)
        assert ((step < until) == (labels == -1)).all()


def test_the_slider_starts_at_the_eps_that_gives_the_mask(made):
    given = page_data(viewer.show(made))
    assert given["eps"][given["start"]] == 0.5
    assert given["rule"] == "eps"
    asked = page_data(viewer.show(made, eps=0.731))
    assert asked["eps"][asked["start"]] == 0.731


@pytest.mark.parametrize("eps", [0.5, 1.0, 0.37, 2.25])
def test_the_eps_of_a_mask_is_found_in_as_few_digits_as_can_be(made, eps):
    until = made["noise_until"].values
    found = viewer.eps_of(until <= eps, until)
    assert ((until <= found) == (until <= eps)).all()
    assert len(f"{found:g}") <= len(f"{eps:g}") + 1


def test_a_mask_that_no_eps_gives_is_shown_as_it_is(made):
    at_random = made.assign(keep=("example", np.random.default_rng(1).random(2000) < 0.9))
    assert viewer.eps_of(at_random["keep"].values, at_random["noise_until"].values) is None
    given = page_data(viewer.show(at_random))
    assert given["rule"] == "mask"
    assert f"{(~at_random['keep']).sum().item():,} of 2,000" in repr(viewer.show(at_random))


def test_a_mask_without_noise_radii_has_no_slider(made):
    shown = viewer.show(made.drop_vars("noise_until"))
    assert page_data(shown)["eps"] == []
    assert re.search(r'class="dv-eps" hidden', shown.html)
    with pytest.raises(ValueError, match="no noise_until"):
        viewer.show(made.drop_vars("noise_until"), eps=0.5)


def test_coordinates_keep_their_proportions(made):
    given = page_data(viewer.show(made))
    drawn = array(given["xy"], "<u2").reshape(-1, 2).astype(float)
    place = np.stack([made["x"], made["y"]], axis=1)
    unit = np.ptp(place, axis=0).max() / (2**16 - 1)
    moved = (place - place[0]) / unit - (drawn - drawn[0])
    assert np.abs(moved).max() <= 1.01  # each of two points is rounded by half a step


def test_the_words_say_the_share_of_each_class(made):
    words = repr(viewer.show(made, classes=["ant", "bee", "cat"]))
    for k, name in enumerate(["ant", "bee", "cat"]):
        removed = ~made["keep"].values[made["label"].values == k]
        assert f"{name}: {removed.sum():,} of {len(removed):,} ({removed.mean():.2%})" in words


def test_names_cannot_break_out_of_the_page(made):
    shown = viewer.show(made, classes=["</script><b>", "b", "c"], title='"><i>')
    assert "</script><b>" not in shown.html
    assert '"><i>' not in shown.html.replace(json.dumps('"><i>'), "")
    assert page_data(shown)["classes"][0] == "</script><b>"


def test_every_removed_example_and_as_many_others_as_asked_are_shown(made):
    shown = viewer.examples_to_show(made, others=100)
    keep, until = made["keep"].values, made["noise_until"].values
    assert set(np.flatnonzero(~keep)) <= set(shown)
    others = shown[keep[shown]]
    assert len(others) == 100
    # Half of the others are the next to be removed: nobody who is left out would go before one of them.
    left_out = np.setdiff1d(np.flatnonzero(keep), others)
    assert np.sort(until[others])[-50] >= until[left_out].max()


def test_thumbnails_of_digits_are_exact_and_each_at_its_place(tmp_path):
    digits = data.load("digits")
    examples = np.array([5, 0, 900, 33, 7])
    sheet = viewer.thumbnails(digits.train_images[examples], examples, digits.fingerprint)
    back = viewer.Thumbnails.load(sheet.save(tmp_path / "images.npz"))
    assert back.fingerprint == digits.fingerprint
    pixels = np.asarray(Image.open(io.BytesIO(back.sheet)))
    for position, example in enumerate(back.examples):
        row, column = divmod(position, back.columns)
        tile = pixels[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        assert (tile[..., :1] == digits.train_images[example]).all()


def test_equal_thumbnails_make_equal_files_whenever_they_are_saved(made, tmp_path, monkeypatch):
    pixels = np.random.default_rng(2).integers(0, 256, (2000, 4, 4, 1)).astype(np.uint8)
    sheet = viewer.thumbnails_of(made, pixels, others=50)
    first = sheet.save(tmp_path / "a.npz").read_bytes()
    monkeypatch.setattr("time.time", lambda: 2e9)
    assert sheet.save(tmp_path / "b.npz").read_bytes() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz", "b.npz"]


def test_thumbnails_of_a_map_are_of_all_that_is_removed_and_of_others(made):
    pixels = np.random.default_rng(2).integers(0, 256, (2000, 4, 4, 1)).astype(np.uint8)
    sheet = viewer.thumbnails_of(made, pixels, "sha256:a", others=50)
    assert set(np.flatnonzero(~made["keep"].values)) <= set(sheet.examples)
    assert len(sheet.examples) == int((~made["keep"]).sum()) + 50
    with pytest.raises(ValueError, match="there are 1999 images, and the map is of other data: 2000 examples"):
        viewer.thumbnails_of(made, pixels[1:])


def test_the_published_images_are_those_of_the_published_map(repo_root):
    path = repo_root / "results" / "noise.nc"
    if not path.exists():
        pytest.skip("no masks are published yet")
    mask = study.reference(results.load(path))
    images = viewer.Thumbnails.load(repo_root / "results" / "noise-images.npz")
    assert images.fingerprint == str(mask["data_fingerprint"].item())
    keep = mask["keep"].values.astype(bool)
    assert set(np.flatnonzero(~keep)) <= set(images.examples)
    assert keep[images.examples].sum() >= 5000


def test_thumbnails_of_photographs_are_smaller_than_their_pixels_and_close_to_them():
    from sklearn.datasets import load_sample_image

    photo = load_sample_image("china.jpg")[:416, :640]
    tiles = photo.reshape(13, 32, 20, 32, 3).swapaxes(1, 2).reshape(-1, 32, 32, 3)
    images = np.concatenate([np.roll(tiles, shift, axis=2) for shift in range(0, 32, 2)])
    sheet = viewer.thumbnails(images, np.arange(len(images)))
    assert len(sheet.sheet) < images.nbytes / 3
    pixels = np.asarray(Image.open(io.BytesIO(sheet.sheet))).astype(int)
    tile = pixels[:32, 32:64] - images[1].astype(int)
    assert np.abs(tile).mean() < 12


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ds: ds.drop_vars("x"), "lacks x"),
        (lambda ds: ds.assign(x=ds["x"].where(ds["x"] > 0)), "NaN"),
        (lambda ds: ds.assign(noise_until=ds["noise_until"].where(ds["x"] > 0)), "NaN"),
        (lambda ds: ds.assign(label=ds["label"] + 7), "labels run from 7 to 9"),
    ],
    ids=["no map", "NaN coordinates", "NaN radii", "labels"],
)
def test_what_cannot_be_drawn_is_refused(made, change, message):
    with pytest.raises(ValueError, match=message):
        viewer.show(change(made), classes=["a", "b", "c"])


def test_images_of_other_data_or_of_no_example_are_refused(made):
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="other data"):
        viewer.show(
            made.assign_coords(data_fingerprint=("run", ["sha256:a"])),
            viewer.thumbnails(images, np.arange(2), "sha256:b"),
        )
    with pytest.raises(ValueError, match="up to 2000"):
        viewer.show(made, viewer.thumbnails(images, np.array([0, 2000])))
    with pytest.raises(ValueError, match="twice"):
        viewer.thumbnails(images, np.array([1, 1]))
    with pytest.raises(ValueError, match="uint8"):
        viewer.thumbnails(images.astype(float), np.arange(2))


def test_a_sheet_too_large_for_a_page_is_made_smaller_by_its_quality(monkeypatch):
    sheets = sys.modules["dolb.viewer.thumbnails"]  # as an attribute of the package it is the function
    noisy = np.random.default_rng(0).integers(0, 256, (400, 32, 32, 3), dtype=np.uint8)
    monkeypatch.setattr(sheets, "LOSSLESS_BYTES", 0)
    fine = len(sheets.thumbnails(noisy, np.arange(400)).sheet)
    monkeypatch.setattr(sheets, "SHEET_BYTES", fine - 1)
    assert len(sheets.thumbnails(noisy, np.arange(400)).sheet) < fine
    monkeypatch.setattr(sheets, "SHEET_BYTES", 0)
    assert len(sheets.thumbnails(noisy, np.arange(400)).sheet) > 0  # the least there is, if none is small enough


def test_a_page_that_would_be_too_large_is_refused(made):
    large = viewer.Thumbnails(np.arange(1, dtype=np.int32), b"\0" * viewer.MOST_BYTES, 1, 1, 1)
    with pytest.raises(ValueError, match="fewer images"):
        viewer.show(made, large)


def test_the_bundle_carries_the_licence_of_every_package_in_it(repo_root):
    lock = json.loads((repo_root / "deploy" / "scatterplot" / "package-lock.json").read_text())["packages"]
    bundle = (repo_root / "dolb" / "viewer" / "scatterplot.js").read_text()
    for path, package in lock.items():
        name = path.removeprefix("node_modules/")
        if name and "esbuild" not in name:
            assert package["license"] in ("MIT", "ISC")
            assert f"{name.rpartition('node_modules/')[2]} {package['version']} ({package['license']})" in bundle


def test_only_a_page_that_is_told_of_the_data_can_be_reviewed_on(made):
    plain, reviewed = viewer.show(made), viewer.show(made, review={"data": "made", "data_fingerprint": "sha256:0"})
    for part in ("class Review", 'data-review="drop"'):
        assert part in reviewed.html
        assert part not in plain.html
    assert page_data(reviewed)["review"] == {"data": "made", "data_fingerprint": "sha256:0"}
