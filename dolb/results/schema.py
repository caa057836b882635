"""The schema of results: the only names allowed, where they live, and what they mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xarray as xr


class SchemaError(ValueError):
    """A Dataset that does not follow the schema; the message lists every fault."""


@dataclass(frozen=True)
class Variable:
    """One name of the schema: where it lives, what kind of value it holds, and what it means."""

    dims: tuple[str, ...]
    kind: str  # "text", "int", "float" or "bool"
    meaning: str
    unit: str = ""
    role: str = "measured"  # "config", "measured", "provenance", "benchmark", "scaling", "filter", "landscape", "layer"


def _on(dims: tuple[str, ...], role: str, rows: Mapping[str, tuple[str, ...]]) -> dict[str, Variable]:
    return {name: Variable(dims, kind, meaning, "".join(unit), role) for name, (kind, meaning, *unit) in rows.items()}


SCHEMA: dict[str, Variable] = {
    **_on(
        ("run",),
        "config",
        {
            "experiment": ("text", "slug of the experiment the run belongs to"),
            "data": ("text", "name of the data set"),
            "subset": ("text", "which training examples were used; `full` is all"),
            "arch": ("text", "name of the network"),
            "batch_size": ("int", "global batch size: examples in one update", "examples"),
            "lr": ("float", "base learning rate, before scaling with the batch"),
            "lr_scaling": ("text", "how the rate grows with the batch: none, linear, sqrt"),
            "base_batch_size": ("int", "batch size at which scaling leaves the rate as it is", "examples"),
            "warmup_epochs": ("float", "length of the gradual warmup", "epochs"),
            "decay": ("text", "how the rate falls after warmup"),
            "optimizer": ("text", "update rule"),
            "momentum": ("float", "momentum coefficient"),
            "weight_decay": ("float", "L2 coefficient"),
            "label_smoothing": ("float", "share of the target spread over all classes"),
            "epochs": ("int", "passes over the training set", "epochs"),
            "bn_workers": ("int", "shares of the batch over which batch-norm statistics are taken"),
            "augment": ("text", "random changes to training images"),
            "precision": (
                "text",
                "arithmetic of the network: fp32, or bf16 with fp32 weights; layer times tell tf32 from fp32",
            ),
            "seed": ("int", "seed of initial weights, order and augmentation"),
        },
    ),
    **_on(
        ("run",),
        "measured",
        {
            "diverged": ("bool", "the training loss stopped being finite; the run was ended there"),
            "images_per_second": ("float", "training throughput of this run, evaluation left out", "images/s"),
            "seconds": ("float", "wall-clock time of training and evaluation, set-up left out", "s"),
            "peak_memory_bytes": (
                "int",
                "peak memory: of the device per run, or of the process on a CPU; of a map or mask that of the process "
                "while it was made, unless the file's attribute `peak_memory` says otherwise",
                "bytes",
            ),
            "peak_host_memory_bytes": (
                "float",
                "high-water mark of the host memory of the process that made the run, its other runs included; NaN: "
                "not recorded",
                "bytes",
            ),
            "concurrent_runs": ("float", "runs on the device meanwhile, this one counted, mean over epochs"),
            "device_share": ("float", "part of the device it had, by packing, mean over epochs; NaN: not recorded"),
            "parameters": ("int", "trainable parameters of the network"),
            "training_examples": ("int", "examples in the training set after the subset was taken", "examples"),
            "test_examples": ("int", "examples in the test set", "examples"),
        },
    ),
    **_on(
        ("run",),
        "provenance",
        {
            "key": ("text", "hash of the config fields that differ from their defaults"),
            "dolb_version": ("text", "version of this package"),
            "commit": ("text", "commit of this package"),
            "torch_version": ("text", "version of torch"),
            "device": ("text", "name of the device"),
            "engine": ("text", "how steps ran: eager; graph, the same as a CUDA graph; or fused, by our own kernels"),
            "world_size": ("int", "processes that trained together"),
            "data_fingerprint": ("text", "sha256 of the training and test examples"),
            "source": ("text", "measured or simulated"),
        },
    ),
    **_on(
        ("run",),
        "benchmark",
        {
            "benchmark": ("text", "what is timed, such as `training step`"),
            "program": ("text", "which implementation was timed"),
            "repeat": ("int", "number of the repetition, from 0"),
            "measured_at": ("text", "when it was timed, UTC; programs with one time took turns in one process"),
            "step_seconds": ("float", "wall-clock time of one step, median over the steps of the repetition", "s"),
            "runs_at_once": ("int", "runs that shared the device; step_seconds is then their time over their steps"),
            "step_flops": ("float", "arithmetic that a step needs, counted from the network", "FLOP"),
            "step_bytes": ("float", "device memory that a step moves at least, counted from the network", "bytes"),
            "peak_flops": ("float", "fastest matrix product measured on the device, in the run's precision", "FLOP/s"),
            "peak_bandwidth": ("float", "fastest copy measured on the device, bytes read and written", "bytes/s"),
        },
    ),
    **_on(
        ("run",),
        "scaling",
        {
            "library": ("text", "what averages gradients over ranks: ddp or horovod"),
            "ranks": ("int", "processes that train together"),
            "scaling": ("text", "what stays as ranks grow: weak, the batch of a rank; strong, the global batch"),
            "device_kind": ("text", "what a rank runs on: cpu, over Gloo, or cuda, over NCCL"),
            "batch_size_per_rank": ("int", "examples of one update on one rank", "examples"),
            "steps": ("int", "steps that were timed"),
            "warmup_steps": ("int", "steps before the first that was timed"),
            "trace_steps": ("int", "steps that were traced, after those timed; tracing slows all of them"),
            "bucket_mb": ("float", "DDP: gradients are reduced in buckets of this size", "MiB"),
            "fusion_threshold_mb": ("float", "Horovod: at most so much is reduced at a time", "MiB"),
            "cycle_time_ms": ("float", "Horovod: time between two rounds of negotiation", "ms"),
            "efficiency": (
                "float",
                "throughput of a rank relative to that of one rank alone, without a library where that was measured",
            ),
            "alone_steps": ("int", "steps of one rank without a library, before the ranks train and again after"),
            "alone_images_per_second": ("float", "throughput of these, geometric mean of before and after", "images/s"),
            "alone_drift": ("float", "their throughput after over that before; what changed was not the library"),
            "pinned": ("bool", "each rank, with the threads of its library, was held to a core of its own"),
            "threads_per_rank": ("float", "hardware threads that a rank could run on; NaN: not recorded"),
            "threads_per_core": ("float", "hardware threads of a core of the machine; NaN: not recorded"),
            "busy_threads": ("float", "threads busy with other work just before ranks started, low priority apart"),
            "efficiency_low": ("float", "simulated: lower end of the band for what is not known"),
            "efficiency_high": ("float", "simulated: upper end of the band for what is not known"),
            "ddp_ahead": ("float", "simulated: share of draws of what is not known in which DDP is more efficient"),
            "ddp_lead_low": ("float", "simulated: DDP's efficiency over this one, lower end over the same draws"),
            "ddp_lead_high": ("float", "simulated: upper end of it"),
            "judged_images_per_second": ("float", "simulated for a run by a fit to other runs alone", "images/s"),
            "bend_low": ("float", "simulated: fewest ranks at which the curve bends, lower end over these draws"),
            "bend_high": ("float", "simulated: upper end of it; infinite: in some draws it does not bend"),
            "variant": ("text", "library, version and settings in words, such as `Horovod 0.20, no cache`"),
            "network": ("text", "what ranks communicate over: `loopback` or `links` here, or a simulated machine"),
            "hosts": ("int", "network namespaces that ranks are dealt to; 1 is the machine itself, over its loopback"),
            "link_mbit": ("float", "rate to which each host's link is held, both ways; infinite: not held", "Mbit/s"),
            "achieved_mbit": ("float", "what TCP gets over the links while every host sends to the next", "Mbit/s"),
            "link_latency_seconds": ("float", "time of a small message by TCP from one host to the next, median", "s"),
            "switched_off": ("text", "simulated: mechanism that was left out; `none` is the whole model"),
            "communication_seconds": ("float", "time of a step in which gradients are reduced, hidden or not", "s"),
            "exposed_seconds": ("float", "part of it that no computing hides", "s"),
            "overlap": ("float", "share of the communication that is hidden behind computing"),
            "negotiation_seconds": ("float", "Horovod: time of a step in which ranks agree on what to reduce", "s"),
            "negotiation_between_seconds": ("float", "Horovod: part of it in which nothing is reduced", "s"),
            "queue_seconds": ("float", "time of a step in which collectives wait for a thread or for data", "s"),
            "late_seconds": ("float", "how long after the first rank the last has done its share of a step", "s"),
            "idle_seconds": ("float", "time of a step in which a rank neither computes nor communicates", "s"),
            "messages": ("float", "all-reduces in a step"),
            "same_order": ("bool", "every traced step, on every rank, reduces the same sequence of sizes"),
            "message_steps": ("float", "steps of a ring all-reduce until every rank has the sum, counted"),
        },
    ),
    **_on(
        ("run",),
        "filter",
        {
            "filter": ("text", "how the mask was made; `none` is a map without one"),
            "weights": ("text", "where the network's weights are from: trained here, or imagenet"),
            "trained_by": ("text", "key of the run that trained the network"),
            "perplexity": ("float", "t-SNE: effective number of neighbours of a point"),
            "iterations": ("int", "t-SNE: iterations after early exaggeration"),
            "map_seed": ("int", "seed of the map"),
            "map_rate": ("float", "t-SNE: learning rate; 0 follows the number of points"),
            "map_start": ("text", "t-SNE: where points start, at the first principal components or at random"),
            "eps": ("float", "DBSCAN: radius of a neighbourhood, mean where each class has its own; NaN: no radius"),
            "share": ("float", "share of the training set for which the radius was found; 0 where it was given"),
            "min_samples": ("int", "DBSCAN: points within eps that make a core point"),
            "within": ("text", "mask of the round before, by its key: the map is of what that keeps; empty: of all"),
            "size_of": ("text", "key of the mask whose size, class by class, this one has"),
            "networks": ("int", "networks trained for the mask: seeds of EL2N, folds of confident learning"),
            "feature_width": ("int", "penultimate features of the network"),
            "network_accuracy": ("float", "share of test examples that the network classifies correctly, 0 to 1"),
            # What a mask cost, by part. A part that was found in the store counts with the time that it once took.
            "network_seconds": ("float", "training the networks of the mask, their share of the device's time", "s"),
            "feature_seconds": ("float", "extracting their features", "s"),
            "map_seconds": ("float", "placing the features on the map", "s"),
            "score_seconds": ("float", "scoring the examples by what networks say of them, or by features", "s"),
            "mask_seconds": ("float", "choosing what to remove, from map or scores", "s"),
        },
    ),
    **_on(
        ("run",),
        "landscape",
        {
            "judged_on": ("text", "sets over which the loss is taken, with commas"),
            "judged_examples": ("int", "examples of each set over which the loss is taken", "examples"),
            "eigenvalue_tolerance": ("float", "Lanczos ends when the bound on the error is this part of an eigenvalue"),
            "most_products": ("int", "Lanczos: products with the Hessian at most"),
            "trace_probes": ("int", "random vectors by which a trace is estimated"),
            "sharpness_radius": ("float", "distance from the trained weights within which the loss may rise"),
            "normalized_radius": ("float", "the same where every filter has length one"),
            "ascent_steps": ("int", "steps along the gradient that look for the largest rise"),
            "surface_points": ("int", "points of the loss surface along each direction"),
            "surface_reach": ("float", "largest alpha and beta of the loss surface"),
            "weight_norm": ("float", "length of all filters together, batch norm and biases left out"),
            "landscape_seconds": ("float", "wall-clock time of measuring the landscape", "s"),
        },
    ),
    **_on(("loss_over",), "landscape", {"loss_over": ("text", "kind of set over which the loss is taken")}),
    **_on(
        ("run", "loss_over"),
        "landscape",
        {
            "judged_loss": ("float", "mean loss at the trained weights, images as they are", "nats"),
            "gradient_norm": ("float", "length of its gradient"),
            "top_eigenvalue": ("float", "largest eigenvalue of its Hessian"),
            "top_eigenvalue_error": ("float", "bound on the error of that"),
            "hessian_trace": ("float", "trace of its Hessian, estimated"),
            "hessian_trace_error": ("float", "standard error of that over the probes"),
            "sharpness": ("float", "largest rise of the loss found within the radius", "nats"),
            "sharpness_slope": ("float", "the part of it that the gradient alone makes: radius times length", "nats"),
            "normalized_eigenvalue": ("float", "top_eigenvalue where every filter has length one"),
            "normalized_eigenvalue_error": ("float", "bound on the error of that"),
            "normalized_trace": ("float", "hessian_trace where every filter has length one"),
            "normalized_trace_error": ("float", "standard error of that over the probes"),
            "normalized_sharpness": ("float", "sharpness where every filter has length one", "nats"),
            "normalized_sharpness_slope": ("float", "the part of it that the gradient alone makes", "nats"),
        },
    ),
    **_on(
        ("run", "loss_over", "alpha", "beta"),
        "landscape",
        {
            "surface_loss": ("float", "mean loss alpha along one and beta along another direction", "nats"),
            "surface_accuracy": ("float", "share of the examples classified correctly there, 0 to 1"),
        },
    ),
    **_on(
        ("run",),
        "layer",
        {
            "image_size": ("int", "height and width of an image", "pixels"),
            "num_classes": ("int", "classes of the network's last layer"),
            "passes": ("int", "forward and backward passes over which a median is taken"),
            "pass_seconds": ("float", "forward and backward pass in which nothing is marked, median", "s"),
            "pass_spread_seconds": ("float", "range of the middle half of these passes", "s"),
            "marked_pass_seconds": ("float", "the same with a mark at every layer, median, before scaling", "s"),
        },
    ),
    **_on(
        ("layer",),
        "layer",
        {
            "tensor": ("text", "parameter tensor; tensors are in the order of registration"),
            "tensor_bytes": ("int", "size of its gradient", "bytes"),
            "forward_seconds": ("float", "time of its module in a forward pass, at the module's last tensor", "s"),
            "backward_seconds": ("float", "time in a backward pass from the gradient ready before it to its own", "s"),
            "ready_spread_seconds": ("float", "range of the middle half of passes, of when its gradient is ready", "s"),
            "layer_run": ("int", "entry of `run` that the tensor belongs to"),
        },
    ),
    **_on(
        ("run", "worker", "step"),
        "measured",
        {"rank_step_seconds": ("float", "wall-clock time of one step on one rank", "s")},
    ),
    **_on(
        ("run", "epoch"),
        "measured",
        {
            "train_loss": ("float", "mean training loss over the epoch, as the weights moved", "nats"),
            "test_loss": ("float", "mean test loss after the epoch", "nats"),
            "test_accuracy": ("float", "share of test examples classified correctly after the epoch, 0 to 1"),
            "learning_rate": ("float", "rate of the last update of the epoch"),
        },
    ),
    **_on(
        ("example",),
        "measured",
        {
            "label": ("int", "class of the example"),
            "keep": ("bool", "the example stays in the training set"),
            "x": ("float", "first coordinate on the map"),
            "y": ("float", "second coordinate on the map"),
            "noise_until": ("float", "DBSCAN on the map calls the example noise at every eps below this"),
            "of_test_set": ("bool", "the example is of the test set; without this name all are of the training set"),
        },
    ),
    **_on(
        ("event",),
        "measured",
        {
            "rank": ("int", "process"),
            "lane": ("text", "track of the event: compute, communication, negotiation, ..."),
            "name": ("text", "what ran"),
            "start_us": ("float", "start", "us"),
            "end_us": ("float", "end", "us"),
            "bytes": ("int", "bytes moved", "bytes"),
            "run_number": ("int", "entry of `run` that the event belongs to, where there are several"),
        },
    ),
}

# Dimensions whose entries have numbers of their own, rather than a name of the schema.
NUMBERED = ("epoch", "worker", "step", "alpha", "beta")

# Recorded only from some version on: a file without them is valid.
OPTIONAL = ("peak_host_memory_bytes", "device_share")
LATER = {"share": 0.0, "map_rate": 0.0, "map_start": "pca"}  # and what masks without them were made with

_PROVENANCE = ("dolb_version", "commit", "torch_version", "device", "source")

# What a Dataset must hold, by the dimension or name that tells what it is; a Dataset may be several of these.
REQUIRED: dict[str, tuple[str, ...]] = {
    "epoch": tuple(
        name
        for name, variable in SCHEMA.items()
        if variable.dims in (("run",), ("run", "epoch"))
        and variable.role not in ("benchmark", "scaling", "filter", "landscape", "layer")
        and name not in OPTIONAL
    ),
    "benchmark": ("program", "repeat", "arch", "batch_size", "precision", "images_per_second", *_PROVENANCE),
    "library": ("ranks", "arch", "batch_size", "images_per_second", *_PROVENANCE),
    "example": ("label",),
    "loss_over": tuple(name for name, variable in SCHEMA.items() if variable.role == "landscape"),
    "event": ("rank", "lane", "name", "start_us", "end_us"),
    "layer": (
        *(name for name, variable in SCHEMA.items() if variable.role == "layer"),
        *("arch", "batch_size_per_rank", "precision", "images_per_second", *_PROVENANCE),
    ),
}
# Names over `example` that a file with several maps or masks has for each of them, over `run` and `example`.
BY_RUN = ("keep", "x", "y", "noise_until")
_KINDS = {"text": "UOTS", "int": "iu", "float": "f", "bool": "b"}


def dims_of(name: str, ndim: int) -> tuple[str, ...]:
    """Return the dimensions of a name of the schema: its own, after ``run`` where it may have that and has one more."""
    own = SCHEMA[name].dims
    return ("run", *own) if name in BY_RUN and ndim == len(own) + 1 else own


def validate(ds: xr.Dataset) -> xr.Dataset:
    """Return ``ds`` unchanged if it follows the schema, else raise a ``SchemaError`` with every fault."""
    faults = []
    kinds = [kind for kind in REQUIRED if kind in ds.dims or kind in ds]
    for kind in kinds:
        faults += [f"{name} is missing (a Dataset with {kind!r} needs it)" for name in REQUIRED[kind] if name not in ds]
    if not kinds:
        faults.append(f"dims {sorted(map(str, ds.dims))} tell no kind of result; expected one of {sorted(REQUIRED)}")
    for name in map(str, ds.variables):
        if name in ds.dims:
            continue
        if name not in SCHEMA:
            faults.append(f"{name} is not a name of the schema")
            continue
        want, have = SCHEMA[name], ds[name]
        if tuple(have.dims) != dims_of(name, have.ndim):
            faults.append(f"{name} has dims {tuple(have.dims)}, expected {dims_of(name, have.ndim)}")
        if have.dtype.kind not in _KINDS[want.kind]:
            faults.append(f"{name} has dtype {have.dtype}, expected {want.kind}")
    if not faults and "epoch" in ds.dims:
        faults += _range_faults(ds)
    if faults:
        raise SchemaError("; ".join(faults))
    return ds


def _range_faults(ds: xr.Dataset) -> list[str]:
    faults = []
    accuracy = ds["test_accuracy"].values
    if np.nanmin(accuracy, initial=0.0) < 0 or np.nanmax(accuracy, initial=0.0) > 1:
        faults.append("test_accuracy lies outside 0 to 1 (it is a fraction, not a percentage)")
    bad = sorted(set(map(str, ds["source"].values)) - {"measured", "simulated"})
    if bad:
        faults.append(f"source has {bad}; accepted: measured, simulated")
    keys = list(map(str, ds["key"].values))
    if len(set(keys)) != len(keys):
        faults.append("two runs have the same key")
    if not np.isfinite(ds["test_accuracy"].isel(epoch=0).values).all():
        faults.append("a run has no accuracy for its first epoch")
    return faults


def describe(ds: xr.Dataset) -> xr.Dataset:
    """Write the schema's meaning and unit into the attributes of every variable."""
    for name in map(str, ds.variables):
        if name in SCHEMA:
            ds[name].attrs = {"long_name": SCHEMA[name].meaning, "units": SCHEMA[name].unit or "1"}
    return ds
