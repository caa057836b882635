"""The viewer: a map of examples to zoom, with their images, what noise is at every eps, and what a mask removes.

A page of it is one HTML text that holds everything: points, images, the WebGL library and the script. It asks nothing
of a network and opens from disk. ``show`` puts it under a notebook's cell, ``write_page`` into a file.
"""

from dolb.viewer.page import MOST_BYTES, Viewer, eps_of, eps_steps, show, write_page
from dolb.viewer.thumbnails import Thumbnails, examples_to_show, thumbnails, thumbnails_of

__all__ = [
    "MOST_BYTES", "Thumbnails", "Viewer", "eps_of", "eps_steps", "examples_to_show", "show", "thumbnails",
    "thumbnails_of", "write_page",
]  # fmt: skip
