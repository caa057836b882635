"""What cannot be read or asked for is refused with exit code 2, in one line that names it, and leaves nothing behind.

A line of the table is a call of `dolb` in a folder that holds these inputs, with braces as a shell has them, and what
the one line has to name: `*` is the word that was taken from the braces.
"""

import json
import os
import re
import shlex
import shutil
import struct
import zlib
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from typer.main import get_command

from dolb import data, results
from dolb.cli import app
from dolb.filtering import decisions, masks

pytestmark = [pytest.mark.faults, pytest.mark.timeout(60)]
DOLB = get_command(app)

REFUSED = """
# folders of images
data imagefolder:                                     | imagefolder:
data imagefolder:{none,text.txt,loop,empty,train-is-a-file} | *
data imagefolder:~nobody-here/pets                    | ~nobody-here
data imagefolder:train-only                           | has no folder test; accepted: train/<class>
data imagefolder:test-only                            | has no folder train
data imagefolder:{no-classes,images-without-classes,classes-loop} | */train
data imagefolder:{empty-class,texts-only,folders-called-images} | train/bird
data imagefolder:other-classes                        | classes ['bird', 'cat'] in only one
data imagefolder:more-classes                         | bird
data imagefolder:fewer-classes                        | dog
data imagefolder:{no-image,empty-image,truncated-png,a-billion-pixels,no-pixels,link-to-nothing} | train/cat/bad.png
data imagefolder:{link-to-itself,a-pipe}              | train/cat/bad.png
data imagefolder:truncated-jpeg                       | train/cat/bad.jpg
data imagefolder:truncated-webp                       | train/cat/bad.webp
data imagefolder:{truncated-tif,floats,integers}      | train/cat/bad.tif
data imagefolder:not-utf8                             | caf
data imagefolder:flat-one-image                       | flat-one-image/cat
data imagefolder:flat-empty-class                     | flat-empty-class/bird
data cifar100                                         | cifar100
data ""                                               | ''
data CIFAR-10                                         | accepted: digits, cifar10, fashion-mnist
data CIFAR10                                          | did you mean 'cifar10'
data pets                                             | 'pets'
data imagefolder:pets --data-dir                      | --data-dir
data                                                  | name
# filter: options
filter imagefolder:pets --method papre                | 'papre'
filter pets                                           | did you mean 'imagefolder:pets'?
archive --quick out.zip                              | --check --quick
sweep lr-scaling --data imagefolder:none --dry-run    | is no folder
sweep lr-scaling --data imagefolder:pets --dry-run    | --batch-sizes
predict --network resnet5                             | did you mean 'resnet50'?
filter imagefolder:pets --method ""                   | ''
filter imagefolder:pets --method paper,knee           | 'paper,knee'
filter imagefolder:pets --share {1.0,-0.5,nan,inf}    | share is *
filter imagefolder:pets --share 0                     | share is 0.0
filter imagefolder:pets --share 5%                    | --share
filter imagefolder:pets --eps -1                      | eps is -1.0
filter imagefolder:pets --eps {nan,inf}               | eps is *
filter imagefolder:pets --share 0.1 --eps 1           | accepted: one of them
filter imagefolder:pets --method random --eps 1       | eps is no option of method random
filter imagefolder:pets --method knee --share 0.1     | share is no option of method knee
filter imagefolder:pets --extractor {resnet19,volumenet} | *
filter imagefolder:pets --extractor smallnet-4 --features f.npy | one of them
filter imagefolder:pets --epochs {0,many}             | --epochs
filter imagefolder:pets --epochs 99999999999999999999 | epochs 99999999999999999999
filter imagefolder:pets --epochs 999999999999         | 999999999999
{filter imagefolder:pets,sweep batch-size,recommend digits} --device tpu | not known; accepted: auto, cpu, cuda, cuda:N
filter imagefolder:pets --device cuda:x               | 'cuda:x' is not known
filter imagefolder:pets --device cuda:99              | 'cuda:99' was asked for, but torch sees
filter imagefolder:pets --out {mask.csv,folder.nc,pets} | *
filter imagefolder:pets --out text.txt/mask.nc        | text.txt
filter imagefolder:pets --store {text.txt,loop}       | *
filter imagefolder:pets --shar 0.1                    | --shar
filter imagefolder:pets digits                        | digits
filter nodules-8                                      | nodules-8
filter imagefolder:one-image --features one.npy       | one-image
filter imagefolder:alike --features alike.npy         | alike
filter imagefolder:alike --method knee --features alike.npy | alike
# filter: features
filter imagefolder:pets --features {none.npy,empty.npy,text.npy,truncated.npy,claims-much.npy,no-header.npy} | *
filter imagefolder:pets --features {version-9.npy,arrays.npz,objects.npy,texts.npy,complex.npy,flags.npy} | *
filter imagefolder:pets --features {scalar.npy,flat.npy,cube.npy,no-rows.npy,no-columns.npy,nan.npy,minus-inf.npy} | *
filter imagefolder:pets --features {huge.npy,pets}    | *
filter imagefolder:pets --features short.npy          | 3 rows
filter imagefolder:pets --features long.npy           | 25 rows
# train
{train imagefolder:none,recommend imagefolder:none,sweep batch-size --data imagefolder:none} | none
train imagefolder:pets --keep {none.nc,empty.nc,text.txt,truncated.nc,foreign.nc,other.nc,no-mask.nc} | *
train imagefolder:pets --keep flipped.nc              | flipped.nc is not what was written
train imagefolder:pets --keep {from-tomorrow.nc,pets} | *
train imagefolder:pets --keep all.nc                  | the mask removes nothing
train imagefolder:pets --out page.pdf                 | page.pdf
train imagefolder:pets --out text.txt/page.html       | text.txt
train imagefolder:pets --keep class.nc                | drops every example of dog
train imagefolder:pets --batch-size 100000            | batch_size 100000
train imagefolder:pets --batch-size 0                 | --batch-size
train imagefolder:pets --lr {0,-1,nan,inf}            | lr
train imagefolder:pets --arch {resnet19,volumenet}    | *
train imagefolder:pets --seeds {1,1000}               | --seeds
{train imagefolder:pets,sweep batch-size,restore batch-size,recommend digits} --store text.txt | text.txt
# recommend
recommend                                             | Missing argument
{recommend,sweep batch-size --data,view mapped.nc --no-open --data} digit | did you mean 'digits'
recommend digits --arch {resnet19,volumenet,efficientnet-lite0} | *
recommend digits --seeds 1                            | --seeds
recommend digits --epochs 0                           | --epochs
recommend digits --batch-sizes {1,100000}             | batch size *
recommend digits --batch-sizes many                   | 'many'
recommend digits --{margin,minutes} -1                | --*
recommend digits --{margin,minutes} nan               | *
{train digits --arch,filter digits --extractor} efficientnet-lite0 | efficientnet-lite0
# decisions
keep {none.json,pets,empty.json,text.txt,mask.nc,truncated.json,utf16.json,latin1.json,deep.json} | *
keep digits-of-5000.json                              | digits-of-5000.json
keep other-format.json                                | has the format 'dolb-decisions-9'; accepted: 'dolb-decisions-1'
keep list.json                                        | list.json has the format None
keep no-dropped.json                                  | no-dropped.json lacks dropped
keep other-data.json                                  | decides about other data: imagefolder:pets with sha256:0
keep data-is-a-number.json                            | names the data set 3
keep more-examples.json                               | is about 25 examples; accepted: 24
keep {dropped-is-text,drops-half-an-example,drops-true,drops-nan}.json | *.json is not a list of whole numbers
keep drops-minus-one.json                             | drops example -1; accepted: 0 to 23
keep drops-too-much.json                              | drops example 24; accepted: 0 to 23
keep {drops-a-class,drops-all}.json                   | *.json drops every example of cat
keep unknown-data.json                                | cifar99
keep nul.json                                         | imagefolder
keep good.json --output pets                          | pets
keep good.json --output text.txt/mask.nc              | text.txt
keep good.json --map mask.nc                          | mask.nc
view {none.nc,mask.nc,text.txt,truncated.nc} --no-open | *
view mapped.nc --no-open --port 99999                 | --port
view mapped.nc --no-open --data digits                | mapped.nc
view mapped.nc --no-open --output text.txt            | text.txt
# sweep
sweep batch-sise                                      | 'batch-sise' is not known (did you mean 'batch-size'?); accepted
sweep limits --data digits                            | limits has no data
sweep filtered-large-batch --data digits              | those that have: batch-size
sweep warmup --data cifar10                           | 'cifar10'
sweep own-data --sets torn                            | set 'torn' is not known; accepted: flipped, garbage
sweep batch-size --scale {dmeo,published}             | '*'
sweep batch-size --archs resnet19                     | 'resnet19' is not known (did you mean 'resnet1
sweep batch-size --archs ""                           | ''
sweep batch-size --batch-sizes {many,64.5}            | '*'
sweep batch-size --batch-sizes 0                      | batch_size must be at least 1, got 0
sweep batch-size --batch-sizes 5000                   | 5000
sweep batch-size --batch-sizes 64,                    | '64,'
sweep batch-size --lrs {nan,1e999,-0.1}               | lr
sweep batch-size --seeds -1                           | seed must not be negative, got -1
sweep batch-size --seeds 99999999999999999999         | 99999999999999999999
sweep batch-size --epochs 0                           | epochs
sweep batch-size --epochs 1e3                         | --epochs
sweep batch-size --formats files                      | batch-size has no formats that could be changed; accepted: part
sweep batch-size --part half                          | part 'half' is not known; accepted: all
sweep batch-size --time-limit {nan,-1}                | time_limit
sweep batch-size --at-once 0                          | at_once
sweep batch-size --step fast                          | 'fast'
sweep batch-size --store text.txt/store               | text.txt
sweep batch-size --keep mine=good.json                | filtered-small-batch
sweep filtered-large-batch --keep {mine,mine=}        | mine
sweep filtered-large-batch --keep mine={none.json,text.txt,good.json} | *
sweep filtered-large-batch --keep random=digits.json  | 'random'
sweep filtered-large-batch --keep my-set=digits.json  | accepted: a letter, then letters, digits and _
sweep filtered-large-batch --sets full,best           | set 'best' is not known; accepted: network
sweep filtered-small-batch --weight-decays {nan,-1}   | weight_decay
sweep warmup --warmups {-1,1000}                      | warmup
sweep large-batch-remedies --methods lasr             | method 'lasr' is not known (did you mean 'lars'?); accepted:
sweep ddp-vs-horovod --{ranks,repeats} 0              | *
sweep data-pipeline --formats tar                     | 'tar'
sweep {data-pipeline,ddp-vs-horovod,limits,strong-weak} --part all-of-it | part 'all-of-it'
sweep data-pipeline --workers -1                      | workers
sweep batch-size --gpus 1                             | --gpus
sweep batch-size --on slrum --store sent              | 'slrum'
sweep batch-size --on local --gpus -1                 | gpus -1
sweep batch-size --on local --parallel 0              | parallel 0
# site files
sweep batch-size --on local --site {none.yml,pets,broken.yml,list.yml,latin1.yml,deep.yml} | *
sweep batch-size --on local --site unknown.yml        | 'minute'
sweep batch-size --on local --site {cpus,gpus,parallel,partition,setup,options,minutes}.yml | yml: *
# notebooks and their parameters
run                                                   | --all
{run,publish,restore} batch-sise                      | batch-sise
run batch-size --all                                  | --all
{run batch-size,book} --scale dmeo                    | dmeo
run batch-size -p scale                               | 'scale'
run batch-size -p scale demo                          | NAME=VALUE
run batch-size noise                                  | an experiment, or --all
run batch-size --scale demo -p scale=paper            | accepted: one of them
run batch-size -p =3                                  | ''
run batch-size -p batchsizes=[64]                     | 'batchsizes' (did you mean 'batch_sizes'?)
run batch-size -p device=3                            | device
run batch-size -p batch_sizes=64                      | batch_sizes
run batch-size -p 'batch_sizes=["a"]'                 | is list[str], but list[int] is accepted
run batch-size -p {epochs=nan,epochs=True,epochs=1.5} | epochs
run batch-size -p 'seeds={}'                          | seeds
run batch-size -p seeds=@deep                         | seeds
run batch-size -p scale=dmeo                          | dmeo
run batch-size --output pets                          | pets
run batch-size --output text.txt/out.ipynb            | text.txt
# prediction
predict --library mpi                                 | mpi
predict --network vgg61                               | vgg61
predict --network ""                                  | ''
predict --gpu H300                                    | H300
predict --precision fp8                               | fp8
predict --nodes 1,two                                 | '1,two'
predict --nodes 0                                     | nodes
predict --nodes ""                                    | nodes
predict --batch 0                                     | batch
predict --gpus {0,-8}                                 | gpus
predict --gbit {0,nan}                                | bandwidth
predict --latency {nan,-1}                            | latency
predict --images-per-second {0,nan}                   | images
predict --bucket-mb {nan,inf,-1}                      | bucket
predict --fusion-mb inf --library horovod             | fusion
predict --cycle-ms {nan,-1} --library horovod         | cycle
predict --output {chart.xyz,folder.html,none/chart.html,text.txt/chart.html} | *
# what was sent, published or archived
publish batch-size --store none                       | none
status --store none                                   | none
status --store {sent-truncated,sent-lacks}            | sent.json
status batch-sise --store sent-lacks                  | sent.json
cancel --store sent-truncated                         | sent.json
archive {none.zip,pets,text.txt,truncated.zip} --check | *
book --jobs 0                                         | jobs
book --output text.txt                                | text.txt
frobnicate                                            | frobnicate
"""


def cases(line: str) -> list[tuple[str, str]]:
    """Return the calls of a line of the table, each with what is to be named."""
    call, named = (part.strip() for part in line.rsplit("|", 1))
    if not (several := re.search(r"\{([^{}]+)\}", call)):
        return [(call, named)]
    return [(call.replace(several[0], word), named.replace("*", word)) for word in several[1].split(",")]


CASES = [case for line in REFUSED.strip().splitlines() if not line.startswith("#") for case in cases(line)]


def folder_of(name: str, *empty: str, most: int = 2) -> Path:
    """Make a folder of images, so many of each class to train on and one to test, and of some classes none."""
    random = np.random.default_rng(0)
    for split, n in (("train", most), ("test", 1)):
        for kind in ("cat", "dog"):
            folder = Path(name, split, kind)
            folder.mkdir(parents=True)
            for k in range(n):
                Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(folder / f"{k}.png")
    for kind in empty:
        Path(name, "train", kind).mkdir()
    return Path(name)


def png(width: int, height: int) -> bytes:
    """Return the beginning of a PNG that says so of its size."""
    said = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + said + struct.pack(">I", zlib.crc32(said))


def make_folders() -> None:
    folder_of("pets", most=12)
    Path("loop").symlink_to("loop")
    Path("empty").mkdir()
    folder_of("train-only")
    shutil.rmtree("train-only/test")
    folder_of("test-only")
    shutil.rmtree("test-only/train")
    (folder_of("train-is-a-file") / "train").rename("cats")
    Path("train-is-a-file/train").touch()
    for split in ("train", "test"):
        Path("no-classes", split).mkdir(parents=True)
        shutil.copytree("pets/test/cat", Path("images-without-classes", split))
        Path("classes-loop", split).mkdir(parents=True)
        Path("classes-loop", split, "cat").symlink_to("../" + split)
        for kind, n in (("one-image", 1), ("alike", 40)):
            Path(kind, split, "cat").mkdir(parents=True)
            for k in range(n):
                Image.new("RGB", (8, 8)).save(f"{kind}/{split}/cat/{k}.png")
    folder_of("empty-class", "bird")
    (folder_of("texts-only", "bird") / "train/bird/notes.txt").touch()
    (folder_of("folders-called-images", "bird") / "train/bird/x.png").mkdir()
    (folder_of("other-classes") / "test/cat").rename("other-classes/test/bird")
    shutil.rmtree(folder_of("fewer-classes") / "test/dog")
    shutil.copytree("pets/test/cat", folder_of("more-classes") / "test/bird")
    for split in ("train", "test"):
        shutil.copytree(f"pets/{split}/cat", Path("not-utf8", split, os.fsdecode(b"caf\xe9")))
    shutil.copytree("pets/train", "flat-one-image")
    for path in sorted(Path("flat-one-image/cat").iterdir())[1:]:
        path.unlink()
    shutil.copytree("pets/train", "flat-empty-class")
    Path("flat-empty-class/bird").mkdir()


def make_images() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    contents = {
        "no-image": b"no image",
        "empty-image": b"",
        "a-billion-pixels": png(10**5, 10**5),
        "no-pixels": png(0, 0),
    }
    for name, content in contents.items():
        (folder_of(name) / "train/cat/bad.png").write_bytes(content)
    for kind in ("png", "jpeg", "webp", "tif"):
        path = folder_of(f"truncated-{kind}") / "train/cat" / f"bad.{kind.replace('jpeg', 'jpg')}"
        noise.save(path)
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    for name, kind in (("floats", np.float32), ("integers", np.int32)):
        Image.fromarray(np.zeros((8, 8), dtype=kind)).save(folder_of(name) / "train/cat/bad.tif")
    (folder_of("link-to-nothing") / "train/cat/bad.png").symlink_to("nothing.png")
    (folder_of("link-to-itself") / "train/cat/bad.png").symlink_to("bad.png")
    os.mkfifo(folder_of("a-pipe") / "train/cat/bad.png")


def make_features() -> None:
    good = np.random.default_rng(0).normal(size=(24, 4)).astype(np.float32)
    arrays = {
        "f": good, "texts": good.astype(str), "complex": good.astype(complex), "flags": good > 0,
        "scalar": np.float32(3), "flat": good[:, 0], "cube": good[None], "no-rows": good[:0], "no-columns": good[:, :0],
        "short": good[:3], "long": np.zeros((25, 4)), "nan": np.where(good > 1, np.nan, good),
        "minus-inf": np.where(good > 1, -np.inf, good), "huge": good.astype(float) * 1e300, "one": good[:1],
        "alike": np.ones((40, 4)),
    }  # fmt: skip
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    np.savez("arrays.npz", good)
    np.save("objects.npy", np.array([[{}], [[]]], dtype=object), allow_pickle=True)
    whole = Path("f.npy").read_bytes()
    Path("empty.npy").touch()
    Path("text.npy").write_text("no array")
    Path("truncated.npy").write_bytes(whole[:-7])
    Path("claims-much.npy").write_bytes(whole.replace(b"(24, 4), }         ", b"(9999999999, 4999)}"))
    Path("no-header.npy").write_bytes(whole.replace(b"}", b" "))
    Path("version-9.npy").write_bytes(whole[:6] + b"\x09" + whole[7:])


def make_masks() -> None:
    pets = data.load("imagefolder:pets", progress=False)
    keep, n = np.arange(24) != 3, 24
    whole = masks.save_keep("mask.nc", keep, pets, "mine").read_bytes()
    place = np.random.default_rng(0).normal(size=(n, 2))
    masks.save_keep("mapped.nc", keep, pets, "mine", coordinates=place)
    masks.save_keep("all.nc", keep | True, pets, "mine")
    masks.save_keep("class.nc", pets.train_labels == 0, pets, "mine")
    masks.save_keep("other.nc", np.arange(1437) > 9, data.load("digits"), "mine")
    Path("empty.nc").touch()
    Path("truncated.nc").write_bytes(whole[: len(whole) // 2])
    Path("flipped.nc").write_bytes(whole[:900] + bytes([whole[900] ^ 1]) + whole[901:])
    results.save(results.load("mapped.nc").drop_vars("keep"), "no-mask.nc")
    for name, version in (("foreign.nc", 0), ("from-tomorrow.nc", 999)):
        with h5py.File(name, "w") as file:
            file["x"] = [1.0]
            file.attrs["schema_version"] = version
    Path("folder.nc").mkdir()
    good = decisions.header(pets)
    said = {
        "good": {"dropped": [3]}, "other-format": {"format": "dolb-decisions-9"}, "no-dropped": {},
        "other-data": {"data_fingerprint": "sha256:0"}, "unknown-data": {"data": "cifar99"},
        "nul": {"data": "imagefolder:\0"}, "data-is-a-number": {"data": 3}, "more-examples": {"examples": 25},
        "dropped-is-text": {"dropped": "3"}, "drops-half-an-example": {"dropped": [0.5]},
        "drops-true": {"dropped": [True]}, "drops-nan": {"dropped": [float("nan")]},
        "drops-minus-one": {"dropped": [-1]}, "drops-too-much": {"dropped": [24]},
        "drops-a-class": {"dropped": [*range(12)]}, "drops-all": {"dropped": [*range(24)]},
    }  # fmt: skip
    for name, changed in said.items():
        lacks = {} if name == "no-dropped" else {"dropped": [3]}
        Path(f"{name}.json").write_text(json.dumps(good | lacks | changed))
    text = Path("good.json").read_text()
    Path("empty.json").touch()
    Path("list.json").write_text("[1, 2]")
    Path("truncated.json").write_text(text[:-9])
    Path("utf16.json").write_text(text, encoding="utf-16")
    Path("latin1.json").write_bytes(text.replace("dolb view", "caf\xe9").encode("latin-1"))
    Path("deep.json").write_text('{"a":' + "[" * 100_000)
    Path("digits-of-5000.json").write_text(text.replace("[3]", f"[{'9' * 5000}]"))
    digits = data.load("digits")
    Path("digits.json").write_text(json.dumps(decisions.header(digits) | {"dropped": [3]}))


def make_others() -> None:
    Path("text.txt").write_text("a text\n")
    sites = {
        "broken": "gpus: [1", "list": "- 1", "deep": "[" * 1000, "unknown": "minute: 9", "cpus": "cpus: 1.5",
        "gpus": "gpus: true", "parallel": "parallel: -1", "partition": "partition: 3", "setup": "setup: module load",
        "options": "options: [qos]", "minutes": "minutes: 1",
    }  # fmt: skip
    for name, text in sites.items():
        Path(f"{name}.yml").write_text(text)
    Path("latin1.yml").write_bytes("partition: caf\xe9".encode("latin-1"))
    for name, text in (("sent-truncated", '{"slug": "batch'), ("sent-lacks", '{"slug": "batch-size"}')):
        Path(name, "jobs", "one").mkdir(parents=True)
        Path(name, "jobs", "one", "sent.json").write_text(text)
    Path("truncated.zip").write_bytes(Path("arrays.npz").read_bytes()[:-30])
    Path("folder.html").mkdir()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """The folder of all inputs of the table, and the files that are in it."""
    folder, before = tmp_path_factory.mktemp("inputs"), Path.cwd()
    os.chdir(folder)
    try:
        for make in (make_folders, make_images, make_features, make_masks, make_others):
            make()
    finally:
        os.chdir(before)
    return folder, files_in(folder)


def files_in(folder: Path) -> set[str]:
    """The files in a folder, without what a store rightly keeps of a stage that was finished."""
    return {f"{where}/{name}" for where, _, names in os.walk(folder) if "/networks" not in where for name in names}


@pytest.mark.parametrize(("call", "named"), CASES, ids=[call for call, _ in CASES])
def test_a_bad_input_is_refused_in_one_line_that_names_it(inputs, monkeypatch, capsys, call, named):
    folder, files = inputs
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("DOLB_STORE", "store")
    with pytest.raises(SystemExit) as ended:
        DOLB([word.replace("@deep", "[" * 5000) for word in shlex.split(call)], prog_name="dolb")
    out, err = capsys.readouterr()
    *_, last = err.splitlines() or [""]
    assert ended.value.code == 2, out + err
    assert last.startswith("error: "), err
    assert named in last
    assert err.count("error: ") == 1
    assert "Traceback" not in out + err
    assert files_in(folder) == files
