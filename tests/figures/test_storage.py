"""Figures of the data pipeline: every form, order and cache is drawn, and can be chosen."""

from made_runs import joined
from made_storage import made_reading, made_training

from dolb.figures import storage
from dolb.findings import data_pipeline as study


def test_every_form_order_and_cache_can_be_chosen():
    cells = study.cells(joined(made_reading(lambda *_: 100.0)))
    spec = storage.images_per_second(cells).to_dict()
    (drawn,) = spec["datasets"].values()
    assert {row["form"] for row in drawn} == set(study.NAMES.values())
    options = next(one["bind"]["options"] for one in spec["params"] if one["name"] == "reading")
    assert options == ["random, cold", "random, warm", "in order, cold", "in order, warm"]


def test_a_trainer_that_waits_is_drawn_for_every_form_in_both_orders():
    table = study.starved(joined(made_training(lambda *_: 0.3)))
    (drawn,) = storage.starved(table).to_dict()["datasets"].values()
    assert {(row["form"], row["fed"]) for row in drawn} == {
        (form, f"CPU, {order}") for form in study.NAMES.values() for order in ("at random", "in order")
    }


def test_the_figures_name_the_forms_as_the_tables_do():
    assert list(storage._FORMS) == list(study.NAMES.values())
