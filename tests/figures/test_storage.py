"""Figures of the data pipeline: every form, order and cache is drawn, and can be chosen."""

from drawn import offered, rows
from made_storage import made_reading, made_training

from dolb import results
from dolb.figures import storage
from dolb.findings import data_pipeline as study


def test_every_form_order_and_cache_is_drawn():
    reading = storage.images_per_second(study.cells(results.merge(made_reading(lambda *_: 100.0))))
    assert {row["form"] for row in rows(reading)} == set(study.NAMES.values()) == set(storage._FORMS)
    assert offered(reading, "reading") == ["random, cold", "random, warm", "in order, cold", "in order, warm"]
    waiting = storage.starved(study.starved(results.merge(made_training(lambda *_: 0.3))))
    assert {(row["form"], row["fed"]) for row in rows(waiting)} == {
        (form, f"CPU, {order}") for form in study.NAMES.values() for order in ("at random", "in order")
    }
