"""One simulated step, against limits that can be worked out by hand, and the table of its events."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from dolb import results
from dolb.profiling.simulator import network, tensors
from dolb.profiling.simulator.libraries import DDP, Horovod, horovod
from dolb.profiling.simulator.step import MECHANISMS, Scenario, events, simulate, slowest_of, without

RESNET50 = tensors.v100("resnet50")
SUMMIT = network.preset("summit")
POLICIES = [DDP(), horovod("0.20"), horovod("0.20", response_cache=False), horovod("0.21")]


def scenario(policy=POLICIES[0], net=SUMMIT, **changes):
    return Scenario(RESNET50, net, policy, batch_per_rank=32, **changes)


@pytest.fixture(params=POLICIES, ids=lambda policy: policy.name)
def policy(request):
    return request.param


@pytest.mark.parametrize("ranks", [2, 96, 1536])
def test_k_ranks_on_an_ideal_network_have_k_times_the_throughput_of_one(ranks):
    """Claim J1."""
    ideal = scenario(net=network.preset("ideal"))
    assert simulate(ideal, ranks).images_per_second == pytest.approx(ranks * simulate(ideal, 1).images_per_second)
    assert simulate(ideal, ranks).efficiency == pytest.approx(1)


@pytest.mark.parametrize("ranks", [2, 1536])
def test_horovod_without_its_clock_is_ideal_on_an_ideal_network_too(ranks):
    free = without(without(scenario(horovod("0.20"), network.preset("ideal")), "negotiation"), "cycle")
    assert simulate(free, ranks).step_seconds == pytest.approx(RESNET50.compute_seconds)


@pytest.mark.parametrize("ranks", [1, 96])
def test_the_optimizer_waits_for_the_last_sum_and_is_never_hidden(policy, ranks):
    slow = replace(RESNET50, optimizer_seconds=0.02)
    without_it = simulate(scenario(policy), ranks)
    assert simulate(replace(scenario(policy), tensors=slow), ranks).step_seconds == pytest.approx(
        without_it.step_seconds + 0.02
    )


def test_the_update_of_a_v100_is_too_short_to_matter():
    """Five passes over the weights at the 900 GB/s of its data sheet move the efficiency by less than half a point."""
    update = 5 * float(RESNET50.bytes.sum()) / 900e9
    apart = tensors.spread(tensors.work("resnet50"), RESNET50.compute_seconds - update)
    apart = replace(scenario(), tensors=replace(apart, optimizer_seconds=update))
    assert simulate(apart, 1536).efficiency == pytest.approx(simulate(scenario(), 1536).efficiency, abs=0.005)


def test_one_rank_communicates_with_nobody(policy):
    alone = simulate(scenario(policy, jitter=0.1), 1)
    assert alone.step_seconds == RESNET50.compute_seconds
    assert alone.efficiency == 1


def test_without_overlap_a_ddp_step_is_compute_and_then_all_communication():
    apart = simulate(scenario(overlap=False), 96)
    assert apart.step_seconds == pytest.approx(RESNET50.compute_seconds + apart.communication_seconds)


def test_without_overlap_horovod_waits_half_a_cycle_agrees_and_reduces_all_at_once():
    big = Horovod(cycle_seconds=5e-3, fusion_bytes=1 << 40)
    apart = simulate(scenario(big, overlap=False), 96)
    parts = 5e-3 / 2 + big.negotiation_seconds(96, len(RESNET50)) + SUMMIT.allreduce_seconds(96, RESNET50.bytes.sum())
    assert apart.step_seconds == pytest.approx(RESNET50.compute_seconds + parts, abs=5e-3 / 16)


def test_a_slow_network_is_the_sum_of_its_messages():
    slow = replace(SUMMIT, achieved=1e-4)
    step = simulate(scenario(net=slow), 96)
    first_bucket_ready = RESNET50.ready_seconds()[1]  # fc's bias and weight
    assert step.step_seconds == pytest.approx(first_bucket_ready + step.communication_seconds)


def test_hidden_communication_costs_nothing_but_the_last_message():
    step = simulate(scenario(), 96)
    assert step.communication_seconds > step.step_seconds - step.compute_seconds > 0


@pytest.mark.parametrize("ranks", [2, 10, 1000])
def test_the_slowest_rank_is_the_mean_maximum_of_draws(ranks):
    draws = np.random.default_rng(0).logistic(1, 0.02 * np.sqrt(3) / np.pi, size=(4000, ranks))
    assert draws.std() == pytest.approx(0.02, rel=0.05)
    assert slowest_of(ranks, 0.02) == pytest.approx(draws.max(axis=1).mean(), abs=0.001)


def test_the_expected_maximum_has_no_seam_between_its_sum_and_its_series():
    exact = [sum(1 / k for k in range(1, n)) for n in (32, 33, 34, 1000)]
    scale = np.sqrt(3) / np.pi
    assert [slowest_of(n, 1.0) for n in (32, 33, 34, 1000)] == pytest.approx([1 + scale * h for h in exact], rel=1e-10)


@pytest.mark.parametrize("ranks", [12, 768])
@pytest.mark.parametrize("mechanism", ["negotiation", "cycle", "jitter", "latency", "bandwidth"])
def test_a_mechanism_that_is_off_costs_nothing(policy, mechanism, ranks):
    full = scenario(policy, jitter=0.01)
    # A faster cycle or link may split what one message held before; that can cost a little again.
    assert simulate(without(full, mechanism), ranks).step_seconds <= simulate(full, ranks).step_seconds * 1.01


def test_all_mechanisms_off_leave_the_compute(policy):
    bare = scenario(policy, jitter=0.01)
    for mechanism in MECHANISMS:
        bare = without(bare, mechanism) if mechanism not in ("fusion", "overlap") else bare
    assert simulate(bare, 1536).step_seconds == pytest.approx(RESNET50.compute_seconds)


def test_an_unknown_mechanism_says_what_there_is():
    with pytest.raises(ValueError, match="mechanism 'magic' is not known; accepted: negotiation"):
        without(scenario(), "magic")


def test_a_step_never_gets_faster_with_ranks_under_ddp():
    steps = [simulate(scenario(jitter=0.01), 6 * 2**k).step_seconds for k in range(12)]
    assert all(a <= b for a, b in itertools.pairwise(steps))


def test_a_step_never_gets_faster_with_jitter(policy):
    steps = [simulate(scenario(policy, jitter=jitter), 768).step_seconds for jitter in (0, 0.01, 0.02, 0.05)]
    assert all(a < b for a, b in itertools.pairwise(steps))


@pytest.mark.parametrize("ranks", [0, -1, 1.5])
def test_a_number_of_ranks_that_cannot_be_is_refused(ranks):
    with pytest.raises(ValueError, match="whole numbers from 1"):
        simulate(scenario(), ranks)


def lane(ds, name, rank=0):
    return ds.isel(event=np.flatnonzero((ds["lane"] == name) & (ds["rank"] == rank)))


def test_events_follow_the_schema_and_say_that_they_are_simulated(policy, tmp_path):
    ds = events(scenario(policy, jitter=0.01), 1536)
    assert results.load(results.save(ds, tmp_path / "step.nc")).attrs["source"] == "simulated"
    assert set(ds["rank"].values) == {0, 768, 1535}
    assert bool((ds["end_us"] >= ds["start_us"]).all())


def test_events_reduce_every_byte_once(policy):
    ds = events(scenario(policy), 96)
    assert int(lane(ds, "communication")["bytes"].sum()) == RESNET50.bytes.sum()


def test_events_end_with_the_step_of_ddp():
    full = scenario(jitter=0.01)
    assert float(events(full, 96)["end_us"].max()) / 1e6 == pytest.approx(simulate(full, 96).step_seconds)


def test_the_last_rank_computes_longest_and_the_others_wait():
    ds = events(scenario(jitter=0.02), 96)
    last, first = (float(lane(ds, "compute", rank)["end_us"].max()) for rank in (95, 0))
    assert last == pytest.approx(first * slowest_of(96, 0.02))


def test_a_horovod_step_shows_negotiation_and_several_all_reduces():
    """Claim G19; and claim G20 for DDP, which shows none."""
    ds = events(scenario(horovod("0.20", response_cache=False)), 1536)
    assert len(lane(ds, "communication")["event"]) > 1
    negotiation = lane(ds, "negotiation")
    assert float((negotiation["end_us"] - negotiation["start_us"]).sum()) > 10_000
    assert not len(lane(events(scenario(), 1536), "negotiation")["event"])


def test_ddp_communicates_while_the_backward_pass_runs():
    ds = events(scenario(), 96)
    assert float(lane(ds, "communication")["start_us"].min()) < float(lane(ds, "compute")["end_us"].max())


def test_the_optimizer_is_the_last_event():
    late = replace(scenario(jitter=0.01), tensors=replace(RESNET50, optimizer_seconds=0.02))
    ds = events(late, 96)
    last = ds.isel(event=int(ds["end_us"].to_numpy().argmax()))
    assert str(last["name"].values) == "optimizer"
    assert float(last["end_us"]) / 1e6 == pytest.approx(simulate(late, 96).step_seconds)


def test_events_of_one_rank_are_its_compute():
    assert set(events(scenario(), 1)["lane"].values) == {"compute"}
