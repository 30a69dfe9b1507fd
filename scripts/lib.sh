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
}

has_libclang() { ls /usr/lib/llvm-*/lib/libclang*.so* /usr/lib/*/libclang*.so* >/dev/null 2>&1; }

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
    # librados' calls are made from Python; Debian's own, whatever python3 comes first on the PATH.
    /usr/bin/python3 -c 'import rados' 2>/dev/null || echo python3-rados
    # Its engines rados and rbd drive a testbed.
    command -v fio >/dev/null 2>&1 || echo fio
    # Reports are looked at in a real browser.
    command -v chromium >/dev/null 2>&1 || echo chromium
  fi
  if [ "${1:-}" = ci ]; then
    command -v ceph-mon >/dev/null 2>&1 || echo ceph-mon
    command -v ceph-osd >/dev/null 2>&1 || echo ceph-osd
    ls /usr/lib/*/libtcmalloc.so.4 >/dev/null 2>&1 || echo libgoogle-perftools4
  fi
}

install_missing() {
  command -v cargo >/dev/null 2>&1 || die "cargo is not installed: install Rust (rustup) and run this again"
  local missing
  missing=$(missing_packages "${1:-}" | tr '\n' ' ')
  [ -z "${missing// /}" ] && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing with apt: $missing"
    export DEBIAN_FRONTEND=noninteractive
    # shellcheck disable=SC2086
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends $missing; } >/tmp/carmine-apt.log 2>&1 \
      || { tail -n 5 /tmp/carmine-apt.log >&2; die "apt failed; the whole log is /tmp/carmine-apt.log"; }
    return 0
  fi
  # Only what the build needs is required: ccache and the Ceph clients have a fallback or are skipped with a reason.
  case " $missing" in
    *" build-essential"* | *" libclang"*)
      die "missing packages; as root run:  apt-get install -y --no-install-recommends $missing" ;;
    *) say "not installed (optional): $missing" ;;
  esac
}

# The release binary, built once; prints its path.
build_carmine() {
  say "building carmine (release); the first build on a machine compiles RocksDB: about 15 minutes on 2 cores"
  (cd "$CHECKOUT" && cargo build --release --locked -p carmine-cli) || die "the build failed"
  echo "$CARGO_TARGET_DIR/release/carmine"
}
