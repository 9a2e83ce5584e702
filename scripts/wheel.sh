#!/usr/bin/env bash
# scripts/wheel.sh: a wheel in dist/ for this Python and this torch, checked, and a model run from it in a fresh environment.
#
# LLVM is inside. What the wheel's libraries may ask for besides is torch's and the C library's (scripts/check_wheel.py).
# The environment is new and sees nothing of .venv but torch and what torch needs, which are linked into it.
source "$(dirname "$0")/common.sh"

scripts/setup.sh wheel # builds; the wheel is packed from the same folder

step "packing"
mkdir -p dist
PATH="$PWD/.venv/bin:$PATH" CMAKE_BUILD_PARALLEL_LEVEL=$(build_jobs) \
  .venv/bin/python -m pip wheel -q --no-build-isolation --no-deps --wheel-dir dist .
wheel=$(ls -t dist/torchbolt-*.whl | head -n 1)

step "checking $wheel"
.venv/bin/python scripts/check_wheel.py "$wheel"

step "a fresh environment"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
.venv/bin/python scripts/check_wheel.py --fresh "$scratch/environment" "$wheel"
cd "$scratch"
TORCHBOLT_CACHE_DIR=$scratch/cache environment/bin/torchbolt probe
TORCHBOLT_CACHE_DIR=$scratch/cache environment/bin/python -c '
import torch, torchbolt
nn = torch.nn
model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 10), nn.Softmax(-1)).eval()
with torch.no_grad():
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(torchbolt.compile(model)(x), model(x), rtol=1e-4, atol=1e-5)
assert torchbolt.stats()["eager_fallbacks"] == 0, torchbolt.stats()
print("a model runs from", torchbolt.__file__)'
cd - > /dev/null
step "pip install $wheel"
