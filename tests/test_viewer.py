"""The viewer's page as Python writes it: its numbers, its images, its size, and what it refuses."""

import base64
import http.client
import io
import json
import re
import sys
import threading
import warnings

import numpy as np
import pytest
import xarray as xr
from PIL import Image
from waiting import wait_until

from dolb import data, results, viewer
from dolb.filtering import noise
from dolb.findings import noise as study

CLASSES = ["ant", "bee", "cat"]
IMAGES = viewer.thumbnails(np.zeros((2000, 4, 4, 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def made():
    """Two thousand points in three classes, with noise radii and the mask of eps 0.5."""
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 2000)
    coordinates = rng.normal(size=(2000, 2)) * 6 + label[:, None] * 20
    until = noise.noise_until(coordinates, label)
    x, y = coordinates.T
    arrays = {"x": x, "y": y, "label": label, "keep": until <= 0.5, "noise_until": until}
    return xr.Dataset({name: ("example", values) for name, values in arrays.items()})


@pytest.fixture
def show(tmp_path):
    """Show a map with images and classes, unless others are given."""

    def shown(ds, images=IMAGES, classes=CLASSES, title="A map", **more):
        return viewer.show(ds, images, classes, title=title, files=tmp_path / "03-noise-files", **more)

    return shown


def page_data(shown):
    """Return what the page's script is given."""
    return json.loads(re.search(r'<script type="application/json"[^>]*>(.*?)</script>', shown.html)[1])


def array(text, kind):
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_the_page_answers_as_dbscan_does_from_the_eps_of_the_mask_to_every_step_of_the_slider(show, made):
    given = page_data(show(made))
    assert (given["eps"][given["start"]], given["rule"]) == (0.5, "eps")
    until = array(given["removedUntil"], "<u2")
    coordinates = np.stack([made["x"], made["y"]], axis=1)
    for step in range(0, len(given["eps"]), 20):
        clusters = noise.ClassDBSCAN(eps=given["eps"][step])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a class is noise whole, at a small eps
            labels = clusters.fit_predict(coordinates, made["label"].values)
        assert ((step < until) == (labels == -1)).all()
    drawn = array(given["xy"], "<u2").reshape(-1, 2).astype(float)
    unit = np.ptp(coordinates, axis=0).max() / (2**16 - 1)
    moved = (coordinates - coordinates[0]) / unit - (drawn - drawn[0])
    assert np.abs(moved).max() <= 1.01  # each of two points is rounded by half a step


@pytest.mark.parametrize("eps", [0.5, 1.0, 0.37, 2.25])
def test_the_eps_of_a_mask_is_found_in_as_few_digits_as_can_be(made, eps):
    until = made["noise_until"].values
    found = viewer.eps_of(until <= eps, until)
    assert ((until <= found) == (until <= eps)).all()
    assert len(f"{found:g}") <= len(f"{eps:g}") + 1


@pytest.mark.parametrize("radii", [True, False], ids=["radii", "no radii"])
def test_a_mask_that_no_eps_gives_is_shown_as_it_is(show, made, radii):
    at_random = made.assign(keep=("example", np.random.default_rng(1).random(2000) < 0.9))
    shown = show(at_random if radii else at_random.drop_vars("noise_until"))
    given = page_data(shown)
    assert (given["rule"], len(given["eps"]) > 1) == ("mask", radii)
    assert f"{(~at_random['keep']).sum().item():,} of 2,000" in repr(shown)


def test_the_words_say_the_share_of_each_class_and_names_cannot_break_out_of_the_page(show, made):
    shown = show(made, classes=["</script><b>", "bee", "cat"], title='"><i>')
    for k, name in enumerate(["</script><b>", "bee", "cat"]):
        removed = ~made["keep"].values[made["label"].values == k]
        assert f"{name}: {removed.sum():,} of {len(removed):,} ({removed.mean():.2%})" in repr(shown)
    assert "</script><b>" not in shown.html
    assert '"><i>' not in shown.html.replace(json.dumps('"><i>'), "")
    assert page_data(shown)["classes"][0] == "</script><b>"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ds: ds.assign(x=ds["x"].where(ds["x"] > 0)), "NaN"),
        (lambda ds: ds.assign(noise_until=ds["noise_until"].where(ds["x"] > 0)), "NaN"),
        (lambda ds: ds.assign(label=ds["label"] + 7), "labels run from 7 to 9"),
        (lambda ds: ds.assign_coords(data_fingerprint=("run", ["sha256:a"])), "other data"),
    ],
    ids=["NaN coordinates", "NaN radii", "labels", "images"],
)
def test_what_cannot_be_drawn_is_refused(show, made, change, message):
    images = viewer.thumbnails(np.zeros((2, 4, 4, 3), dtype=np.uint8), None, "sha256:b")
    with pytest.raises(ValueError, match=message):
        show(change(made), images)


def test_the_bundle_carries_the_licence_of_every_package_in_it(repo_root):
    lock = json.loads((repo_root / "deploy" / "scatterplot" / "package-lock.json").read_text())["packages"]
    bundle = (repo_root / "dolb" / "viewer" / "scatterplot.js").read_text()
    for path, package in lock.items():
        name = path.removeprefix("node_modules/")
        if name and "esbuild" not in name:
            assert package["license"] in ("MIT", "ISC")
            assert f"{name.rpartition('node_modules/')[2]} {package['version']} ({package['license']})" in bundle


def test_only_a_page_that_is_told_of_the_data_can_be_reviewed_on(show, made):
    plain, reviewed = show(made), show(made, review={"data": "made", "data_fingerprint": "sha256:0"})
    for part in ("class Review", 'data-review="drop"'):
        assert part in reviewed.html
        assert part not in plain.html
    assert page_data(reviewed)["review"] == {"data": "made", "data_fingerprint": "sha256:0"}


# Images


def test_thumbnails_of_digits_are_exact_and_each_at_its_place(tmp_path):
    digits = data.load("digits")
    examples = np.array([5, 0, 900, 33, 7])
    sheets = viewer.thumbnails(digits.train_images[examples], examples, digits.fingerprint)
    saved = sheets.save(tmp_path / "images.npz")
    back = viewer.Thumbnails.load(saved)
    assert (back.fingerprint, back.sheets) == (digits.fingerprint, sheets.sheets)
    pixels = np.asarray(Image.open(io.BytesIO(back.sheets[0])))
    for position, example in enumerate(back.examples):
        row, column = divmod(position, back.columns)
        tile = pixels[row * 8 : row * 8 + 8, column * 8 : column * 8 + 8]
        assert (tile[..., :1] == digits.train_images[example]).all()
    again = sheets.save(tmp_path / "again.npz")
    assert again.read_bytes() == saved.read_bytes()  # no time is noted: git sees no change


def test_many_images_go_on_several_sheets_within_the_bytes_that_git_keeps(monkeypatch):
    sheets = sys.modules["dolb.viewer.thumbnails"]  # as an attribute of the package it is the function
    noisy = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), dtype=np.uint8)
    monkeypatch.setattr(sheets, "MOST_BYTES", 4_000_000)
    made = viewer.thumbnails(noisy)
    assert (len(made.sheets), made.per_sheet) == (2, 2500)
    assert sum(map(len, made.sheets)) < 4_000_000


def test_large_files_lie_beside_the_page(show, made, tmp_path):
    page = viewer.write_page(tmp_path / "page", made, IMAGES, CLASSES, title="Map")
    assert sorted(path.name for path in page.parent.iterdir()) == ["images-00.webp", "index.html", "scatterplot.js"]
    text = page.read_text()
    assert '"sheets":["images-00.webp"]' in text
    assert '<script src="scatterplot.js">' in text
    assert page_data(show(made))["images"]["sheets"] == ["03-noise-files/images-00.webp"]


def test_the_published_images_are_of_every_point_of_the_published_maps():
    mask, maps = study.reference(results.published("noise")), results.published("features")
    images = viewer.Thumbnails.load(results.published_file("noise-images.npz"))
    assert images.fingerprint == str(mask["data_fingerprint"].item())
    assert np.array_equal(images.examples, np.arange(mask.sizes["example"]))
    drawn = viewer.Thumbnails.load(results.published_file("features-images.npz"))
    assert np.array_equal(drawn.examples, study.points(maps, data.class_names("cifar10"))["example"])


def test_nothing_but_the_files_of_a_page_is_served_and_only_to_this_machine(made, tmp_path):
    folder = viewer.write_page(tmp_path / "page", made, IMAGES, CLASSES, title="A map").parent
    (folder / "private.txt").write_text("mine")
    (folder / "images-01.webp").symlink_to(folder / "private.txt")
    told: list[str] = []
    threading.Thread(target=viewer.serve, args=(folder, 0, told.append, False), daemon=True).start()
    wait_until(lambda: told)
    port = int(re.search(r":(\d+)/", told[0])[1])

    def ask(path, host="127.0.0.1"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse()

    assert b"dolb-viewer" in ask("/").read()
    assert [ask(path).status for path in ("/scatterplot.js", "/images-00.webp")] == [200, 200]
    for path in ("/private.txt", "/images-01.webp", "/../private.txt", "/none.html", "//private.txt"):
        answer = ask(path)
        assert (answer.status, b"mine" in answer.read()) == (404, False)
    assert [ask("/", host).status for host in ("localhost:8000", "evil.example", "")] == [200, 403, 403]
