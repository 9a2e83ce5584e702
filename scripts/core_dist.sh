#!/usr/bin/env bash
# scripts/core_dist.sh: packs the torch-free core (library, its headers, bolt-opt) into .core/.
# With it `make ext` builds the rest on a machine that has no LLVM.
source "$(dirname "$0")/common.sh"

[[ -d .venv/bin ]] && PATH="$PWD/.venv/bin:$PATH"
version=$(sed -n 's/^project(torchbolt VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
name=torchbolt-core-$version-$(uname -m)

step "building the core"
cmake -G Ninja -B build-core -DBOLT_UNITY=ON -DBOLT_EXTENSION=OFF -DBOLT_TESTS=OFF --log-level=WARNING
cmake --build build-core --parallel "$(build_jobs)"
step "packing"
rm -rf build-core/pack
cmake --install build-core --strip --component core --prefix build-core/pack/torchbolt-core > /dev/null
mkdir -p .core
cmake -E chdir build-core/pack cmake -E tar cJf "$PWD/.core/$name.tar.xz" torchbolt-core
size=$(stat -c %s ".core/$name.tar.xz")
step ".core/$name.tar.xz: $((size / 1000000)) MB"
((size <= 30000000)) || fail "the packed core is larger than 30 MB"
