"""Hosts on one machine for real: links that keep their rate, both libraries over them, less sent, nothing left."""

import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from dolb import models, recipes
from dolb.profiling.config import ScalingConfig
from dolb.profiling.ranks import launch, links, transfer
from dolb.profiling.ranks.launch import RankError
from dolb.profiling.ranks.links import LinkError

MBIT = 10.0
RATES = (MBIT, math.inf, 2 * MBIT)
TINY = {"ranks": 2, "arch": "smallnet-4", "batch_size_per_rank": 8, "hosts": 2, "link_mbit": MBIT, "warmup_steps": 1}
SAVING = {"ranks": 2, "hosts": 2, "data": "digits", "steps": 12, "warmup_steps": 4, "evaluated": 64}
WAYS = [{}, {"hook": "fp16"}, {"hook": "powersgd-1"}, {"average_every": 4}]


def namespaces(pid=None):
    """Names of the hosts and switches that a process has made, as `ip` and the folder of their files have them."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.split()
    files = [path.name for path in Path("/etc/netns").glob("*")]
    return [name for name in [*listed, *files] if name.startswith(f"dolb-{pid or os.getpid()}-")]


def queues(made):
    """The queues at both ends of every link, as the kernel has them: settings, and what went through so far."""
    ends = [*((name, "eth0") for name in made.names), *((made.switch, f"port{n}") for n in range(len(made.names)))]
    shown = [
        subprocess.run(["tc", "-n", where, "-s", "-j", "qdisc", "show", "dev", end], capture_output=True, check=True)
        for where, end in ends
    ]
    return [json.loads(one.stdout)[0] for one in shown]


def rates(made):
    """The rates in bytes a second that the queues are set to, None where there is no limit."""
    return {one["options"].get("rate") for one in queues(made)}


# Links: no test measures a speed, as the machine may be busy; that only makes a transfer longer.

SEND = "import socket; socket.create_connection(('10.0.0.1', 29999)).sendall(bytes({}))"
RECEIVE = """
import socket
with socket.create_server(("10.0.0.1", 29999)) as server:
    print("listening", flush=True)
    one, _ = server.accept()
    while one.recv(1 << 16):
        pass
"""


def test_a_link_lets_bytes_through_no_faster_than_its_rate(machine):
    size, mbit = 200_000, 4.0
    with links.hosts(2, mbit) as made:
        assert rates(made) == {mbit * links.MBIT}
        with subprocess.Popen([*made.within(0), sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE) as receiver:
            receiver.stdout.readline()
            start = time.monotonic()
            subprocess.run([*made.within(1), sys.executable, "-c", SEND.format(size)], check=True)
            receiver.wait()
            took = time.monotonic() - start
        through = queues(made)
    # What a full bucket lets through at once comes on top of the rate, at either end of the link.
    assert took >= (size - 2 * through[0]["options"]["burst"]) / (mbit * links.MBIT)
    assert through[1]["bytes"] > size  # sent by the second host, and held back at times
    assert through[1]["overlimits"] > 0
    assert not any(one["drops"] for one in through)


def test_the_rate_of_links_can_be_changed_while_hosts_are_there(machine):
    with links.hosts(2) as made:
        assert rates(made) == {None}  # no queue that holds back
        for mbit in (5.0, math.inf, math.inf, 20.0):
            links.limit(made, mbit)
            assert rates(made) == {mbit * links.MBIT if math.isfinite(mbit) else None}


def test_bytes_that_have_waited_for_a_busy_receiver_do_not_count_as_speed(monkeypatch):
    monkeypatch.setattr(transfer, "CHUNK_BYTES", 1)
    monkeypatch.setattr(transfer, "SETTLE", 0.0)
    here, there = socket.socketpair()
    there.sendall(bytes(2000))  # as when the receiver was not given a core for a while

    def trickle():
        with contextlib.suppress(OSError):
            while True:
                time.sleep(0.01)
                there.sendall(b"!")

    thread = threading.Thread(target=trickle)
    thread.start()
    with here:
        rate = transfer._receive(here, 0.1)
    thread.join()
    assert rate <= 1 / 0.01 + 1 / 0.1  # one more may just have come


def test_a_host_has_a_network_of_its_own_and_its_name_leads_to_its_own_address(machine):
    with links.hosts(2) as made:
        shown = subprocess.run([*made.within(1), "ip", "-brief", "address"], capture_output=True, text=True).stdout
        assert sorted(line.split()[0].split("@")[0] for line in shown.splitlines()) == ["eth0", "lo"]
        code = "import socket; print(socket.gethostbyname(socket.gethostname()))"
        asked = subprocess.run([*made.within(1), sys.executable, "-c", code], capture_output=True, text=True)
        assert asked.stdout.strip() == made.addresses[1]
    assert socket.gethostbyname(socket.gethostname()) != made.addresses[1]


def test_hosts_are_gone_after_an_error_in_their_block(machine):
    with contextlib.suppress(KeyError), links.hosts(2, 1000.0):
        assert len(set(namespaces())) == 3  # and their switch
        raise KeyError
    assert namespaces() == []


def test_links_are_measured_by_a_ring_through_all_hosts_and_two_sets_of_hosts_do_not_meet(machine):
    with links.hosts(3, 100.0) as some, links.hosts(2, 1000.0) as others:
        assert not set(some.names) & set(others.names)
        assert rates(some) != rates(others)
        speed = links.measure(some, seconds=0.1)
        assert min(speed.mbit, speed.latency_seconds) > 0
        # Nothing of that went through the others' links; interfaces say a little of themselves.
        assert all(one["bytes"] > transfer.ROUNDS * len(transfer.TOKEN) for one in queues(some))
        assert max(one["bytes"] for one in queues(others)) < 10_000
    assert namespaces() == []


def test_what_a_killed_process_left_is_removed_by_the_next_and_what_is_in_use_stays(machine):
    code = "from dolb.profiling.ranks import links\nwith links.hosts(2): print(1, flush=True); links.time.sleep(600)"
    package = str(Path(links.__file__).resolve().parents[3])
    command = [sys.executable, "-P", "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": package}) as process:
        process.stdout.readline()
        assert links.remove_leftovers() == []
        assert len(set(namespaces(process.pid))) == 3
        process.kill()
    with links.hosts(2):
        assert namespaces(process.pid) == []


# Hosts that die or hang while their links are measured


@pytest.fixture
def when_joined():
    """Send a signal to a host's process as soon as it sends to the next host; what is sent is another thread's work."""
    threads = []

    def send(made, host, what):
        def found():
            listed = subprocess.run(["ip", "netns", "pids", made.names[host]], capture_output=True, text=True).stdout
            # 01: established; the port is that of the next host, which accepts there.
            joined = f":{transfer.PORT:04X} 01 "
            return [pid for pid in listed.split() if joined in Path(f"/proc/{pid}/net/tcp").read_text()]

        def act():
            wait_until(found, 60, "the ring")
            os.kill(int(found()[0]), what)

        threads.append(threading.Thread(target=act))
        threads[-1].start()

    yield send
    for thread in threads:
        thread.join()


def test_a_host_that_is_killed_ends_the_measurement_and_is_named(machine, when_joined):
    with links.hosts(3) as made:
        when_joined(made, 1, signal.SIGKILL)
        with pytest.raises(LinkError, match=r"host 1 of 3 \(10\.0\.0\.2\) could not .* exit code -9"):
            links.measure(made, seconds=600, timeout=60)  # the others do not go on to the end
        assert processes(made) == []


def test_hosts_that_hang_are_named_when_time_is_over(machine, when_joined):
    with links.hosts(2) as made:
        when_joined(made, 1, signal.SIGSTOP)
        with pytest.raises(LinkError, match=r"links were not measured within 8 s; still at it: .*host 1 of 2"):
            links.measure(made, timeout=8)
        assert processes(made) == []


def test_the_timeout_of_a_measurement_covers_its_links(machine):
    with pytest.raises(LinkError, match=r"links were not measured within 0\.001 s"):
        launch.measure(ScalingConfig(steps=1, **TINY), oversubscribe=True, timeout=0.001)
    assert namespaces() == []


def processes(made):
    return [
        pid
        for name in made.names
        for pid in subprocess.run(["ip", "netns", "pids", name], capture_output=True, text=True).stdout.split()
    ]


# Training over links


@pytest.fixture(scope="module")
def trained(machine, library, tmp_path_factory):
    """One launch on two hosts: rows by rate, of DDP also by what is sent; weights; the error when a rank is killed."""
    folder = tmp_path_factory.mktemp(library)
    configs = [ScalingConfig(library=library, steps=2, **TINY | {"link_mbit": rate}) for rate in RATES]
    configs += [ScalingConfig(**SAVING, **way) for way in WAYS] if library == "ddp" else []
    configs.append(ScalingConfig(library=library, steps=10**6, **TINY))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links.measure, "__defaults__", (0.2, links.TIMEOUT))  # a short look at the links does
        made = launch.measure_together(configs, folder=folder, oversubscribe=True, timeout=120)
        rows = [next(made) for _ in configs[:-1]]
    weights = [np.load(folder / f"weights-{number}.npy") for number in (0, 1)]
    os.kill(int((folder / "rank-1.pid").read_text()), signal.SIGKILL)
    with pytest.raises(RankError) as raised:
        next(made)
    return rows, weights, str(raised.value)


def test_one_launch_trains_over_links_of_several_rates_and_no_step_is_faster_than_its_gradients(trained):
    rows, weights, _ = trained
    gradients = 4 * sum(parameter.numel() for parameter in models.build("smallnet-4", 10).parameters())
    for mbit, row in zip(RATES, rows, strict=False):
        assert (row["hosts"].item(), row["link_mbit"].item()) == (2, mbit)
        # Two ranks of a ring send as many bytes as the buffer has; a bucket that was full lets two frames through at
        # once, before each half.
        assert row["step_seconds"].item() > (gradients - 4 * links.FRAME_BYTES) / (mbit * links.MBIT)
        assert row["achieved_mbit"].item() > 0
        assert row["link_latency_seconds"].item() > 0
    assert np.isfinite(weights[0]).all()
    assert np.array_equal(*weights)


def test_when_a_rank_is_killed_its_host_and_the_others_go_too(trained, library):
    _, _, said = trained
    assert f"rank 1 of 2 ({library}) ended with exit code -9 (SIGKILL)" in said
    assert namespaces() == []


@pytest.mark.parametrize("library", ["ddp"], indirect=True)
def test_a_link_carries_as_many_bytes_as_a_way_sends_and_all_ranks_tell_what_was_learned(trained):
    rows = trained[0][len(RATES) :]
    plain, fp16, power, local = (row["sent_bytes"].item() for row in rows)
    gradients = 4 * rows[0]["parameters"].item()
    # Two ranks send their half, then the sum of the other; packets and answers come on top.
    assert gradients < plain < 1.2 * gradients
    assert fp16 < 0.6 * plain
    assert power < 0.3 * plain
    assert local < 0.35 * plain
    for row in rows:
        right = row["final_accuracy"].item() * SAVING["evaluated"]
        assert right > 0
        assert right == pytest.approx(round(right))


def test_every_way_does_as_many_updates_before_its_accuracy_is_taken():
    runs = recipes.configs("mitigations", "paper", part="accuracy")
    assert len({run.warmup_steps + run.steps for run in runs}) == 1
    assert all(run.evaluated for run in runs)


# What is refused


def test_without_root_the_error_says_who_may():
    if os.geteuid() == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(LinkError, match=r"links need (root, .* this is user \d+|ip)"):
            links.require()
        assert not links.available()
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


def test_without_iproute2_the_error_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        LinkError, match="links need ip and tc, which are not installed; on Debian they are in iproute2"
    ):
        links.require()
