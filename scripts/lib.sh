# shellcheck shell=bash
# Shared by scripts/quickstart, scripts/test and .ci/run: what must be installed, and where compiled things are kept.

CHECKOUT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
CARMINE_CACHE=${CARMINE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/carmine}

say() { printf '\033[1m==> %s\033[0m\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# Compiled things live outside the checkout, so that a second clone (or CI's) starts warm. Without a writable cache
# folder everything works the same, only colder: cargo's own ./target, and ccache's default place.
use_cache() {
  if mkdir -p "$CARMINE_CACHE/target" 2>/dev/null && [ -w "$CARMINE_CACHE/target" ]; then
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CARMINE_CACHE/target}
    export CCACHE_DIR=${CCACHE_DIR:-$CARMINE_CACHE/ccache}
  else
    say "cache folder $CARMINE_CACHE is not writable: building in $CHECKOUT/target"
    export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CHECKOUT/target}
  fi
  forget_other_checkout
}

# Cargo takes what another checkout has compiled for this one's where its files are older, whatever is in them: our own crates
# are compiled anew when another checkout had the cache last. Dependencies stay.
forget_other_checkout() {
  local last=$CARGO_TARGET_DIR/checkout
  [ -d "$CARGO_TARGET_DIR" ] && [ -w "$CARGO_TARGET_DIR" ] || return 0
  if [ "$(cat "$last" 2>/dev/null)" != "$CHECKOUT" ]; then
    rm -rf "$CARGO_TARGET_DIR"/*/.fingerprint/carmine*
    printf '%s\n' "$CHECKOUT" >"$last"
  fi
}

# This commit in a checkout of CI's own that stays, with a target folder of its own: git touches only files that differ there, so that
# cargo compiles only what changed since the last run. Prints its path; fails where no cache folder can be written.
kept_checkout() {
  local kept=$CARMINE_CACHE/ci/checkout
  mkdir -p "$kept" 2>/dev/null && [ -w "$kept" ] || return 1
  [ -d "$kept/.git" ] || git init -q "$kept"
  git -C "$kept" fetch -q --depth 1 "file://$CHECKOUT" HEAD && git -C "$kept" checkout -qf --detach FETCH_HEAD &&
    git -C "$kept" clean -ffdxq && echo "$kept"
}

# libclang itself, where bindgen looks for it. libclang-cpp is another library, and a package for it may leave a link to a
# libclang that is not there.
has_libclang() { # [ROOT]
  local root=${1:-} dir file
  for dir in "${LIBCLANG_PATH:-}" "$root"/usr/lib "$root"/usr/lib64 "$root"/usr/lib/*-linux-gnu "$root"/usr/lib/llvm-*/lib "$root"/usr/local/lib; do
    [ -n "$dir" ] || continue
    for file in "$dir"/libclang.so "$dir"/libclang.so.* "$dir"/libclang-[0-9]*.so "$dir"/libclang-[0-9]*.so.*; do
      [ ! -e "$file" ] || return 0
    done
  done
  return 1
}

# The Debian packages that are missing for building; with "tests", also the real Ceph clients; with "ci", also a real Ceph
# server to measure beside (tests/tests/peer.rs) and its allocator: 22 MB, and what they depend on.
missing_packages() {
  command -v g++ >/dev/null 2>&1 && command -v make >/dev/null 2>&1 || echo build-essential
  command -v ccache >/dev/null 2>&1 || echo ccache
  has_libclang || echo libclang1-14
  ls -d /usr/lib/llvm-*/lib/clang/*/include >/dev/null 2>&1 || echo libclang-common-14-dev
  if [ "${1:-}" = tests ] || [ "${1:-}" = ci ]; then
    command -v rados >/dev/null 2>&1 || echo ceph-common
    # osdmaptool and crushtool: the oracle for maps that we encode.
    command -v osdmaptool >/dev/null 2>&1 || echo ceph-base
    # librados' and librbd's calls are made from Python; Debian's own, whatever python3 comes first on the PATH.
    /usr/bin/python3 -c 'import rados' 2>/dev/null || echo python3-rados
    /usr/bin/python3 -c 'import rbd' 2>/dev/null || echo python3-rbd
    # Its engines rados and rbd drive a testbed.
    command -v fio >/dev/null 2>&1 || echo fio
    # Flamegraphs and hardware counters.
    command -v perf >/dev/null 2>&1 || echo linux-perf
    # Reports are looked at in a real browser.
    command -v chromium >/dev/null 2>&1 || echo chromium
  fi
  if [ "${1:-}" = ci ]; then
    # Counts the instructions of an operation.
    command -v callgrind_control >/dev/null 2>&1 || echo valgrind
    command -v ceph-mon >/dev/null 2>&1 || echo ceph-mon
    command -v ceph-mgr >/dev/null 2>&1 || echo ceph-mgr
    command -v ceph-osd >/dev/null 2>&1 || echo ceph-osd
    # Networks of their own for daemons, which may be cut off.
    command -v ip >/dev/null 2>&1 || echo iproute2
    ls /usr/lib/*/libtcmalloc.so.4 >/dev/null 2>&1 || echo libgoogle-perftools4
  fi
}

# The build needs these; ccache and the Ceph clients have a fallback or are skipped with a reason.
needed_of() { # PACKAGES...
  local package
  for package; do
    case $package in build-essential | libclang*) echo "$package" ;; esac
  done
}

# Installs packages with apt as root. An index that cannot be refreshed may be that of a repository that has nothing to do with
# us, and one package that cannot be had is no reason to go without the others.
apt_install() { # PACKAGES...
  local log package
  log=$(mktemp -t carmine-apt.XXXXXX)
  say "installing with apt: $*"
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq >"$log" 2>&1 || say "apt-get update failed, in part or in all; installing from the indexes that are there"
  if ! apt-get install -y -qq --no-install-recommends "$@" >>"$log" 2>&1; then
    for package; do
      apt-get install -y -qq --no-install-recommends "$package" >>"$log" 2>&1 || say "apt cannot install $package"
    done
  fi
  APT_LOG=$log
}

install_missing() {
  command -v cargo >/dev/null 2>&1 || die "cargo is not installed: install Rust (rustup) and run this again"
  local missing needed
  mapfile -t missing < <(missing_packages "${1:-}")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    apt_install "${missing[@]}"
    mapfile -t missing < <(missing_packages "${1:-}")
    [ ${#missing[@]} -gt 0 ] || { rm -f "$APT_LOG"; return 0; }
    { grep -E '^(E|W|Err):?' "$APT_LOG" || tail -n 5 "$APT_LOG"; } | tail -n 10 >&2
    say "the whole log of apt: $APT_LOG"
  fi
  needed=$(needed_of "${missing[@]}")
  [ -z "$needed" ] || die "missing packages; as root run:  apt-get update; apt-get install -y --no-install-recommends ${missing[*]}"
  say "not installed (optional): ${missing[*]}"
}

# The programs: `carmine`, and the daemons that it starts from its own folder.
PROGRAMS=(-p carmine-cli -p carmine-osd-daemon -p carmine-mon-daemon)

# The release binaries, built once; prints the path of `carmine`.
build_carmine() {
  say "building carmine (release); the first build on a machine compiles RocksDB: 15 to 25 minutes on 2 cores"
  (cd "$CHECKOUT" && cargo build --release --locked "${PROGRAMS[@]}") || die "the build failed"
  echo "$CARGO_TARGET_DIR/release/carmine"
}

# The programs and all tests of the workspace, in one go: without the tests most crates would be compiled with other features, and
# then again. Prints the folder of each test and its program, a tab between them.
build_tests() {
  local built
  built=$(mktemp -t carmine-built.XXXXXX)
  (cd "$CHECKOUT" && cargo build --locked --workspace --bins --tests --message-format json-render-diagnostics) >"$built" || die "the build failed"
  sed -n 's|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"profile":{[^}]*"test":true}.*"executable":"\([^"]*\)".*|\1\t\2|p' "$built"
  rm -f "$built"
}

# The CPUs of a list such as 0-3,8, one a line.
cpu_list() { # LIST
  awk -v list="$1" 'BEGIN {
    n = split(list, part, ",")
    for (i = 1; i <= n; i++) { m = split(part[i], r, "-"); for (c = r[1]; c <= (m > 1 ? r[2] : r[1]); c++) print c }
  }'
}

# Commands to try with the binary, one a line; the README has the same lines.
next_commands() { # CARMINE CPUS
  local few=''
  [ "$2" -ge 4 ] || few=' --overprovisioned'
  cat <<NEXT
alias carmine=$1
carmine up --dir tb --osds 3 --size 3 --reactors 1 --osd-size 1G$few
carmine bench --dir tb --rw randwrite --bs 4k --iodepth 16 --size 64m --runtime 10 --json result.json
carmine down --dir tb
NEXT
}
