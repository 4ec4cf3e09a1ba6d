#!/usr/bin/env bash
# Builds the golden libraries of a release into a folder, from the sources as they are checked out.
# Run it once for each released minor of the engine API, on x86_64 Linux with glibc:
#
#     tests/golden/make.sh tests/golden/<version of ctxhost-engine-api>
#
# then write the two hashes it prints into that folder's README.md. A folder of a minor that was
# released is never built again: the point of these files is that they are old.
set -euo pipefail
into=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "$0")/../.."
target=$(mktemp -d)
trap 'rm -rf "$target"' EXIT

(
    cd examples/keep-ends
    # No path of the machine that builds them goes into the files.
    export RUSTFLAGS="--remap-path-prefix=$HOME=home --remap-path-prefix=$(cd ../.. && pwd)=ctxhost -C link-arg=-Wl,--build-id=none"
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=z CARGO_PROFILE_RELEASE_LTO=fat CARGO_PROFILE_RELEASE_CODEGEN_UNITS=1
    export CARGO_PROFILE_RELEASE_STRIP=symbols CARGO_PROFILE_RELEASE_PANIC=unwind
    cargo build --release --locked --quiet --target-dir "$target"
)
install -m 644 "$target/release/libkeep_ends.so" "$into/libkeep_ends.so"

cc -std=c11 -O2 -fPIC -shared -fvisibility=hidden -s -Wl,--build-id=none -I engine-api/include \
    -o "$into/libc_window.so" examples/c-window/window.c
chmod 644 "$into/libc_window.so"

rustc --version
cc --version | head -1
(cd "$into" && sha256sum -- *.so)
