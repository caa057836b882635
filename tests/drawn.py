"""What tests of figures look at: a chart as drawn, and the choices that it offers."""

import altair as alt
import vl_convert


def svg(chart: alt.TopLevelMixin) -> str:
    """Return the chart as a page of ordinary width draws it."""
    spec = chart.to_dict()
    return vl_convert.vegalite_to_svg({**spec, "width": 500} if spec.get("width") == "container" else spec)


def offered(chart: alt.TopLevelMixin, name: str) -> list | None:
    """Return the options of a choice under the chart, or None where there is none to make."""
    (param,) = [param for param in chart.to_dict()["params"] if param["name"] == name] or [{}]
    return param.get("bind", {}).get("options")


def rows(chart: alt.TopLevelMixin) -> list[dict]:
    """Return the rows of the one table that the chart draws."""
    (table,) = chart.to_dict()["datasets"].values()
    return table
