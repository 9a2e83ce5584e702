#!/usr/bin/env bash
# scripts/setup.sh [test|demo|bench|lint]: a bare machine -> .venv with torchbolt installed.
#
# Every step looks first and does nothing when its result is there, so running it again costs about a second.
# With `lint`, only the tools are prepared and nothing is built.
source "$(dirname "$0")/common.sh"
purpose=${1:-build}

torch_version=2.13.0 # installed where no torch is found; exactly this one, since the extension is built against it

# The names are the same on Debian 12 and Ubuntu 24.04. LLVM's archives need libzstd and zlib.
packages=(g++ python3-dev python3-venv llvm-19-dev lld-19 libzstd-dev zlib1g-dev libgtest-dev)
[[ $purpose == lint ]] && packages+=(clang-format-19 clang-tidy-19)

system_packages() {
  local missing=() package
  for package in "${packages[@]}"; do
    have_package "$package" || missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  have_package ccache || missing+=(ccache)

  local install="apt-get install -y --no-install-recommends ${missing[*]}"
  command -v apt-get > /dev/null || fail "missing packages (Debian's names): ${missing[*]}"
  local as_root=()
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2> /dev/null || fail "missing system packages; run: sudo $install"
    as_root=(sudo)
  fi
  step "system packages: ${missing[*]}"
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive $install
}

# A Python of one's own (pyenv, conda) brings its headers and venv along: then the distribution's are not needed.
have_package() {
  case $1 in
    python3-dev | python3-venv) "$(find_python)" -c "$python_is_whole" 2> /dev/null && return ;;
    g++) command -v g++ > /dev/null && return ;;
  esac
  dpkg-query -W -f='${Status}' "$1" 2> /dev/null | grep -q 'ok installed'
}
python_is_whole='
import ensurepip, os, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))'

# The first Python that is 3.11 or 3.12; PYTHON=... chooses another.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.12 python3.11; do
    if "$candidate" -c 'import sys; assert (3, 11) <= sys.version_info[:2] <= (3, 12)' 2> /dev/null; then
      command -v "$candidate"
      return
    fi
  done
  return 1
}

virtual_environment() {
  [[ -x .venv/bin/python ]] && return
  step "virtual environment .venv ($("$python" --version))"
  # A torch that is already installed is used: it shows through to the environment.
  local share=()
  "$python" -c 'import torch' 2> /dev/null && share=(--system-site-packages)
  "$python" -m venv "${share[@]}" .venv
}

torch() {
  # Looking for the folder is enough, and a hundred times faster than importing it.
  .venv/bin/python -c 'import importlib.util as u; assert u.find_spec("torch")' 2> /dev/null && return
  step "torch $torch_version"
  .venv/bin/python -m pip install "torch==$torch_version"
}

# requirements NAME: installs what pyproject.toml lists under that name, once for each content of the list.
requirements() {
  local list=.venv/requirements-$1.txt
  .venv/bin/python - "$1" > "$list.new" << 'PYTHON'
import sys, tomllib
with open("pyproject.toml", "rb") as file:
    facts = tomllib.load(file)
extras = facts["project"]["optional-dependencies"] | {"build": facts["build-system"]["requires"]}
print(*extras.get(sys.argv[1], []), sep="\n")
PYTHON
  if ! cmp -s "$list" "$list.new"; then
    step "Python packages for $1"
    .venv/bin/python -m pip install -r "$list.new"
    mv "$list.new" "$list"
  fi
}

# Builds when a source is newer than the last install. The whole log is kept; the terminal shows the progress.
install_package() {
  local stamp=.venv/installed log=build/install.log
  local sources=(src cmake tools torchbolt CMakeLists.txt pyproject.toml)
  if [[ -e $stamp && -z $(find "${sources[@]}" -type f -newer "$stamp" ! -name '*.pyc' -print -quit) ]]; then
    return
  fi
  step "building and installing torchbolt ($(build_jobs) compilers at once)"
  mkdir -p build
  touch "$stamp.new"
  PATH="$PWD/.venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(build_jobs) \
    .venv/bin/python -m pip install -v --no-build-isolation --no-deps --force-reinstall . 2>&1 |
    tee "$log" | grep --line-buffered -oE '\[[0-9]+/[0-9]+\] .*|.*(error|warning): .*|Successfully .*' ||
    { tail -n 60 "$log" && fail "the build failed; the whole log is $log"; }
  .venv/bin/python -c 'import torchbolt; print("torchbolt", torchbolt.__version__, "is ready in .venv")'
  mv "$stamp.new" "$stamp"
}

system_packages
python=$(find_python) || fail "Python 3.11 or 3.12 is needed; set PYTHON=/path/to/python3"
virtual_environment
requirements build
if [[ $purpose == lint ]]; then
  requirements lint
else
  torch
  install_package
  [[ $purpose == build ]] || requirements "$purpose"
fi
