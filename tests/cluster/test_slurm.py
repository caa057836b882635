"""Sweeps on a real Slurm: whatever happens to jobs and nodes, every run is made once, with a plain sweep's bits."""

import signal
import subprocess
import sys
from pathlib import Path

import nbformat
import torch
from sweeping import (
    LONG,
    SHORT,
    assert_same_bits,
    at_once,
    dolb,
    ended,
    files,
    in_mid_run,
    let_go,
    log,
    made,
    plain_sweep,
    scenario,
)
from waiting import send_signal

from dolb import results


def send(slurm_partition: str, store: Path, *arguments: object, tasks: int = 1) -> str:
    where = ["--on", "slurm", "--partition", slurm_partition, "--parallel", tasks, "--store", store]
    return dolb("sweep", *arguments, *where)


@scenario
def test_two_arrays_one_sent_by_a_process_that_is_killed_make_every_run_once(slurm, store):
    main, seen = slurm.partition(2), set()
    program = [sys.executable, "-u", "-m", "dolb.cli", "sweep", *SHORT, "--on", "slurm", "--parallel", "2"]
    first = subprocess.Popen(
        [*program, "--partition", main, "--store", store], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    send(main, store, *SHORT, "--gpus", "2")
    yield lambda: len(list(store.glob("jobs/*/*_submitted.pkl"))) == 3
    first.kill()
    first.communicate()
    yield lambda: seen.update(files(store)) or not slurm.queue(main)
    seen.update(files(store))
    assert len(seen) == len({name for name, *_ in seen}) == 4  # a run that is made again is another file
    assert "4 done" in dolb("status", "--store", store)
    assert log(store).count("batch-size at demo scale") == 4  # two tasks, and two processes of one with two GPUs
    assert_same_bits(store, plain_sweep(SHORT, store / "plain"))


@scenario
def test_the_run_of_a_killed_task_is_made_by_another(slurm, long, store):
    main = slurm.partition()
    send(main, store, *LONG)
    yield in_mid_run(store)
    ((job, *_),) = slurm.queue(main)
    send(main, store, *LONG)
    yield lambda: len(slurm.queue(main)) == 2
    send_signal(signal.SIGKILL, *slurm.processes(job))
    yield made(store, 1)
    assert_same_bits(store, long)


@scenario
def test_a_cancelled_array_goes_on_in_mid_run(slurm, long, store):
    main = slurm.partition()
    send(main, store, *LONG)
    yield in_mid_run(store)
    assert "1 tasks are told" in dolb("cancel", "--store", store)
    yield ended(store)
    dolb("status", "--store", store, code=1)
    (paused,) = [torch.load(path, weights_only=True) for path in store.glob("paused/*.pt")]
    assert paused["epoch"] + paused["launched"] > 0
    text = dolb("sweep", *LONG, "--store", store)
    assert "begins anew" not in text
    assert_same_bits(store, long)


@scenario
def test_a_job_at_its_time_limit_is_queued_again_and_goes_on_on_another_node(slurm, long, store):
    main = slurm.partition(2)
    send(main, store, *LONG, "--minutes", "5")
    yield in_mid_run(store)
    ((job, _, node),) = slurm.queue(main)
    slurm.ask("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    slurm.ask("scontrol", "update", f"partitionname={main}", "state=down")  # so that it waits until it was looked at
    slurm.ask("scontrol", "update", f"jobid={job}", "timelimit=2")
    yield lambda: "SIGUSR2" in log(store)  # Slurm looks for such jobs twice a minute
    let_go(store)
    yield lambda: slurm.queue(main)[0][1] == "PENDING"
    assert len(list(store.glob("paused/*.pt"))) == 1
    assert "1 waiting, 0 running" in dolb("status", "--store", store, code=3)
    slurm.ask("scontrol", "update", f"jobid={job}", "timelimit=60")
    slurm.ask("scontrol", "update", f"partitionname={main}", "state=up")
    yield made(store, 1)
    assert {*slurm.nodes_of(job)} - {node}
    assert "begins anew" not in log(store)
    assert_same_bits(store, long)


@scenario
def test_a_preempted_job_is_queued_again_and_goes_on(slurm, long, store):
    low = slurm.partition(prioritytier=1, gracetime=300)
    high = slurm.partition(name="high", prioritytier=9)
    send(low, store, *LONG)
    yield in_mid_run(store)
    until_seen = f"while test ! -e {store}/seen; do sleep 0.2; done"  # so that the first waits until it was looked at
    slurm.ask("sbatch", "--partition", high, "--exclusive", "--output=/dev/null", "--wrap", until_seen)
    yield lambda: any(job[1] == "PENDING" for job in slurm.queue(low))
    assert len(list(store.glob("paused/*.pt"))) == 1
    (store / "seen").touch()
    yield made(store, 1)
    assert "begins anew" not in log(store)
    assert_same_bits(store, long)


@scenario
def test_the_run_of_a_lost_node_is_made_on_another(slurm, long, store):
    main = slurm.partition(2)
    send(main, store, *LONG)
    yield in_mid_run(store)
    ((job, _, node),) = slurm.queue(main)
    slurm.lose(node, job)
    yield made(store, 1)
    assert_same_bits(store, long)


@scenario
def test_what_slurm_refuses_is_one_line_and_leaves_nothing_behind(slurm, store):
    text = dolb("sweep", *SHORT, "--on", "slurm", "--partition", "night", "--store", store, code=2)
    assert "invalid partition" in text
    assert not list(store.glob("jobs/*"))
    yield lambda: True


@scenario
def test_notebooks_are_tasks_and_one_goes_on_with_its_runs(slurm, store):
    """A notebook is warned before its limit in mid-run; another is refused."""
    main = slurm.partition()
    where = ["--on", "slurm", "--partition", main, "--store", store]
    small = [
        f"-p{name}" for name in ("archs=['smallnet-4']", "batch_sizes=[256]", "lrs=[0.1]", "seeds=[0]", "epochs=30")
    ]
    dolb("run", "batch-size", "--scale", "demo", *small, *where)
    before = set()

    def warn() -> None:
        before.update(files(store))
        slurm.ask("scontrol", "update", f"partitionname={main}", "state=down")
        slurm.ask("scancel", "--signal=USR2", slurm.queue(main)[0][0])

    yield at_once(lambda: list(store.glob("*.nc")), warn)
    yield lambda: slurm.queue(main)[0][1] == "PENDING"
    assert before
    assert "notebooks 0 done, 0 running, 1 waiting" in dolb("status", "--store", store, code=3)
    slurm.ask("scontrol", "update", f"partitionname={main}", "state=up")
    yield ended(store)
    assert "notebooks 1 done" in dolb("status", "--store", store)
    assert before <= files(store)
    (page,) = store.glob("notebooks/*/01-batch-size.ipynb")
    assert nbformat.read(page, as_version=4).cells[-1].outputs
    assert "1 of them" in dolb("run", "batch-size", "--scale", "demo", *small, *where)


@scenario
def test_papermill_is_a_job_by_the_template(slurm, repo_root, store):
    template = (repo_root / "deploy" / "slurm" / "papermill.sbatch").read_text()
    (store / ".venv" / "bin").mkdir(parents=True)
    (store / ".venv" / "bin" / "activate").write_text(f'PATH="{Path(sys.executable).parent}:$PATH"\n')
    script = store / "papermill.sbatch"
    script.write_text(template.replace("--cpus-per-task=8", "--cpus-per-task=1"))
    notebook = repo_root / "notebooks" / "17-recommend.ipynb"
    main = slurm.partition()
    command = ["sbatch", f"--partition={main}", script, notebook, "out.ipynb", "-p", "scale", "published"]
    subprocess.run(command, cwd=store, check=True, capture_output=True)
    yield lambda: not slurm.queue(main)
    said = "\n".join(path.read_text() for path in store.glob("*.log"))
    assert nbformat.read(store / "out.ipynb", as_version=4).metadata.papermill.exception is None, said


@scenario
def test_ranks_are_measured_on_several_nodes_under_both_libraries(slurm, horovod, store):
    main = slurm.partition(2)
    few = ["ddp-vs-horovod", "--part", "weak", "--nodes", "2", "--ranks", "2", "--repeats", "1"]
    send(main, store, *few)
    ((job, *_),) = slurm.queue(main)
    yield ended(store)
    nodes = slurm.nodes_of(job)
    dolb("status", "--store", store)
    runs = results.RunStore(store)
    found = results.merge(runs.get(key) for key in runs.keys())  # noqa: SIM118
    assert sorted(found["library"].values) == ["ddp", "horovod"]
    assert set(found["node_names"].values) == {",".join(nodes)}
    assert len(nodes) == 2
    assert all(device.startswith("2 nodes of ") for device in found["device"].values)
