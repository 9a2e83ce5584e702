#!/usr/bin/env bash
# scripts/nightly.sh: what takes too long for `make test`: 10,000 random programs, a minute of 32 threads, all samples of
# PyTorch's operators and gradcheck of them, loss curves, all Python tests as on narrower machines, CPython's own tests compiled, and every
# model class of transformers. Expects what scripts/setup.sh test prepares. The seeds are new every day: BOLT_FUZZ_SEED=n repeats.
source "$(dirname "$0")/common.sh"

test_environment
programs=${BOLT_FUZZ_CASES:-10000} first=${BOLT_FUZZ_SEED:-$(($(date +%j) * 100000))}

step "32 threads for a minute"
BOLT_THREAD_SECONDS=60 python -m pytest -q tests/api/test_many_threads.py
step "$programs random programs from seed $first on"
# A process each: what one run keeps in memory does not add up.
for ((at = first; at < first + programs; at += 1000)); do
  BOLT_FUZZ_SEED=$at BOLT_FUZZ_CASES=$((first + programs - at < 1000 ? first + programs - at : 1000)) \
    python -m pytest -q tests/fuzz
done
step "building the C++ tests"
cmake --build build --target bolt_tests run_on_gpu emulated_gpu --parallel "$(build_jobs)"
step "2,000 random graphs on the emulated GPU"
BOLT_FUZZ_SEED=$first BOLT_EMULATED_CASES=2000 python -m pytest -q tests/cuda/test_emulated.py
for isa in $(narrower_machines); do
  step "all Python tests ($isa)"
  as_machine "$isa" python -m pytest -q tests
done
step "every sample of every operator"
BOLT_OP_SAMPLES=1000 python -m pytest -q tests/ops
step "gradients of every operator, and their gradients"
BOLT_GRADCHECK=1 BOLT_OP_SAMPLES=4 python -m pytest -q tests/ops/test_gradcheck.py
step "loss curves beside eager's"
TORCHBOLT_STRICT=1 python -m bench.curves
step "CPython's tests, each compiled and called four times"
mkdir -p out
python tests/interp/run_cpython_suite.py --mode compiled > out/cpython-compiled.txt || true
grep " agree$" out/cpython-compiled.txt
tail -n 1 out/cpython-compiled.txt
if grep "process ended" out/cpython-compiled.txt; then exit 1; fi
step "README's wheel and demo"
make wheel demo
step "models"
python tests/models/sweep.py > out/sweep.jsonl
python - << 'PYTHON'
import json
lines = [json.loads(line) for line in open("out/sweep.jsonl")]
bad = [line for line in lines if "crash" in line or "error" in line or line.get("eager_fallbacks")]
for line in bad:
    print(line["model"], {k: v for k, v in line.items() if k != "model"})
kinds = ("difference", "difference_larger", "difference_gradients")
differ = [line["model"] for line in lines if any(isinstance(d := line.get(k, 0), str) or d > 1e-3 for k in kinds)]
print(f"{len(lines)} models, {len(bad)} fail or fall back, these differ from eager: {differ} (out/sweep.jsonl)")
raise SystemExit(bool(differ) or any("crash" in line for line in lines))
PYTHON
step "all passed"
