"""Review: a person looks at examples on the map and decides which to keep; the decision is a mask like any other.

``Review`` holds the decisions and can be used from a script. ``widget`` puts a map to lasso on, the images of what was
chosen and buttons around it; it needs jupyter-scatter, which ``pip install "dolb[review]"`` brings.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd
from PIL import Image

from dolb import results
from dolb.data import ImageData
from dolb.filtering import decisions, masks
from dolb.filtering.checks import every_class_stays, finite_rows, keep_mask

STATE_COLOURS = {"kept": "#8a939e", "dropped": "#d55e00"}
MOST_IMAGES = 240
_TILE = 40  # pixels of an image as shown, where it is smaller
_FRAME = 3  # pixels around an image, in the colour of its state


class Review:
    """Decisions to keep or drop examples of a data set, starting from a mask.

    Parameters
    ----------
    data
        The data set, unfiltered.
    coordinates
        Its map, (n, 2).
    keep
        The mask to start from; by default all is kept.
    noise_until
        Noise radii of the map, saved along with the mask.
    name
        What the reviewed subset is called.
    about
        What else is known of the mask, by names of the schema that live on ``run``, such as arch and seed.
    """

    def __init__(
        self,
        data: ImageData,
        coordinates: np.ndarray,
        keep: np.ndarray | None = None,
        noise_until: np.ndarray | None = None,
        *,
        name: str = "reviewed",
        about: Mapping[str, Any] | None = None,
    ):
        n = len(data.train_labels)
        self.data = data
        self.coordinates = finite_rows("coordinates", coordinates, width=2)
        if len(self.coordinates) != n:
            raise ValueError(f"the map has {len(self.coordinates)} points, and {data.name} {n} training examples")
        self.noise_until = noise_until
        self.name = name
        self.about = dict(about or {})
        self._keep = keep_mask(np.ones(n, dtype=bool) if keep is None else keep, n).copy()
        self._before: list[tuple[np.ndarray, np.ndarray]] = []

    @classmethod
    def load(cls, path: str | Path, data: ImageData, name: str = "reviewed") -> Self:
        """Go on from a mask file that holds its map; one of other data is refused."""
        keep = masks.load_keep(path, data)
        if decisions.is_decisions(path):
            raise masks.MaskError(
                f"{path} holds decisions, and no map: go on with them on the page of dolb view, or give Review a map "
                "and as keep what masks.load_keep reads from this file"
            )
        ds = results.load(path)
        if "x" not in ds or "y" not in ds:
            raise masks.MaskError(f"{path} holds no map; save the mask with its coordinates")
        about = {
            str(key): ds[key].to_numpy()[0]
            for key in ds.coords
            if key in results.SCHEMA and results.SCHEMA[str(key)].role == "config" and key not in ("data", "subset")
        }
        until = ds["noise_until"].to_numpy() if "noise_until" in ds else None
        return cls(data, np.stack([ds["x"], ds["y"]], axis=1), keep, until, name=name, about=about)

    @property
    def keep(self) -> np.ndarray:
        """The mask as decided so far."""
        return self._keep.copy()

    def decide(self, examples: Iterable[int] | np.ndarray, keep: bool) -> int:
        """Keep or drop examples, and return how many of them were not so before."""
        chosen = np.unique(np.asarray(list(examples), dtype=np.int64))
        n = len(self._keep)
        if len(chosen) and not 0 <= chosen[0] <= chosen[-1] < n:
            raise ValueError(f"examples run from {chosen[0]} to {chosen[-1]}; accepted: 0 to {n - 1}")
        moved = chosen[self._keep[chosen] != keep]
        if len(moved):
            self._before.append((moved, self._keep[moved].copy()))
            self._keep[moved] = keep
        return len(moved)

    def undo(self) -> int:
        """Take back the last decision that changed something, and return how many examples it was about."""
        if not self._before:
            return 0
        examples, before = self._before.pop()
        self._keep[examples] = before
        return len(examples)

    def save(self, path: str | Path) -> Path:
        """Write the mask with its map, whole or not at all; one without any example of a class is refused."""
        every_class_stays("the review", self._keep, self.data)
        return masks.save_keep(
            path,
            self._keep,
            self.data,
            self.name,
            coordinates=self.coordinates,
            noise_until=self.noise_until,
            about=self.about,
        )

    def sheet(self, examples: Iterable[int] | np.ndarray, columns: int = 12) -> bytes:
        """Return the images of examples, at most ``MOST_IMAGES``, as one PNG, framed in the colour of their state."""
        chosen = np.asarray(list(examples), dtype=np.int64)[:MOST_IMAGES]
        height, width = self.data.image_size
        scale = max(1, _TILE // max(height, width))
        cell = (height * scale + 2 * _FRAME, width * scale + 2 * _FRAME)
        rows = max(1, -(-len(chosen) // columns))
        canvas = np.full((rows * cell[0], columns * cell[1], 3), 255, dtype=np.uint8)
        frames = {state: [int(colour[i : i + 2], 16) for i in (1, 3, 5)] for state, colour in STATE_COLOURS.items()}
        for position, example in enumerate(chosen):
            top, left = (position // columns) * cell[0], (position % columns) * cell[1]
            canvas[top : top + cell[0], left : left + cell[1]] = frames["kept" if self._keep[example] else "dropped"]
            image = self.data.train_images[example].repeat(scale, axis=0).repeat(scale, axis=1)
            canvas[top + _FRAME : top + cell[0] - _FRAME, left + _FRAME : left + cell[1] - _FRAME] = image
        buffer = io.BytesIO()
        Image.fromarray(canvas).save(buffer, "PNG")
        return buffer.getvalue()

    def summary(self) -> str:
        """Say how many examples are dropped."""
        dropped, n = int((~self._keep).sum()), len(self._keep)
        return f"{dropped:,} of {n:,} examples of {self.data.name} are dropped ({dropped / n:.2%})"

    def table(self) -> pd.DataFrame:
        """Return the map with the state and class of each example, as the widget draws it."""
        classes = np.asarray(self.data.classes)[self.data.train_labels]
        states = pd.Categorical(np.where(self._keep, "kept", "dropped"), categories=list(STATE_COLOURS))
        x, y = self.coordinates.T
        return pd.DataFrame({"x": x, "y": y, "class": pd.Categorical(classes, self.data.classes), "state": states})


def widget(review: Review, path: str | Path) -> Any:
    """Return the review as a widget: lasso points, see their images, keep or drop them, save the mask to ``path``."""
    try:
        import ipywidgets
        import jscatter
    except ImportError as error:
        raise ImportError('the review widget needs jupyter-scatter; `pip install "dolb[review]"` brings it') from error

    scatter = jscatter.Scatter("x", "y", data=review.table(), height=480, lasso_initiator=True)
    # A list in the order of the categories: given names, jupyter-scatter cannot take the changed table afterwards.
    state_colours = list(STATE_COLOURS.values())
    scatter.color(by="state", map=state_colours).size(default=4)
    class_choice = ipywidgets.Dropdown(options=[("all", -1), *((c, k) for k, c in enumerate(review.data.classes))])
    class_choice.description = "Class"
    colour = ipywidgets.ToggleButtons(options=["state", "class"], description="Colour")
    buttons = {name: ipywidgets.Button(description=name) for name in ("Keep", "Drop", "Undo", "Save")}
    said, images = ipywidgets.Label(review.summary()), ipywidgets.Image(format="png")
    images.layout = ipywidgets.Layout(max_width="100%", display="none")

    def chosen() -> np.ndarray:
        lassoed = np.asarray(scatter.selection(), dtype=np.int64)
        if class_choice.value < 0:
            return lassoed
        # Points that a filter hides stay in the selection: the map does not send one back.
        return lassoed[review.data.train_labels[lassoed] == class_choice.value]

    def look(_: object = None) -> None:
        shown = chosen()
        images.value = review.sheet(shown) if len(shown) else b""
        images.layout.display = None if len(shown) else "none"  # an empty image is drawn as a broken one
        more = f", the first {MOST_IMAGES} shown" if len(shown) > MOST_IMAGES else ""
        said.value = f"{review.summary()}. {len(shown):,} chosen{more}."

    def after(message: str) -> None:
        scatter.data(review.table())
        look()
        said.value = f"{message} {said.value}"

    def save(_: object) -> None:
        try:
            said.value = f"Saved {review.save(path)}. {review.summary()}."
        except (OSError, ValueError) as error:
            said.value = f"Not saved: {error}"

    def recolour(change: Mapping[str, Any]) -> None:
        scatter.color(by=change["new"], map=state_colours if change["new"] == "state" else "auto")

    def narrow(change: Mapping[str, Any]) -> None:
        scatter.filter(None if change["new"] < 0 else np.flatnonzero(review.data.train_labels == change["new"]))
        look()

    buttons["Keep"].on_click(lambda _: after(f"Kept {review.decide(chosen(), True):,} more."))
    buttons["Drop"].on_click(lambda _: after(f"Dropped {review.decide(chosen(), False):,} more."))
    buttons["Undo"].on_click(lambda _: after(f"Took back {review.undo():,}."))
    buttons["Save"].on_click(save)
    colour.observe(recolour, names="value")
    class_choice.observe(narrow, names="value")
    scatter.widget.observe(look, names="selection")
    controls = ipywidgets.HBox([class_choice, colour])
    return ipywidgets.VBox([controls, scatter.show(), ipywidgets.HBox(list(buttons.values())), said, images])
