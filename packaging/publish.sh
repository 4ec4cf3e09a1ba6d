#!/usr/bin/env bash
# Publishes the crates of the workspace in the order of their dependencies.
#
#   packaging/publish.sh               packs every crate and tries the packages, without a registry
#   packaging/publish.sh --short       the same without compiling what is packed
#   packaging/publish.sh --all         the same, and checks the whole program from the packages
#   packaging/publish.sh --execute     publishes what the registry does not have yet; needs `cargo login`
#
# The registry limits how many new crates an account may publish in a time. `--execute` stops at the first refusal;
# run it again later, and it goes on there.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=${1:---dry-run}
case $mode in --dry-run | --short | --all | --execute) ;; *) sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2 ;; esac

target=${CARGO_TARGET_DIR:-target}
# A target folder of its own: what a build leaves in `target` stays as it is.
work=$target/publish

# One line "name version" for each crate, dependencies first. What has `publish = false` is left out, and must not be a
# dependency of the others.
order() {
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
packages = {p["name"]: p for p in json.load(sys.stdin)["packages"]}
public = {name for name, p in packages.items() if p["publish"] != []}
below = {}
for name in public:
    # The registry wants the dependencies of tests as well.
    below[name] = {d["name"] for d in packages[name]["dependencies"] if d["name"] in packages} - {name}
    private = below[name] - public
    if private:
        sys.exit(f"{name} depends on {sorted(private)}, which have publish = false")
while below:
    ready = sorted(name for name, names in below.items() if not names)
    if not ready:
        sys.exit(f"a circle of dependencies: {sorted(below)}")
    for name in ready:
        print(name, packages[name]["version"])
        del below[name]
    for names in below.values():
        names.difference_update(ready)
'
}

mapfile -t crates < <(order)
[ "${#crates[@]}" -gt 0 ] || { echo "nothing to publish"; exit 1; }
names=("${crates[@]%% *}")
printf '%d crates, in this order:\n' "${#crates[@]}"
printf '  %s\n' "${crates[@]}"

if [ "$mode" = --execute ]; then
    for crate in "${crates[@]}"; do
        read -r name version <<< "$crate"
        if cargo info --registry crates-io "$name@$version" > /dev/null 2>&1; then
            echo "$name $version is published already"
            continue
        fi
        # Waits until the registry offers the crate, so that the next one finds it.
        cargo publish --locked --package "$name" || { echo "stopped at $name $version"; exit 1; }
    done
    exit 0
fi

# Every file that a crate includes is in its package. Cargo checks that the dependencies have versions.
cargo package --no-verify --allow-dirty --quiet "${names[@]/#/--package=}"
echo "packed into $target/package"
if [ "$mode" = --short ]; then
    echo "NOT TRIED: compiling the packages; upload"
    exit 0
fi

# The packages as they would be downloaded. Cargo takes them from there instead of the registry.
rm -rf "$work/crates" "$work/consumer"
mkdir -p "$work/crates" "$work/consumer/src"
patches=()
for crate in "${crates[@]}"; do
    read -r name version <<< "$crate"
    tar xzf "$target/package/$name-$version.crate" -C "$work/crates"
    patches+=(--config "patch.crates-io.$name.path=\"$PWD/$work/crates/$name-$version\"")
done

first=${names[0]}
for name in "${names[@]}"; do [ "$name" != ctxhost-engine-api ] || first=$name; done
echo "== $first as cargo publishes it"
CARGO_TARGET_DIR=$work/target cargo publish --dry-run --allow-dirty --quiet --package "$first" \
    || { echo "NOT TRIED: \`cargo publish --dry-run\` needs the registry's index"; exit 1; }

echo "== a third-party engine, against the package"
api=$(printf '%s\n' "${crates[@]}" | sed -n 's/^ctxhost-engine-api //p')
cat > "$work/consumer/Cargo.toml" <<EOF
[package]
name = "consumer"
version = "0.1.0"
edition = "2024"
[workspace]
[lib]
crate-type = ["cdylib"]
[dependencies]
ctxhost-engine-api = "${api%.*}"
EOF
cp examples/keep-ends/src/lib.rs "$work/consumer/src/"
CARGO_TARGET_DIR=$work/target cargo build --quiet --manifest-path "$work/consumer/Cargo.toml" "${patches[@]}"

if [ -x "$target/debug/ctxhost" ]; then
    echo "== the template of \`ctxhost new\`, against the package"
    rm -rf "$work/probe-engine"
    "$target/debug/ctxhost" new probe-engine --dir "$work/probe-engine" --engine-api "${api%.*}" > /dev/null
    CARGO_TARGET_DIR=$work/target cargo test --quiet --manifest-path "$work/probe-engine/Cargo.toml" "${patches[@]}"
else
    echo "NOT TRIED: the template of \`ctxhost new\`; $target/debug/ctxhost is not built"
fi

if [ "$mode" = --all ]; then
    echo "== the program, from the packages alone"
    CARGO_TARGET_DIR=$work/target cargo check --quiet --bin ctxhost \
        --manifest-path "$work/crates/$(printf '%s\n' "${crates[@]}" | sed -n 's/^ctxhost \(.*\)/ctxhost-\1/p')/Cargo.toml" \
        "${patches[@]}"
else
    echo "NOT TRIED: the program from the packages (--all)"
fi
echo "NOT TRIED: upload"
