"""The viewer: a map of examples to zoom, with their images, what noise is at every eps, and what a mask removes.

A page of it asks nothing of a network and opens from disk. Images and the WebGL library are files beside it. ``show``
puts the viewer under a notebook's cell, ``write_page`` into a folder. ``rate_playground`` draws a schedule of
learning rates while its controls are moved.
"""

from dolb.viewer.page import Viewer, eps_of, pictures_in_tooltips, serve, show, write_page
from dolb.viewer.playground import rate_playground
from dolb.viewer.thumbnails import Thumbnails, thumbnails

__all__ = [
    "Thumbnails", "Viewer", "eps_of", "pictures_in_tooltips", "rate_playground", "serve", "show",
    "thumbnails", "write_page",
]  # fmt: skip
