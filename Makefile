# What can be done with this repository. Each target is one script in scripts/; set-up happens on demand.
#
#   make build      set-up (system packages, .venv, torch) and install torchbolt into .venv
#   make wheel      build, then a wheel in dist/, checked and tried in a fresh environment
#   make test       build, then every test
#   make nightly    build, then what takes hours: 10,000 random programs, threads for a minute, every model
#   make demo       build, then compile a transformer and a CNN and show what it gained
#   make bench      build, then measure against torch.compile, OpenVINO and ONNX Runtime
#   make gpu-test   on a CUDA machine without LLVM: extension against a packed core, then every Python test
#   make gpu-bench  there, after gpu-test: models beside torch.compile
#   make lint       formatting, openings, layering, one definition of each name, ruff
#   make tidy       clang-tidy on the core
#   make format     rewrite files the way `make lint` wants them
#   make core-dist  pack the torch-free core for machines without LLVM
#   make ext CORE=  build only the extension against such a core, into build-ext/python

.PHONY: build wheel test nightly demo bench gpu-test gpu-bench lint tidy format core-dist ext clean

build:
	@scripts/setup.sh

wheel:
	@scripts/wheel.sh

test:
	@scripts/setup.sh test
	@scripts/test.sh

nightly:
	@scripts/setup.sh test
	@scripts/nightly.sh

demo:
	@scripts/setup.sh demo
	@.venv/bin/python -m bench.demo

bench:
	@scripts/setup.sh bench
	@.venv/bin/python -m bench.cpu
	@.venv/bin/python -m bench.front_end
	@.venv/bin/python -m bench.train

gpu-test:
	@scripts/device.sh

gpu-bench:
	@PYTHONPATH=build-ext/python python3 -m bench.gpu

lint:
	@scripts/setup.sh lint
	@scripts/lint.sh

tidy:
	@scripts/setup.sh lint
	@scripts/tidy.sh

format:
	@scripts/setup.sh lint
	@scripts/lint.sh --fix

core-dist:
	@scripts/setup.sh tools
	@scripts/core_dist.sh

ext:
	@scripts/ext.sh "$(CORE)"

clean:
	rm -rf build build-* dist .venv out
