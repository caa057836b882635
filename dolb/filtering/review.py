"""Review in a notebook: a map to lasso on, the images of what was chosen, and buttons that keep or drop them.

It needs jupyter-scatter, which ``pip install "dolb[review]"`` brings; the page of ``dolb view`` does the same without.
"""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from dolb import results
from dolb.data import ImageData
from dolb.filtering import masks
from dolb.filtering.checks import every_class_stays

STATE_COLOURS = {"kept": "#8a939e", "dropped": "#d55e00"}
MOST_IMAGES, COLUMNS = 240, 12
_TILE = 40  # pixels of an image as shown, where it is smaller


def widget(file: str | Path, data: ImageData, target: str | Path | None = None) -> Any:
    """Return a widget that starts from the mask in a file, saved with its map, and saves the mask as decided.

    ``data`` is the data set that the mask is of, unfiltered. Without a ``target`` the mask goes back into the file.
    """
    try:
        import ipywidgets
        import jscatter
    except ImportError as error:
        raise ImportError('the review widget needs jupyter-scatter; `pip install "dolb[review]"` brings it') from error

    ds = results.load(file)
    masks.require_data(ds, data, file)
    if missing := {"x", "y"} - set(ds):
        raise masks.MaskError(f"{file} holds no map: it lacks {', '.join(sorted(missing))}; save the mask with it")
    x, y, keep = (ds[name].to_numpy().reshape(-1) for name in ("x", "y", "keep"))
    more = {"noise_until": ds["noise_until"].to_numpy().reshape(-1)} if "noise_until" in ds else {}
    before: list[np.ndarray] = []

    def table() -> pd.DataFrame:
        states = pd.Categorical(np.where(keep, "kept", "dropped"), categories=list(STATE_COLOURS))
        return pd.DataFrame({"x": x, "y": y, "state": states})

    scatter = jscatter.Scatter("x", "y", data=table(), height=480, lasso_initiator=True)
    # A list in the order of the categories: given names, jupyter-scatter cannot take the changed table afterwards.
    scatter.color(by="state", map=list(STATE_COLOURS.values())).size(default=4)
    said, images = ipywidgets.Label(), ipywidgets.Image(format="png")
    images.layout = ipywidgets.Layout(max_width="100%", display="none")

    def look(_: object = None) -> None:
        chosen = np.asarray(scatter.selection(), dtype=np.int64)
        images.value = sheet(data.train_images[chosen[:MOST_IMAGES]]) if len(chosen) else b""
        images.layout.display = None if len(chosen) else "none"  # an empty image is drawn as a broken one
        more = f", the first {MOST_IMAGES} shown" if len(chosen) > MOST_IMAGES else ""
        said.value = f"{int((~keep).sum()):,} of {len(keep):,} are dropped. {len(chosen):,} chosen{more}."

    def decide(kept: bool) -> Callable[[object], None]:
        def decided(_: object) -> None:
            before.append(keep.copy())
            keep[np.asarray(scatter.selection(), dtype=np.int64)] = kept
            scatter.data(table())
            look()

        return decided

    def undo(_: object) -> None:
        if before:
            keep[:] = before.pop()
            scatter.data(table())
            look()

    def save(_: object) -> None:
        try:
            every_class_stays("the review", keep, data)
            coordinates = np.stack([x, y], axis=1)
            path = masks.save_keep(target or file, keep, data, "reviewed", coordinates=coordinates, **more)
            said.value = f"Saved {path}."
        except (OSError, ValueError) as error:
            said.value = f"Not saved: {error}"

    buttons = []
    for name, act in (("Keep", decide(True)), ("Drop", decide(False)), ("Undo", undo), ("Save", save)):
        buttons.append(ipywidgets.Button(description=name))
        buttons[-1].on_click(act)
    scatter.widget.observe(look, names="selection")
    look()
    return ipywidgets.VBox([scatter.show(), ipywidgets.HBox(buttons), said, images])


def sheet(images: np.ndarray) -> bytes:
    """Return uint8 (n, H, W, C) images side by side as one PNG, small ones enlarged."""
    scale = max(1, _TILE // max(images.shape[1:3]))
    tiles = np.pad(images.repeat(scale, axis=1).repeat(scale, axis=2), ((0, 0), (1, 1), (1, 1), (0, 0)))
    tiles = np.concatenate([tiles, np.zeros((-len(tiles) % COLUMNS, *tiles.shape[1:]), dtype=np.uint8)])
    rows = tiles.reshape(-1, COLUMNS, *tiles.shape[1:]).swapaxes(1, 2)
    canvas = rows.reshape(rows.shape[0] * rows.shape[1], -1, rows.shape[4])
    buffer = io.BytesIO()
    Image.fromarray(canvas.squeeze()).save(buffer, "PNG")
    return buffer.getvalue()
