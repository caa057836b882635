"""The numbers of page 14 are those that were published before: speedups and bounds, products, and nodes that pay."""

from agreement import agrees

from dolb import results
from dolb.findings import limits as study


def test_speedups_with_free_communication_and_their_bounds():
    found = study.free(results.published("limits"))
    agrees(found, "limits-free", ["device_kind", "arch", "seed", "images"])


def test_products_and_nodes_that_pay():
    ds = results.published("limits")
    agrees(study.products(ds), "limits-products", ["device_kind", "layer", "batch_size"])
    agrees(study.stops(ds), "limits-nodes", ["device_kind", "arch", "seed", "batch_size", "gbit"])
