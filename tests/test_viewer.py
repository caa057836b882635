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
        clusters = noise.ClassDBSCAN(eps=given["eps"][step])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that a class is noise whole, at a small eps
            labels = clusters.fit_predict(coordinates, made["label"].values)
        assert ((step < until) == (labels == -1)).all()


def test_the_slider_starts_at_the_eps_that_gives_the_mask(made):
    given = page_data(viewer.show(made))
    assert given["eps"][given["start"]] == 0.5
    assert given["rule"] == "eps"


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
    assert (
        sheets.save(tmp_path / "again.npz").read_bytes() == saved.read_bytes()
    )  # no time is noted: git sees no change


def test_many_images_go_on_several_sheets_within_the_bytes_that_git_keeps(monkeypatch):
    sheets = sys.modules["dolb.viewer.thumbnails"]  # as an attribute of the package it is the function
    noisy = np.random.default_rng(0).integers(0, 256, (3000, 32, 32, 3), dtype=np.uint8)
    monkeypatch.setattr(sheets, "MOST_BYTES", 4_000_000)
    made = viewer.thumbnails(noisy)
    assert (len(made.sheets), made.per_sheet) == (2, 2500)
    assert sum(map(len, made.sheets)) < 4_000_000


def test_large_files_lie_beside_the_page_which_stays_small(made, tmp_path):
    images = viewer.thumbnails(np.zeros((2000, 32, 32, 3), dtype=np.uint8))
    page = viewer.write_page(tmp_path, made, images, title="Map")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["images-00.webp", "index.html", "scatterplot.js"]
    text = page.read_text()
    assert '"sheets":["images-00.webp"]' in text
    assert '<script src="scatterplot.js">' in text
    shown = viewer.show(made, images, files=tmp_path / "03-noise-files")
    assert page_data(shown)["images"]["sheets"] == ["03-noise-files/images-00.webp"]
    assert page_data(viewer.show(made, images))["images"]["sheets"][0].startswith("data:image/webp;base64,")


def test_the_published_images_are_of_every_point_of_the_published_maps():
    mask, maps = study.reference(results.published("noise")), results.published("features")
    images = viewer.Thumbnails.load(results.published_file("noise-images.npz"))
    assert images.fingerprint == str(mask["data_fingerprint"].item())
    assert np.array_equal(images.examples, np.arange(mask.sizes["example"]))
    drawn = viewer.Thumbnails.load(results.published_file("features-images.npz"))
    assert np.array_equal(drawn.examples, study.points(maps, data.class_names("cifar10"))["example"])


def test_images_of_other_data_or_of_no_example_are_refused(made):
    images = np.zeros((2, 4, 4, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="other data"):
        viewer.show(
            made.assign_coords(data_fingerprint=("run", ["sha256:a"])), viewer.thumbnails(images, None, "sha256:b")
        )
    with pytest.raises(ValueError, match="up to 2000"):
        viewer.show(made, viewer.thumbnails(images, np.array([0, 2000])))


@pytest.fixture
def served(made, tmp_path):
    """A page in a folder with other files, served; what asks it for a file by a name of the host."""
    folder = viewer.write_page(tmp_path / "page", made, title="A map").parent
    (folder / "private.txt").write_text("mine")
    (folder / "images-00.webp").symlink_to(folder / "private.txt")
    told: list[str] = []
    threading.Thread(target=viewer.serve, args=(folder, 0, told.append, False), daemon=True).start()
    wait_until(lambda: told)
    port = int(re.search(r":(\d+)/", told[0])[1])

    def ask(path, host="127.0.0.1"):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", path, headers={"Host": host})
        return connection.getresponse()

    return ask


@pytest.mark.parametrize("path", ["/private.txt", "/images-00.webp", "/../private.txt", "/none.html", "//private.txt"])
def test_nothing_but_the_files_of_a_page_is_served(served, path):
    assert b"dolb-viewer" in served("/").read()
    assert served("/scatterplot.js").status == 200
    answer = served(path)
    assert (answer.status, b"mine" in answer.read()) == (404, False)


def test_a_page_is_served_only_to_those_who_ask_for_this_machine(served):
    assert [served("/", host).status for host in ("localhost:8000", "evil.example", "")] == [200, 403, 403]
