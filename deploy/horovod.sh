#!/usr/bin/env bash
# Install Horovod for the torch of an interpreter: `deploy/horovod.sh .venv/bin/python`, or `make horovod`.
#
# Horovod is published as source alone, and its last release asks for C++14 where torch's headers need C++17. So it is
# built here, and the wheel kept in the user's cache under everything it depends on: the second call takes seconds.
# JOBS is how many compilers run at a time; HOROVOD_GPU_OPERATIONS=NCCL builds it for GPUs (needs the CUDA toolkit), with
# the NCCL that torch brings unless HOROVOD_NCCL_HOME names another: one process cannot hold two.
set -euo pipefail

VERSION=0.28.1
python=${1:?usage: deploy/horovod.sh PYTHON}
root=$(cd "$(dirname "$0")/.." && pwd)
case $python in */*) python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python") ;; esac
pip() { "$python" -m pip --disable-pip-version-check --quiet "$@"; }

built_for=$("$python" -c 'import platform, sys, torch
print(f"torch{torch.__version__}-{sys.implementation.cache_tag}-{platform.machine()}")') || {
  echo "$python has no torch that Horovod could be built for; \`make env\` installs it." >&2
  exit 1
}

# The NCCL that it is to be built with: the one named, or torch's own, and what its header calls its version.
nccl= nccl_version=0
if [[ ${HOROVOD_GPU_OPERATIONS:-} == NCCL ]]; then
  nccl=${HOROVOD_NCCL_HOME:-$("$python" -c 'import nvidia.nccl; print(nvidia.nccl.__path__[0])' 2>/dev/null || true)}
  if [[ ! -f $nccl/include/nccl.h ]]; then
    echo "There is no NCCL in ${nccl:-this torch}; name the folder that holds its include and lib as HOROVOD_NCCL_HOME." >&2
    exit 1
  fi
  version_of() { sed -nE "s/^#define NCCL_$1 +([0-9]+).*/\1/p" "$nccl/include/nccl.h"; }
  nccl_version=$(($(version_of MAJOR) * 10000 + $(version_of MINOR) * 100 + $(version_of PATCH)))
fi
gpus=${HOROVOD_GPU_OPERATIONS:-cpu}
folder=${XDG_CACHE_HOME:-$HOME/.cache}/dolb/wheels/horovod$VERSION-$built_for-$gpus${nccl:+-$nccl_version}

is_installed() {
  (cd / && "$python" -W ignore -c '
import json, pathlib, sys, torch, horovod, horovod.torch as hvd
built = json.loads(pathlib.Path(horovod.__file__).with_name("metadata.json").read_text())["pytorch"]
fits = hvd.gloo_built() and int(hvd.nccl_built()) == int(sys.argv[2]) and built == torch.__version__
sys.exit(not (fits and horovod.__version__ == sys.argv[1]))' "$VERSION" "$nccl_version" 2>/dev/null)
}

# Give the build that NCCL by the name that a linker looks for, which torch's own does not have.
offer_nccl() {
  [[ -z ${HOROVOD_NCCL_HOME:-} ]] || return 0
  mkdir -p "$1/lib"
  ln -s "$nccl/include" "$1/include"
  ln -s "$nccl/lib/libnccl.so.2" "$1/lib/libnccl.so"
  export HOROVOD_NCCL_HOME=$1 HOROVOD_NCCL_LINK=${HOROVOD_NCCL_LINK:-SHARED}
}

build() {
  local missing=() work
  for command in g++ make cmake; do command -v $command >/dev/null || missing+=("$command"); done
  if ((${#missing[@]})); then
    echo "Horovod is built from source, and this machine lacks: ${missing[*]}" >&2
    echo "On Debian or Ubuntu: sudo apt-get install g++ make cmake" >&2
    exit 1
  fi
  work=$(mktemp -d)
  trap "rm -rf '$work'" EXIT
  echo "Building Horovod $VERSION for ${built_for%%-*}: some minutes, once." >&2
  pip download --no-deps --no-build-isolation --no-binary horovod --dest "$work" "horovod==$VERSION"
  tar -xzf "$work/horovod-$VERSION.tar.gz" -C "$work"
  sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 17/' \
    "$work/horovod-$VERSION/CMakeLists.txt" "$work/horovod-$VERSION/horovod/torch/CMakeLists.txt"
  # With a CUDA build of torch, CMake asks for the whole CUDA toolkit, also where no GPU operations are asked for.
  if [[ $gpus == cpu ]]; then
    sed -i 's/(torch.version.cuda is not None)/False/' "$work/horovod-$VERSION/cmake/Modules/FindPytorch.cmake"
  fi
  # Python 3.12 has no distutils any more.
  sed -i 's/from distutils.spawn import find_executable/from shutil import which as find_executable/' \
    "$work/horovod-$VERSION/horovod/runner/js_run.py"

  export HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1
  export HOROVOD_WITHOUT_MPI=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1
  # Its bundled libraries ask for policies that CMake 4 dropped, and rely on headers that GCC 13 no longer brings in.
  export CMAKE_POLICY_VERSION_MINIMUM=3.5
  local headers=(string cstdint stdexcept functional memory vector algorithm)
  export CXXFLAGS="${CXXFLAGS:-}$(printf ' -include %s' "${headers[@]}")"
  if [[ -n $nccl ]]; then offer_nccl "$work/nccl"; fi
  export MAKEFLAGS=-j${JOBS:-$(nproc)}
  if ! pip wheel --no-deps --no-build-isolation --use-pep517 --verbose --wheel-dir "$work/wheel" \
    "$work/horovod-$VERSION" >"$work/log" 2>&1; then
    tail -n 40 "$work/log" >&2
    echo "Horovod $VERSION could not be built for $built_for; the end of its log is above." >&2
    exit 1
  fi
  # Whole or not at all: a build that is interrupted, or another at the same time, leaves no half a wheel behind.
  mkdir -p "$folder"
  cp "$work"/wheel/horovod-*.whl "$folder/.$$.new"
  mv "$folder/.$$.new" "$folder/$(basename "$work"/wheel/horovod-*.whl)"
}

if ! is_installed; then
  # Horovod's own needs, at the versions of the lock; setuptools is there already, as torch needs it.
  pip install --constraint "$root/requirements.lock" setuptools cffi cloudpickle packaging psutil pyyaml
  compgen -G "$folder/horovod-*.whl" >/dev/null || build
  pip install --no-deps --force-reinstall "$folder"/horovod-*.whl
  is_installed || { echo "Horovod was installed from $folder and does not work; remove that folder." >&2; exit 1; }
fi
echo "Horovod $VERSION for ${built_for%%-*} is installed."
