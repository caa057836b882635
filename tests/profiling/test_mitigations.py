"""Two real ranks over a link that send less than their gradients: bytes counted, the same weights, what is learned."""

import pytest
import torch

from dolb import recipes, results
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks import launch, rank

SAME = {"ranks": 2, "hosts": 2, "data": "digits", "arch": "smallnet-8", "steps": 12, "warmup_steps": 4, "evaluated": 64}
WAYS = [{}, {"hook": "fp16"}, {"hook": "powersgd-1"}, {"average_every": 4}, {"average_every": 16}]


@pytest.fixture(scope="module")
def measured(machine):
    """The rows of all ways, made by the same two ranks."""
    configs = [ScalingConfig(**SAME, **way) for way in WAYS]
    rows = list(launch.measure_together(configs, oversubscribe=True))
    return results.merge(rows)


def test_a_link_carries_as_many_bytes_as_a_way_sends(measured):
    plain, fp16, power, every_4, every_16 = measured["sent_bytes"].to_numpy()
    gradients = 4 * measured["parameters"].to_numpy()[0]
    # Two ranks send their half, then the sum of the other; packets and answers come on top.
    assert gradients < plain < 1.2 * gradients
    assert fp16 < 0.6 * plain
    assert power < 0.3 * plain
    assert every_4 < 0.35 * plain
    assert every_16 < 0.15 * plain


def test_accuracy_is_the_share_of_test_examples_that_all_ranks_classify(measured):
    assert ((measured["final_accuracy"] * SAME["evaluated"]) % 1 == 0).all()
    assert (measured["final_accuracy"] > 0).all()


def test_local_sgd_averages_weights_when_it_is_time_and_not_before(monkeypatch):
    weight = torch.nn.Parameter(torch.tensor([1.0]))
    optimizer = rank.LocalSgd(torch.optim.SGD([weight], lr=1.0), every=2)
    # The other rank's weight is always 9: the sum over both is taken where the library would take it.
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda flat: flat.add_(9.0))
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    seen = []
    for _ in range(4):
        optimizer.zero_grad()
        weight.grad = torch.tensor([1.0])
        optimizer.step()
        seen.append(weight.item())
    assert seen == [0.0, (-1.0 + 9) / 2, 3.0, (2.0 + 9) / 2]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hook": "int8"}, "hook 'int8' is not known; accepted: none, fp16, powersgd-1"),
        ({"hook": "fp16", "library": "horovod"}, "need library 'ddp'"),
        ({"hook": "fp16", "average_every": 4}, "with average_every none are sent"),
        ({"average_every": 5}, "average_every 5 does not divide 16 updates"),
        ({"evaluated": 10, "data": "synthetic"}, "needs data with a test set"),
    ],
)
def test_what_cannot_be_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        ScalingConfig(**SAME | changes)


def test_every_way_does_as_many_updates_before_its_accuracy_is_taken():
    runs = recipes.configs("mitigations", "paper", part="accuracy")
    assert len({run.warmup_steps + run.steps for run in runs}) == 1
    assert all(run.evaluated for run in runs)
