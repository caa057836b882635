"""Sphinx extension: charts draw without network, every page says what it was built from, notebooks can be launched.

It is an extension, not a step of `dolb book`, so that plain `jupyter-book build .` gives the same pages.
"""

import html
import json
import os
from pathlib import Path
from typing import Any

import altair
import vl_convert
from sphinx.application import Sphinx
from sphinx.config import Config

from dolb.publishing import panels

BUNDLE = "vega-bundle.js"


def write_bundle(folder: Path) -> Path:
    """Write Vega, Vega-Lite and Vega-Embed as one script, once per set of versions, and return its folder."""
    key = f"altair-{altair.__version__}-vl-convert-{vl_convert.__version__}"
    path = folder / key / BUNDLE
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        partial.write_text(panels.vega_script(), encoding="utf-8")
        partial.replace(path)
    return path.parent


def add_bundle_folder(app: Sphinx) -> None:
    """Make the bundle one of the book's static files."""
    app.config.html_static_path.append(str(write_bundle(Path(app.srcdir) / "_build" / "vega")))


def add_scripts_to_page(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Load the bundle (almost a megabyte) on the pages that have a chart, the filter on that of verdicts."""
    if "VEGA_DEBUG" in context.get("body", ""):
        app.add_js_file(BUNDLE)
    if "dolb-verdicts" in context.get("body", ""):
        app.add_js_file("verdicts.js")


def say_what_was_built(app: Sphinx, config: Config) -> None:
    """Put version, commit and scale in the footer, and a banner on a book that is not the published one."""
    path = Path(app.srcdir) / "build.json"
    if path.exists():
        info = {name: html.escape(value) for name, value in json.loads(path.read_text(encoding="utf-8")).items()}
        footer = f"dolb {info['version']}, commit {info['commit']}, scale <code>{info['scale']}</code>"
        if info["scale"] != "published":
            config.html_theme_options["announcement"] = (
                f"The figures of this copy were run at the scale <strong>{info['scale']}</strong>. "
                "The sentences are about the published runs."
            )
    else:
        footer = "Built without running the notebooks; <code>make book</code> runs them."
    config.html_theme_options["extra_footer"] = f'<p class="dolb-build">{footer}</p>'


def offer_launching(app: Sphinx, config: Config) -> None:
    """Give pages of notebooks buttons that open their source on Binder and on a hub, if it is said where that is."""
    if repository := os.environ.get("DOLB_BOOK_REPOSITORY"):
        config.html_theme_options |= {
            "repository_url": repository,
            "repository_branch": os.environ.get("DOLB_BOOK_BRANCH", "main"),
            "launch_buttons": {
                "notebook_interface": "jupyterlab",
                "binderhub_url": os.environ.get("DOLB_BOOK_BINDER", "https://mybinder.org"),
                "jupyterhub_url": os.environ.get("DOLB_BOOK_HUB", ""),
            },
        }


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the extension to the build."""
    app.connect("config-inited", say_what_was_built)
    app.connect("config-inited", offer_launching)
    app.connect("builder-inited", add_bundle_folder)
    app.connect("html-page-context", add_scripts_to_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
