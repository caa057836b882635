"""A Dataset of examples becomes the HTML of a viewer, with images and the WebGL library in files beside the page."""

import base64
import contextlib
import functools
import hashlib
import html
import http.server
import json
import re
import webbrowser
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import xarray as xr

from dolb.viewer.thumbnails import Thumbnails

LIBRARY = "scatterplot.js"
_SERVED = re.compile(rf"index\.html|{re.escape(LIBRARY)}|images-\d+\.webp")  # what `write_page` writes
STEPS = 200  # of the slider
_GRID = 2**16 - 1


@dataclass(frozen=True)
class Viewer:
    """The viewer as HTML, for a notebook to show, and in words, for where HTML cannot be."""

    html: str
    words: str

    def _repr_html_(self) -> str:
        return self.html

    def __repr__(self) -> str:
        return self.words


def show(
    ds: xr.Dataset,
    images: Thumbnails,
    classes: Sequence[str],
    *,
    title: str,
    files: str | Path,
    url: str | None = None,
    review: Mapping[str, Any] | None = None,
) -> Viewer:
    """Return the viewer of a map, and write its images and the WebGL library into the folder ``files`` beside the page.

    ``ds`` has x, y, label and keep over example, and noise_until where a slider for eps is wanted. That starts at the
    radius at which DBSCAN removes what keep does, if there is one. The images are of all examples, or of some. ``url``
    is what the page calls the folder; by default its name. With ``review``, what a file of decisions says of the data,
    points can be lassoed, kept or dropped, and the decisions saved: these entries, ``dropped``, and what all others
    follow.
    """
    where = f"{Path(files).name}/" if url is None else url
    points = {str(name): ds[name].values for name in ("x", "y", "label", "keep", "noise_until") if name in ds}
    label, keep, until = points["label"], points["keep"], points.get("noise_until")
    if not all(np.isfinite(points[name]).all() for name in ("x", "y")) or (until is not None and np.isnan(until).any()):
        raise ValueError("x, y or noise_until hold NaN, or coordinates infinity; accepted: numbers")
    if label.min() < 0 or label.max() >= len(classes):
        raise ValueError(f"labels run from {label.min()} to {label.max()}, and there are {len(classes)} classes")
    made_for = _one(ds, "data_fingerprint")
    if images.fingerprint and made_for and images.fingerprint != made_for:
        raise ValueError(f"the images are of other data: {images.fingerprint}, the map of {made_for}")
    eps, grid = None, np.empty(0)
    if until is not None:
        eps = eps_of(keep, until)
        grid = eps_steps(until, eps)
    # How many of the slider's radii are below a point's own: it is noise at those, and the answer is exact.
    removed_until = np.zeros(len(label)) if until is None else np.searchsorted(grid, until)
    mask = _one(ds, "subset") or "saved"
    data = {
        "n": len(label),
        "classes": list(classes),
        "title": title,
        "mask": mask,
        "rule": "mask" if eps is None else "eps",
        "xy": _base64(_on_grid(points["x"], points["y"]), "<u2"),
        "label": _base64(label, "<u2"),
        "keep": _base64(keep, "u1"),
        "eps": grid.tolist(),
        "start": len(grid) // 2 if eps is None else int(np.searchsorted(grid, eps)),
        "removedUntil": _base64(removed_until, "<u2"),
        "noiseUntil": "" if until is None else _base64(until, "<f4"),
        "images": images.placed(files, where),
        "review": None if review is None else dict(review),
    }
    by = f"the mask {mask}" if eps is None else f"eps {eps:g}"
    sentence = f"{title}: {len(label):,} examples in {len(classes)} classes. By {by}, {_share(~keep)} are removed."
    shares = {name: _share(~keep[label == k]) for k, name in enumerate(classes)}
    (Path(files) / LIBRARY).write_text(asset(LIBRARY), encoding="utf-8")
    library = f'<script src="{html.escape(where)}{LIBRARY}"></script>\n'
    words = "\n".join([sentence, *(f"  {name}: {share}" for name, share in shares.items())])
    return Viewer(_figure(data, sentence, shares, library), words)


def write_page(folder: str | Path, ds: xr.Dataset, images: Thumbnails, classes: Sequence[str], **more: Any) -> Path:
    """Write a page that is nothing but the viewer of a map, and its files beside it, and return its path.

    Further arguments are those of ``show``.
    """
    viewer = show(ds, images, classes, files=folder, url="", **more)
    path = Path(folder) / "index.html"
    page = Template(asset("page.html")).substitute(title=html.escape(more["title"]), figure=viewer.html)
    path.write_text(page, encoding="utf-8")
    return path


class _OwnFiles(http.server.SimpleHTTPRequestHandler):
    """Answers with the files of a page alone, and only those who ask this machine by its own name.

    Another page in the browser could have a name of its own lead here, and read what it is given.
    """

    def send_head(self) -> Any:
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname
        name = urlsplit(self.path).path.removeprefix("/") or "index.html"
        if host not in ("127.0.0.1", "localhost"):
            return self.send_error(403, f"This page is served to 127.0.0.1 alone, not to {host}")
        if not _SERVED.fullmatch(name) or (Path(self.directory) / name).is_symlink():
            return self.send_error(404)
        return super().send_head()


def serve(folder: Path, port: int, say: Callable[[str], None], open_page: bool) -> None:
    """Serve the files of a page to this machine alone, until Ctrl-C."""
    handler = functools.partial(_OwnFiles, directory=str(folder))
    try:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", port), handler)
    except OSError as error:
        raise ValueError(f"port {port} cannot be had: {error.strerror}; accepted: a free one, or 0 for any") from error
    with server:
        address = f"http://127.0.0.1:{server.server_port}/"
        say(f"serving {address} until Ctrl-C")
        if open_page:
            webbrowser.open(address)
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()


def pictures_in_tooltips(images: Thumbnails, files: str | Path) -> Viewer:
    """Return the script by which tooltips of the page's charts show the image that their field ``example`` names."""
    data = script_json(images.placed(files, f"{Path(files).name}/"))
    words = f"Point at an image of the chart to see it: {len(images.examples):,}."
    return Viewer(f"<script>\n{asset('pictures.js')}dolbPictures.inTooltips({data});\n</script>", words)


def eps_steps(noise_until: np.ndarray, eps: float | None) -> np.ndarray:
    """Return the radii of a slider, ascending: from where half of the examples are noise to where the last one is.

    They are evenly spaced on a logarithmic scale and rounded to three digits; ``eps`` is one of them as it is.
    """
    known = noise_until[np.isfinite(noise_until) & (noise_until > 0)]
    spread = np.geomspace(np.median(known), known.max() * 1.01, STEPS) if len(known) else np.empty(0)
    rounded = [float(f"{value:.3g}") for value in spread]
    return np.unique([*rounded, *([] if eps is None else [eps])])


def eps_of(keep: np.ndarray, noise_until: np.ndarray) -> float | None:
    """Return the radius, of as few digits as can be, at which DBSCAN removes just what a mask does, or None."""
    low = float(noise_until[keep].max(initial=0.0))
    high = float(noise_until[~keep].min(initial=np.inf))
    if not low < high:
        return None
    for digits in range(1, 18):
        value = float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(low))
        if value > 0 and low <= value < high:
            return value
    return None  # the mask keeps nothing but duplicates


def _on_grid(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the coordinates as 16-bit numbers on a square that holds all, on one scale for both axes."""
    place = np.stack([x, y], axis=1).astype(np.float64)
    low, high = place.min(axis=0), place.max(axis=0)
    extent = float((high - low).max()) or 1.0
    return np.rint(((place - (low + high) / 2) / extent + 0.5) * _GRID)


def _share(part: np.ndarray) -> str:
    return f"{int(part.sum()):,} of {len(part):,} ({part.mean():.2%})" if len(part) else "none"


def _figure(data: dict[str, Any], sentence: str, shares: Mapping[str, str], library: str) -> str:
    text = script_json(data)
    rules = [("eps", "DBSCAN at eps")] if data["eps"] else []
    if data["rule"] == "mask":  # one that eps gives needs no entry of its own
        rules.append(("mask", f"the mask {data['mask']}"))
    return Template(asset("figure.html")).substitute(
        id=f"dolb-viewer-{hashlib.sha256(text.encode()).hexdigest()[:10]}",
        title=html.escape(data["title"]),
        css=asset("viewer.css"),
        classes=_options([("-1", "all"), *((str(k), name) for k, name in enumerate(data["classes"]))], "-1"),
        rules=_options(rules, data["rule"]),
        last_step=max(0, len(data["eps"]) - 1),
        start=data["start"],
        no_slider="" if data["eps"] else "hidden",
        one_rule="" if len(rules) > 1 else "hidden",
        sentence=html.escape(sentence),
        rows="".join(
            f'<tr><th scope="row">{html.escape(name)}</th><td>{share}</td></tr>' for name, share in shares.items()
        ),
        review=asset("review.html") if data["review"] else "",
        data=text,
        library=library,
        script="".join(map(asset, ("pictures.js", "maps.js", *(["review.js"] if data["review"] else []), "viewer.js"))),
    )


def _options(entries: Sequence[tuple[str, str]], selected: str) -> str:
    return "".join(
        f'<option value="{value}"{" selected" if value == selected else ""}>{html.escape(text)}</option>'
        for value, text in entries
    )


def _one(ds: xr.Dataset, name: str) -> str:
    """Return the value of a name that all runs share, or nothing."""
    values = set(map(str, np.atleast_1d(ds[name].values))) if name in ds else set()
    return values.pop() if len(values) == 1 else ""


def script_json(data: Any) -> str:
    """Return data as JSON to stand in a script of a page."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")  # no tag can end the script early


def _base64(array: np.ndarray, kind: str) -> str:
    return base64.b64encode(array.astype(kind).tobytes()).decode("ascii")


def asset(name: str) -> str:
    """Return the text of one of the files that lie beside this one."""
    return files("dolb.viewer").joinpath(name).read_text(encoding="utf-8")
