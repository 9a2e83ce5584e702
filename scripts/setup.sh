#!/usr/bin/env bash
# scripts/setup.sh [test|wheel|demo|bench|lint|tools]: a bare machine -> .venv with torchbolt installed.
#
# Every step looks first and does nothing when its result is there, so running it again costs about a second.
# With `lint` or `tools` (what the core needs), neither torch is installed nor anything built.
source "$(dirname "$0")/common.sh"
purpose=${1:-build}

torch_version=2.13.0 # installed where no torch is found; exactly this one, since the extension is built against it

# The names are the same on Debian 12 and Ubuntu 24.04. LLVM's archives need libzstd and zlib.
packages=(g++ python3-dev python3-venv llvm-19-dev lld-19 libzstd-dev zlib1g-dev libgtest-dev)
[[ $purpose == lint ]] && packages+=(clang-format-19 clang-tidy-19)

system_packages() {
  local installed missing=() package
  installed=$(dpkg-query -W -f='${Package} ${Status}\n' 2> /dev/null | sed -n 's/ install ok installed$//p' || true)
  for package in "${packages[@]}"; do
    grep -qx "$package" <<< "$installed" || present_otherwise "$package" || missing+=("$package")
  done
  ((${#missing[@]})) || return 0

  command -v ccache > /dev/null || missing+=(ccache)
  command -v apt-get > /dev/null || fail "missing packages (Debian's names): ${missing[*]}"
  may_install || fail "missing system packages; run: sudo apt-get install -y --no-install-recommends ${missing[*]}"
  step "system packages: ${missing[*]}"
  as_root apt-get update -q
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}"
}

may_install() { ((EUID == 0)) || sudo -n true 2> /dev/null; }
as_root() { if ((EUID == 0)); then "$@"; else sudo "$@"; fi; }

# The core does without hiredis, and then uses no cache on a Redis server; so it is asked for once, and no more.
client_for_redis() {
  [[ -e .venv/asked-for-hiredis ]] && return
  if ! dpkg-query -W libhiredis-dev &> /dev/null && command -v apt-get > /dev/null && may_install; then
    step "libhiredis-dev, for a cache on a Redis server"
    as_root apt-get update -q &&
      as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends libhiredis-dev ||
      step "libhiredis-dev could not be installed: building without"
  fi
  touch .venv/asked-for-hiredis
}

# A compiler or a Python of one's own (pyenv, conda) does as well as the distribution's.
present_otherwise() {
  case $1 in
    g++) command -v g++ > /dev/null ;;
    python3-dev | python3-venv) "$(find_python)" -c "$python_is_whole" 2> /dev/null ;;
    *) return 1 ;;
  esac
}
python_is_whole='
import ensurepip, os, sysconfig, venv
assert os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h"))'

# The first Python that is 3.11 or 3.12; PYTHON=... chooses another.
find_python() {
  local candidate
  for candidate in ${PYTHON:-} python3 python3.12 python3.11; do
    "$candidate" -c 'import sys
assert (3, 11) <= sys.version_info[:2] <= (3, 12)
print(sys.executable)' 2> /dev/null && return
  done
  return 1
}

# has_torch PYTHON: looks for torch's folder, which is a hundred times faster than importing it.
has_torch() { "$1" -c 'import importlib.util as u; assert u.find_spec("torch")' 2> /dev/null; }

virtual_environment() {
  [[ -x .venv/bin/python ]] && return
  step "virtual environment .venv ($("$python" --version))"
  # A torch that is already installed is used: it shows through to the environment.
  local share=()
  has_torch "$python" && share=(--system-site-packages)
  "$python" -m venv "${share[@]}" .venv
}

install_torch() {
  has_torch .venv/bin/python && return
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
    .venv/bin/python -m pip install -r "$list.new" || return 1
    mv "$list.new" "$list"
  fi
}

# Builds when a source is newer than the last install. The whole log is kept; the terminal shows the progress.
install_package() {
  local stamp=.venv/installed log=build/install.log
  local sources=(src cmake tools torchbolt CMakeLists.txt pyproject.toml)
  if [[ -e $stamp && -z $(find "${sources[@]}" -type f -newer "$stamp" ! -name '*.pyc' -print -quit 2> /dev/null) ]]; then
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
[[ $purpose == lint ]] || client_for_redis
requirements build
case $purpose in
  tools) ;;
  lint) requirements lint ;;
  *)
    install_torch
    install_package
    [[ $purpose == build ]] || requirements "$purpose"
    [[ $purpose != bench ]] || requirements peers || step "not every peer could be installed; measuring without"
    ;;
esac
