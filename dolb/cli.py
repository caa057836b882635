"""The ``dolb`` command: get data, run notebooks, sweep grids, publish results, build the book, view a map."""

from __future__ import annotations

import ast
import inspect
import os
import shlex
import tempfile
import warnings
import webbrowser
from collections.abc import Callable, Collection
from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import dolb  # all else late, by the command that needs it: torch alone takes two seconds
from dolb.config import SCALES, require_known


class _Plainly(TyperGroup):
    """Commands that end with the message alone, and exit code 2, where the fault is one that the user can mend."""

    def invoke(self, ctx: Any) -> Any:
        before = warnings.formatwarning
        warnings.formatwarning = lambda message, *_, **__: f"note: {message}\n"
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # whoever read the output has seen enough
        except Exception as error:
            own = type(error).__module__.startswith("dolb.")
            usage = getattr(error, "format_message", None)  # of a command line that was not understood
            known = own or usage or isinstance(error, OSError | TypeError | ValueError | MemoryError)
            if os.environ.get("DOLB_TRACEBACK") or not known:
                raise
            said = usage() if usage else str(error) or type(error).__name__
            typer.secho(f"error: {said}", fg="red", err=True)
            raise typer.Exit(2) from error
        finally:
            warnings.formatwarning = before

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(200)) for name, command in self.commands.items()])


def _known_scale(scale: str) -> str:
    require_known("scale", scale, SCALES)
    return scale


# Without markup: it would swallow what stands in brackets, and takes longer to import than all else.
app = typer.Typer(
    name="dolb",
    cls=_Plainly,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Scale = Annotated[
    str,
    typer.Option(
        callback=_known_scale, help="published: read results and draw; demo: small, on digits; paper: the study."
    ),
]
Slug = Annotated[str, typer.Argument(help="The experiment, such as batch-size.")]
Sent = Annotated[str | None, typer.Argument(help="The experiment.  [default: all that were sent]")]
Images = Annotated[str, typer.Argument(help="imagefolder:PATH, with CLASS/* in it, or train/CLASS/* and test/CLASS/*.")]
Arch = Annotated[str | None, typer.Option(help="The network.  (default: by the data)")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Passes over the images.  (default: by the data)")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of data sets.  [default: DOLB_DATA, or a cache]")]
Store = Annotated[Path, typer.Option(envvar="DOLB_STORE", help="Folder of finished runs.")]

# Options of several commands or of many experiments: the type and what help says. Those of a grid go to the recipe by
# their names, lists are written with commas, and the recipe refuses what it does not have.
_GRID: dict[str, tuple[Any, str]] = {
    "data": (str, "Another data set than the study's, such as imagefolder:PATH; its runs are never published."),
    "part": (str, "One part of the grid, such as curve, shares or links."),
    "archs": (list[str], "Networks."),
    "batch_sizes": (list[int], "Batch sizes."),
    "lrs": (list[float], "Learning rates."),
    "seeds": (list[int], "Seeds."),
    "sets": (list[str], "Training sets, such as full,network,random."),
    "shares": (list[float], "Shares of the training set that are removed."),
    "weight_decays": (list[float], "Weight decays."),
    "warmups": (list[float], "Epochs of warmup."),
    "methods": (list[str], "Remedies, such as lars,cosine,stack."),
    "epochs": (int, "Epochs of each run."),
    "ranks": (list[int], "Numbers of processes."),
    "workers": (list[int], "Workers that a run stands for, or that read images."),
    "nodes": (int, "Machines that ranks are dealt to, those of a Slurm job."),
    "repeats": (int, "Repetitions of each measurement."),
    "formats": (list[str], "Forms of stored images."),
}
_ELSEWHERE: dict[str, tuple[Any, str]] = {
    "on": (str, "slurm, or local: start tasks there and return at once."),
    "parallel": (int, "With --on: tasks at a time."),
    "gpus": (int, "With --on: GPUs of a task."),
    "minutes": (int, "With --on slurm: time limit of a task."),
    "partition": (str, "With --on slurm: as `sinfo` lists them."),
    "account": (str, "With --on slurm: who pays."),
    "site": (Path, "With --on: a file of these, as deploy/slurm/site.yml."),
}


def _with(*tables: dict[str, tuple[Any, str]]) -> Callable[[Callable], Callable]:
    """Give a command further options, which it takes as keyword arguments; None is one that was not given."""

    def with_options(command: Callable) -> Callable:
        written = inspect.signature(command, eval_str=True)
        known = [one for one in written.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        for name, (kind, text) in (one for table in tables for one in table.items()):
            many = kind in (list[str], list[int], list[float])
            envvar = "DOLB_SITE" if name == "site" else None
            metavar = f"<{kind.__args__[0].__name__},...>" if many else None
            about = typer.Option(help=text, metavar=metavar, envvar=envvar)
            option: Any = Annotated[(str if many else kind) | None, about]
            known.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option))
        command.__signature__ = written.replace(parameters=known)  # type: ignore[attr-defined]
        return command

    return with_options


_MOST_ROWS = 40  # of a table that is printed


def _version(wanted: bool) -> None:
    if wanted:
        from dolb import results

        typer.echo(f"dolb {dolb.__version__} ({results.commit()})")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and leave.")
    ] = False,
) -> None:
    """Data optimization for large-batch training: run the experiments, publish their results, build the book."""


def _checkout() -> Path:
    """Return the folder of the project: this one or one above it, else the one this package was installed from."""
    here = Path.cwd()
    candidates = [here, *here.parents, Path(dolb.__file__).resolve().parents[1]]
    for folder in candidates:
        if (folder / "_toc.yml").is_file() and (folder / "notebooks").is_dir():
            return folder
    raise FileNotFoundError("no checkout of dolb here or above; run this inside one")


def _notebook(root: Path, slug: str) -> Path:
    there = {path.stem[3:]: path for path in sorted((root / "notebooks").glob("[0-9][0-9]-*.ipynb"))}
    require_known("notebook", slug, there)
    return there[slug]


@app.command("data")
def data_command(
    name: Annotated[str, typer.Argument(help="digits, cifar10, fashion-mnist or imagefolder:PATH.")],
    data_dir: DataDir = None,
) -> None:
    """Find or fetch a data set, verify it, and say what is in it."""
    from dolb import data as datasets

    data = datasets.load(name, data_dir)
    height, width = data.image_size
    typer.echo(f"{data.name}: {len(data.train_labels):,} training and {len(data.test_labels):,} test images")
    typer.echo(f"  {width}x{height} pixels, {data.channels} channel(s), {data.num_classes} classes")
    typer.echo(f"  fingerprint {data.fingerprint}")


@app.command(context_settings={"allow_extra_args": True})  # of papermill's `-p NAME VALUE`, refused below by its name
@_with(_ELSEWHERE)
def run(
    ctx: typer.Context,
    slug: Annotated[str | None, typer.Argument(help="The experiment, such as batch-size.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every notebook of the book.")] = False,
    scale: Scale = "published",
    parameter: Annotated[
        list[str] | None, typer.Option("--parameter", "-p", help="NAME=VALUE for the notebook; may be repeated.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="The executed notebook.  [default: _build/runs/SLUG-SCALE.ipynb]")
    ] = None,
    store: Annotated[
        Path | None, typer.Option(help="Keep executed notebooks and their runs here, and run only what it lacks.")
    ] = None,
    **options: Any,
) -> None:
    """Run an experiment's notebook with papermill, or with --all every one, here or elsewhere."""
    from dolb import publishing
    from dolb.publishing import executed

    root = _checkout()
    given, changes = dict(_assignment(text) for text in parameter or []), _wanted(ctx)
    if given.get("scale", scale) != scale and str(ctx.get_parameter_source("scale")).endswith("COMMANDLINE"):
        raise ValueError(f"--scale {scale} and -p scale={given['scale']} cannot both hold; accepted: one of them")
    if (slug is None) != every or ctx.args:
        raise ValueError("which notebook is not clear; accepted: an experiment, or --all")
    sources = [_notebook(root, slug)] if slug else publishing.listed(root)
    if not (every or options["on"] or store):
        target = output or root / "_build" / "runs" / f"{slug}-{scale}.ipynb"
        executed.run_here(sources[0], target, {"scale": scale, **given})
        typer.echo(f"wrote {target}")
        return
    if output:
        raise ValueError("--output is for one notebook that is run here; executed notebooks are kept in the store")
    folder = (store or Path(os.environ.get("DOLB_STORE", "store"))).resolve()
    orders = executed.orders(root, sources, scale, given, folder)
    done = [order.name for order in orders if order.page(folder).exists()]
    typer.echo(f"{len(orders)} notebooks at {scale} scale, {len(done)} of them in {folder / executed.FOLDER}")
    if options["on"] is None:
        executed.execute(orders, folder, say=typer.echo)
        return
    ctx.params["store"] = folder
    keys = [order.name for order in orders]
    _send(ctx, keys, len(keys) - len(done), changes, what="notebooks")


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"parameter {text!r} is not understood; accepted: NAME=VALUE")
    if name == "scale":
        _known_scale(value.strip("'\""))
    try:
        read = ast.literal_eval(value)
        return name, list(read) if isinstance(read, tuple) else read  # 32,64 is a list, as in options
    except (ValueError, SyntaxError, MemoryError, RecursionError):  # the last two: brackets in brackets, too deep
        return name, value


@app.command()
@_with(_GRID, _ELSEWHERE)
def sweep(
    ctx: typer.Context,
    slug: Annotated[str | None, typer.Argument(help="The experiment; without one all are listed.")] = None,
    scale: Annotated[str, typer.Option(callback=_known_scale, help="demo or paper.")] = "demo",
    store: Store = Path("store"),
    device: Device = "auto",
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which to stop cleanly; call again to go on.")
    ] = None,
    at_once: Annotated[int | None, typer.Option(help="Runs that share the device.")] = None,
    step: Annotated[str | None, typer.Option(help="How steps are run: eager, graph or fused.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE: train on your own mask or decisions too; may be repeated.")
    ] = None,
    data_dir: DataDir = None,
    dry_run: Annotated[bool, typer.Option(help="List the runs and which are in the store, and stop.")] = False,
    **options: Any,
) -> None:
    """Train, or measure, the runs of an experiment that the store lacks, or make its maps and masks."""
    from dolb import results, sweeps

    if slug is None:
        rows = [("experiment", "published", "lacking", "what"), *sweeps.overview()]
        typer.echo("\n".join("{:<21}{:>9}{:>9}  {}".format(*row) for row in rows))
        return
    if scale == "published":
        raise ValueError("scale 'published' has nothing to train; accepted: demo, paper")
    changes: dict[str, Any] = {name: _read(name, options[name], kind) for name, (kind, _) in _GRID.items()}
    configs, changes = sweeps.plan(slug, scale, changes, store=store, device=device, keep=keep or [], data_dir=data_dir)
    done = set(results.RunStore(store).keys())
    typer.echo(f"{slug} at {scale} scale: {len(configs)} runs, {sum(c.key in done for c in configs)} in {store}")
    if dry_run:
        typer.echo("\n".join(_listing(configs, done)))
        return
    wanted, keys = _wanted(ctx), [config.key for config in configs]
    if options["on"] is not None:
        if sweeps.needs_machines(configs):
            wanted["parallel"] = 1
        _send(ctx, keys, len(set(keys) - done), wanted)
        return
    ds = sweeps.make(
        slug, scale, configs, changes, store=store, device=device, data_dir=data_dir, time_limit=time_limit,
        at_once=at_once, step=step,
    )  # fmt: skip
    left = ds.attrs["unfinished"]
    if "test_accuracy" in ds and ds["test_accuracy"].notnull().any():  # a network that makes volumes has none
        typer.echo(sweeps.accuracies(ds).to_string(index=False, float_format="{:g}".format, max_rows=_MOST_ROWS))
    typer.echo(f"{ds.sizes['run']} runs are in {store}" + (f"; {left} are left, call again to go on" if left else ""))
    if ds.attrs.get("unavailable"):
        typer.echo(f"some cannot be made: {ds.attrs['unavailable']}")


def _wanted(ctx: typer.Context) -> dict[str, Any]:
    """Return what the command line says of tasks; without --on that is an error."""
    names = ("parallel", "gpus", "minutes", "partition", "account")
    wanted = {name: ctx.params[name] for name in names if ctx.params[name] is not None}
    if wanted and ctx.params["on"] is None:
        first = next(iter(wanted))
        raise ValueError(f"--{first} is of tasks that are sent elsewhere; say --on slurm or --on local too")
    return wanted


def _send(ctx: typer.Context, keys: list[str], left: int, changes: dict[str, Any], what: str = "runs") -> None:
    """Send tasks elsewhere that call this command without what says where."""
    from dolb import cluster, results

    given, on = ctx.params, ctx.params["on"]
    settings = cluster.read_site(given["site"]) if given["site"] else cluster.Site()
    store, device = Path(given["store"]), given.get("device", "auto")
    if device != "auto":
        changes.setdefault("gpus", max(1, settings.gpus) if device.startswith("cuda") else 0)
    if on == "local":
        changes.setdefault("parallel", cluster.processes_here(changes.get("gpus", settings.gpus)))
    settings = replace(settings, **changes)
    if not left:
        return
    settings = replace(settings, parallel=min(settings.parallel, left))
    results.RunStore(store).check_writable()
    arguments = _arguments(ctx, leave_out={"on", "site", "dry_run", *(field.name for field in fields(settings))})
    if what == "runs" and given["at_once"] is None and not settings.gpus:
        arguments += ["--at-once", "1"]  # on a CPU a task is one process
    asked = {"slug": given["slug"] or "all", "scale": given["scale"], "what": what, "keys": keys}
    sent = cluster.send(arguments, store, on=on, site=settings, nodes=given.get("nodes") or 1, **asked)
    typer.echo(f"{settings.parallel} tasks are sent; `dolb status --store {store}` says how far they are")
    typer.echo(f"their logs are in {sent.folder}")


def _arguments(ctx: typer.Context, leave_out: Collection[str]) -> list[str]:
    """Return the arguments by which this command was called, or would be, as words of a command line."""
    words = [str(ctx.command.name)]
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if parameter.name in leave_out or value is None or value is False:
            continue
        if value is True:
            words.append(parameter.opts[0])
            continue
        for each in value if isinstance(value, list | tuple) else [value]:
            words += [parameter.opts[0], str(each)] if parameter.param_type_name == "option" else [str(each)]
    return words


@app.command()
def status(
    slug: Sent = None,
    store: Store = Path("store"),
) -> None:
    """Say how far the experiments are that were sent elsewhere, with the end of the log of what failed.

    The exit code is 0 if all runs are done, 3 while tasks wait or run, and 1 if runs are left that no task will make.
    """
    from dolb import cluster

    found = cluster.progress(store, slug)
    if not found:
        raise ValueError(f"nothing was sent from {store}; accepted: a store of `dolb sweep --on`")
    for each in found:
        typer.echo(f"{each.slug} at {each.scale} scale")
        typer.echo(f"  {each.what:9}  {each.done} done, {each.running} running, {each.waiting} waiting")
        typer.echo("  tasks      " + ", ".join(f"{count} {state}" for state, count in each.tasks.items()))
        if each.hours_left is not None:
            typer.echo(f"  hours      {each.hours_used:.2g} used, about {each.hours_left:.2g} left")
        for log in each.failed:
            typer.echo("\n".join([f"  failed: {log}", *(f"    {line}" for line in cluster.tail(log))]))
    codes = {each.code for each in found}
    raise typer.Exit(next((code for code in (3, 1) if code in codes), 0))


@app.command("cancel")
def cancel_command(
    slug: Sent = None,
    store: Store = Path("store"),
) -> None:
    """Stop the tasks that were sent elsewhere; they save what is unfinished, and the same sweep goes on from there."""
    from dolb import cluster

    typer.echo(f"{cluster.cancel(store, slug)} tasks are told to stop")


def _listing(configs: list, done: set[str]) -> list[str]:
    """Return a line for each run: its key, the fields in which some are not at their defaults, and if it is done."""
    known = [field for field in fields(configs[0]) if field.name not in ("experiment", "data")]
    told = [field.name for field in known if any(getattr(config, field.name) != field.default for config in configs)]
    told += ["data"] if len({config.data for config in configs}) > 1 else []
    lines = ["  ".join([f"  {c.key}", *(f"{name} {getattr(c, name)}" for name in told)]) for c in configs]
    return [line + ("  (done)" if c.key in done else "") for line, c in zip(lines, configs, strict=True)]


def _read(name: str, given: Any, kind: Any) -> Any:
    """Return what was given for an option; of one that takes several, the list that its text says."""
    if given is None or kind not in (list[str], list[int], list[float]):
        return given
    (one,) = kind.__args__
    try:
        return [one(part.strip()) for part in given.split(",")]
    except ValueError:
        said = f"--{name.replace('_', '-')} {given!r} is not a list of {one.__name__} with commas"
        raise ValueError(said) from None


@app.command("predict")
def predict_command(
    name: Annotated[str, typer.Option("--network", help="One of ours or of torchvision's.")] = "resnet50",
    batch: Annotated[int, typer.Option(help="Images of a GPU.")] = 64,
    gpus: Annotated[int, typer.Option(help="GPUs of a node.")] = 8,
    nodes: Annotated[str, typer.Option(help="Numbers of nodes, with commas.")] = "1,2,4,8,16",
    gbit: Annotated[float, typer.Option(help="Gbit/s of a node to the others.")] = 100.0,
    latency: Annotated[float, typer.Option(help="Microseconds of a small message between nodes.")] = 9.6,
    library: Annotated[str, typer.Option(help="ddp or horovod.")] = "ddp",
    images_per_second: Annotated[
        float | None, typer.Option(help="Of one GPU.  [default: what is known of --gpu and --precision]")
    ] = None,
    gpu: Annotated[str, typer.Option(help="H200, V100 or A100.")] = "H200",
    precision: Annotated[
        str | None, typer.Option(help="fp32, tf32, amp or fp16.  [default: fp32; of an A100 tf32]")
    ] = None,
    bucket_mb: Annotated[float, typer.Option(help="DDP: MiB of a bucket.")] = 25.0,
    fusion_mb: Annotated[float, typer.Option(help="Horovod: MiB of the fusion buffer.")] = 128.0,
    cycle_ms: Annotated[float, typer.Option(help="Horovod: milliseconds of a cycle.")] = 1.0,
    output: Annotated[Path, typer.Option(help="The chart, as .html, .svg, .png or .json.")] = Path("predicted.html"),
) -> None:
    """Simulate how training scales on a cluster of your own: print the table and write the chart."""
    from dolb.figures import scaling
    from dolb.profiling.simulator import fit, libraries, network
    from dolb.profiling.simulator.predict import predict

    require_known("library", library, ("ddp", "horovod"))
    for option, value in (("bucket", bucket_mb), ("fusion", fusion_mb), ("cycle", cycle_ms), ("gpus", gpus)):
        network.require(option, value, 1 if option == "gpus" else 0, most=1e9)
    if output.suffix not in (".html", ".svg", ".png", ".json") or output.is_dir() or not output.parent.is_dir():
        kinds = ".html, .svg, .png or .json, in a folder that is there"
        raise ValueError(f"the chart cannot be {output}; accepted: a file that ends in {kinds}")
    policy: libraries.Policy = libraries.ddp(round(bucket_mb * libraries.MIB))
    if library == "horovod":
        buffer, cycle = round(fusion_mb * libraries.MIB), cycle_ms * libraries.MILLISECOND
        policy = replace(libraries.horovod(), fusion_bytes=buffer, cycle_seconds=cycle)
    over, counts = network.cluster(gpus, gbit, latency), _read("nodes", nodes, list[int])
    precision = precision or ("tf32" if gpu == "A100" else "fp32")  # what is published of it
    table = predict(name, batch, over, counts, policy, images_per_second, gpu, precision)
    one = f"{gpu} in {precision}" if images_per_second is None else f"a GPU of {images_per_second:g} images/s"
    title = f"Simulated: {name}, {batch} images on each {one}, {gpus} a node, {gbit:g} Gbit/s"
    error = fit.published().query("used == 'judge'")["error"].abs()
    typer.echo(title)
    shares = dict.fromkeys(("efficiency", "efficiency_low", "efficiency_high"), "{:.1%}".format)
    shown = table.drop(columns=["variant", "source", "messages"])
    typer.echo(shown.to_string(index=False, float_format="{:,.1f}".format, formatters=shares))
    typer.echo(f"published efficiencies are met within {error.median():.0%} (median), {error.max():.0%} at most")
    # Nothing is fetched when a page is opened.
    scaling.predicted(table, title).save(output, inline=output.suffix == ".html")
    typer.echo(f"wrote {output}")


@app.command("publish")
def publish_command(
    slug: Slug,
    store: Store = Path("store"),
    data_dir: DataDir = None,
    allow_changes: Annotated[
        bool,
        typer.Option("--allow-changes", help="Publish runs of a tree with changes, which no commit can give again."),
    ] = False,
) -> None:
    """Merge an experiment's finished runs into results/SLUG.nc, validated; of noise also the images for the map.

    Runs on masks or data of your own, which no recipe can make again, stay in the store.
    """
    from dolb import map_pages, recipes, results, sweeps

    recipes.require(slug)
    target = _checkout() / "results" / f"{slug}.nc"
    if foreign := results.RunStore(store).foreign():
        typer.echo(f"left alone, as no key names them: {', '.join(path.name for path in foreign)}")
    merged, new, lacking = sweeps.publish(slug, store, target, allow_changes=allow_changes)
    typer.echo(f"wrote {target}: {merged.sizes['run']} runs, {new} of them new; the paper grid lacks {lacking}")
    if slug in ("features", "noise"):
        typer.echo(map_pages.publish_images(slug, merged, target.parent, data_dir))


@app.command()
def restore(slug: Slug, store: Store = Path("store")) -> None:
    """Put an experiment's published runs into the store, with the masks they are trained on: a sweep goes on there."""
    from dolb import recipes, results

    recipes.require(slug)
    runs = results.RunStore(store)
    runs.check_writable()
    typer.echo(f"{store} has the published runs of {slug}, {runs.take(results.published(slug))} of them new")
    if wanted := {mask.key for mask in recipes.masks_for(slug)}:
        published = (results.published_or_none(name) for name in ("noise", "masks"))
        new = sum(runs.take(ds, wanted) for ds in published if ds is not None)
        typer.echo(f"{store} has their published masks, {new} of them new; random ones are made when they are needed")


@app.command("pages")
def pages_command() -> None:
    """Write the pages of the book that are made from the claims and the published results, and the first figure."""
    from dolb import claims, results
    from dolb.figures.batch_size import accuracy_by_batch_size
    from dolb.findings import batch_size as study
    from dolb.publishing import pages, panels

    root = _checkout()
    for path, text in pages.made(root).items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        typer.echo(f"wrote {path}")
    ds = results.load(root / "results" / "batch-size.nc")
    reported = claims.reported_accuracies(claims.load(root / "book" / "claims.yml"))
    chart = accuracy_by_batch_size(study.curve_cells(ds), reported, columns=3)
    path = root / "book" / "_static" / "first-figure.png"
    path.write_bytes(panels.picture(chart))
    typer.echo(f"wrote {path}")


@app.command()
def book(
    scale: Scale = "published",
    jobs: Annotated[int | None, typer.Option(min=1, help="Notebooks run at a time.  [default: the cores]")] = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the pages.  [default: _build/html]")] = None,
) -> None:
    """Run every notebook, pass the gate, build the Jupyter Book, and say where it is."""
    from dolb import publishing
    from dolb.profiling.ranks.launch import available_libraries

    if scale != "published" and "horovod" not in available_libraries():
        typer.echo("Horovod is not installed: what compares it with DDP measures DDP alone; `make horovod` builds it")
    index = publishing.build_book(_checkout(), scale=scale, jobs=jobs, output=output, say=typer.echo)
    typer.echo(f"the book is at {index}")


@app.command("archive")
def archive_command(
    file: Annotated[Path, typer.Argument(help="The archive to write, or to check.")],
    check: Annotated[
        bool, typer.Option("--check", help="Verify every hash, and build the book again from it.")
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="With --check: verify the hashes alone.")] = False,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Archive a tree with changes, which no commit can give again.")
    ] = False,
) -> None:
    """Write code, results, book and container recipe as one archive (a Workflow Run RO-Crate), or check one.

    The check runs the code of the archive, with the packages of this environment. It names what differs.
    """
    from dolb.publishing import archive, crate

    if quick and not check:
        raise ValueError("--quick says how to check; accepted: --check --quick")
    if check:
        differences = archive.check(file, rebuild=not quick)
        whole = f"{file} is as it was written" + ("" if quick else ", and so is its book")
        typer.echo("\n".join(differences or [whole]))
        raise typer.Exit(1 if differences else 0)
    archive.write(_checkout(), file, allow_changes, say=typer.echo)
    typer.echo(f"wrote {file}: {file.stat().st_size / 1e6:.0f} MB, sha256 {crate.sha256(file)}")


@app.command()
def view(
    file: Annotated[Path, typer.Argument(help="A mask saved with its map, or results that hold one.")],
    data: Annotated[str | None, typer.Option(help="The data set.  [default: the one the file names]")] = None,
    data_dir: DataDir = None,
    output: Annotated[Path | None, typer.Option(help="Folder for the page.  [default: a temporary one]")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve the page here until Ctrl-C; 0: any port.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser, or only say where.")] = True,
) -> None:
    """Show a map with its images, what is removed at which eps, and keep or drop examples, on one page.

    Drag around points with Shift held, or with Lasso on, to see their images.
    Keep or Drop marks them; the rest stays as the mask or the slider has it.
    Save downloads the decisions, for `dolb sweep --keep` and `dolb keep`.
    """
    from dolb import map_pages, viewer

    folder = output or Path(tempfile.mkdtemp(prefix="dolb-view-"))
    page = map_pages.write(file, folder, data, data_dir)
    typer.echo(f"wrote {page}")
    if port is not None:
        viewer.serve(folder, port, typer.echo, open_page)
    elif open_page:
        webbrowser.open(page.resolve().as_uri())


@app.command("keep")
def keep_command(
    decisions: Annotated[Path, typer.Argument(help="The file that the page of `dolb view` saved.")],
    output: Annotated[Path, typer.Option(help="The mask to write.")] = Path("keep.nc"),
    name: Annotated[str, typer.Option(help="What the mask is called.")] = "reviewed",
    on_map: Annotated[
        Path | None, typer.Option("--map", help="The file that was viewed: with its map, the mask can be viewed again.")
    ] = None,
    data_dir: DataDir = None,
) -> None:
    """Make a mask of the decisions that were saved on the page of `dolb view`."""
    from dolb import map_pages

    typer.echo(map_pages.keep(decisions, output, name, on_map, data_dir))


@app.command("filter")
def filter_command(
    name: Images,
    method: Annotated[
        str,
        typer.Option(help="paper, knee, hdbscan, neighbours, el2n, forgetting, confident, grid, random, or all."),
    ] = "paper",
    share: Annotated[float | None, typer.Option(help="Share of the images to remove.  (default: 0.05)")] = None,
    eps: Annotated[float | None, typer.Option(help="For paper, in place of a share: the radius of DBSCAN.")] = None,
    extractor: Annotated[
        str | None,
        typer.Option(help="The network to train, or efficientnet-lite0, which has weights.  (default: by the data)"),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of its training.  (default: by the data)")] = None,
    features: Annotated[
        Path | None, typer.Option(help="A .npy file in place of a network: a row for each training image, sorted.")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", "--output", help="The mask; the list of files and the page lie beside it.")
    ] = Path("mask.nc"),
    store: Store = Path("store"),
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Find the images of your own data that lie apart from their class: a mask, the files to drop, a page to look.

    Networks and maps are kept in the store: another method, or another share, does not train again.
    With --method all there is a mask of each, and one table of how many each removes and how far they agree.
    """
    from dolb import data as datasets

    datasets.require(name, data_dir)
    from dolb.filtering.config import METHODS, refuse

    methods = METHODS if method == "all" else (method,)
    refuse(methods, share, eps, extractor, features)
    from dolb import map_pages, own, results

    given = own.read_features(features) if features else None
    if out.suffix != ".nc" or out.is_dir():
        raise ValueError(f"the mask cannot be {out}; accepted: a file that ends in .nc")
    results.RunStore(store).check_writable()
    own.require_writable(out.parent)
    data = datasets.load(name, data_dir)
    how: dict[str, Any] = {"arch": extractor, "epochs": epochs, "features": given, "store": store, "device": device}
    found = own.choose(data, methods, share=share, eps=eps, **how)
    if run := found.extractor:
        typer.echo(
            f"{run.arch}, {run.epochs} epochs of batches of {run.batch_size}: {found.accuracy:.1%} of the test "
            "images are right"
        )
        if found.accuracy < own.above_guessing(data):
            typer.echo(
                f"that is hardly better than always guessing the largest class ({own.guessing(data):.1%}), so what "
                "lies apart says little; give --epochs, another --extractor, or --features"
            )
    searched, tested = len(data.train_labels), len(data.test_labels)
    typer.echo(f"searched are the {searched:,} training images; the {tested:,} test images are not")
    if method == "all":
        table, target = own.compared(found), out.with_name(f"{out.stem}-methods.csv")
        for one in found.chosen:
            own.save(found, one, out.with_name(f"{out.stem}-{one}.nc"))
        table.to_csv(target, index=False)
        typer.echo(table.to_string(index=False, float_format="{:,.3f}".format))
        typer.echo("".join(f"{one} was passed over: {why}\n" for one, why in found.passed_over.items()), nl=False)
        shows = "`dolb view` shows one, and --method METHOD lists its files"
        typer.echo(f"wrote {target} and {out.stem}-METHOD.nc for each; {shows}")
        return
    table, files = own.by_class(found, method), datasets.train_files(name, data_dir)
    most = table.sort_values("removed", ascending=False, kind="stable").head(_MOST_ROWS)
    typer.echo((table if len(table) <= _MOST_ROWS else most).to_string(index=False, float_format="{:.1%}".format))
    drop, page = out.with_name(f"{out.stem}-drop.csv"), out.with_name(f"{out.stem}-page")
    own.save(found, method, out)
    own.dropped(found, method, files).to_csv(drop, index=False, errors="surrogateescape")  # any name of a file
    index = map_pages.write(out, page, name, data_dir)
    for row in own.emptied(table).to_dict("records"):
        typer.echo(
            f"{row['class']} loses {row['share']:.0%} of its images: a small or varied class can lie apart as a whole; "
            "compare --method neighbours, which takes as large a share of each"
        )
    typer.echo(f"{table['removed'].sum():,} of {table['images'].sum():,} images would be removed; no file is touched")
    typer.echo("rare but right images lie apart from their class too: look at the page before you drop them")
    typer.echo(f"wrote {out}, {drop} and {index}")


@app.command("train")
def train_command(
    ctx: typer.Context,
    name: Images,
    keep: Annotated[Path | None, typer.Option(help="A mask of `dolb filter`, or decisions of its page.")] = None,
    arch: Arch = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Images of an update.  (default: by the data)")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.  (default: the study's)")] = None,
    epochs: Epochs = None,
    seeds: Annotated[int, typer.Option(min=2, max=100, help="Repetitions of each.")] = 5,
    out: Annotated[
        Path, typer.Option("--out", "--output", help="The page of results; a CSV of the runs lies beside it.")
    ] = Path("train-page/index.html"),
    store: Store = Path("store"),
    device: Device = "auto",
    data_dir: DataDir = None,
) -> None:
    """Train on all of your images, on those that a mask keeps, and on as many at random: did filtering help?

    Finished runs are kept in the store: call again after an interruption, or with more seeds, and it goes on.
    """
    from dolb import data as datasets

    datasets.require(name, data_dir)
    from dolb import own, train_page
    from dolb.filtering import masks

    if out.suffix != ".html" or out.is_dir():
        raise ValueError(f"the page cannot be {out}; accepted: a file that ends in .html")
    own.require_writable(out.parent)
    data = datasets.load(name, data_dir)
    mask = masks.load_keep(keep, data) if keep else None
    given = {"batch_size": batch_size, "lr": lr, "epochs": epochs}
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    ds = own.compare(data, mask, seeds=seeds, arch=arch, store=store, device=device, data_dir=data_dir, **changes)
    if left := ds.attrs["unfinished"]:
        typer.echo(f"{left} runs are left; call again to go on")
        return
    typer.echo(own.accuracies(ds).to_string(index=False, float_format="{:.2f}".format))
    lines = []
    for one, other, points, low, high, n in own.gains(ds).to_numpy().tolist():
        helped = "it helped" if low > 0 else "it hurt" if high < 0 else "that may be chance"
        lines.append(f"{one} less {other}: {points:+.2f} points ({low:+.2f} to {high:+.2f}, 95%, {n} seeds): {helped}")
    command = shlex.join(["dolb", *_arguments(ctx, leave_out={"store", "data_dir", "device", "out"})])
    page, table = train_page.write(ds, out, command, lines)
    typer.echo("\n".join([*lines, f"wrote {page} and {table}"]))


@app.command("recommend")
def recommend_command(
    name: Images,
    arch: Arch = None,
    epochs: Epochs = None,
    seeds: Annotated[int, typer.Option(min=2, max=100, help="Repetitions of each batch size.")] = 5,
    batch_sizes: Annotated[
        str | None, typer.Option(metavar="<int,...>", help="To check.  (default: around the critical one)")
    ] = None,
    margin: Annotated[float, typer.Option(min=0, help="Points of accuracy that a larger batch may cost.")] = 1.0,
    store: Store = Path("store"),
    device: Device = "auto",
    data_dir: DataDir = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="Stop by then; call again to go on.")] = None,
) -> None:
    """Say which batch size and learning rate suit your images: the largest batch that costs little accuracy.

    A short search finds the rate, the noise of the gradient says how large a batch may be, and runs around that check
    it. All is judged by a fifth of the training images, which are held out; the test images are not looked at.

    Finished runs are kept in the store. The exit code is 3 if the minutes were too few.
    """
    from dolb import data as datasets

    datasets.require(name, data_dir)
    from dolb import own_batch

    data = datasets.load(name, data_dir)
    how: dict[str, Any] = {"arch": arch, "epochs": epochs, "seeds": seeds, "minutes": minutes, "margin": margin}
    how |= {"batch_sizes": _read("batch_sizes", batch_sizes, list[int]), "say": typer.echo}
    try:
        found = own_batch.recommend(data, store=store, device=device, data_dir=data_dir, **how)
    except TimeoutError as early:
        typer.echo(f"--minutes {minutes:g} are over, and runs are left; call again to go on")
        raise typer.Exit(3) from early
    run, best, taken, above = found.run, found.best, found.taken, found.above
    typer.echo(own_batch.shown(found.checked).to_string(index=False))
    faster = best["epoch_seconds"] / taken["epoch_seconds"]
    beside = f"{taken['below']:.2f} points below the best, batch {best['batch_size']}, and {faster:.1f} times as fast"
    typer.echo(
        f"take batch {taken['batch_size']} at rate {taken['lr']:g}: "
        + ("the most accurate" if taken == best else beside)
    )
    if above is None:
        typer.echo("no larger batch was tried; --batch-sizes names them")
    else:
        sure = above["below_low"] > margin
        typer.echo(
            f"batch {above['batch_size']} {'costs' if sure else 'seems to cost'} {above['below']:.2f} points "
            f"({above['below_low']:.2f} to {above['below_high']:.2f}, 95%), and --margin allows {margin:g}"
            + ("" if sure else "; that may be chance, and more --seeds would tell")
        )
    words = f"dolb train {name} --batch-size {taken['batch_size']} --lr {taken['lr']:g} --epochs {run.epochs}"
    typer.echo(f"what it reaches on the test images: {words} --arch {run.arch}")


if __name__ == "__main__":
    app()
