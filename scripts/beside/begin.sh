# shellcheck shell=bash
# Shared by scripts/recovery, scripts/snapshots and scripts/targets, which measure beside a real Ceph.
# shellcheck source=../lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

# Sets CARMINE, OUT (the folder of the results) and BEDS: a folder for the testbeds, and for Ceph in `ceph`, all of which are removed
# at the end.
begin_beside() { # NAME PROGRAM...
  local name=$1 program; shift
  use_cache
  for program; do
    command -v "$program" >/dev/null 2>&1 || die "$program is not installed: apt-get install ceph-mon ceph-osd fio ceph-common"
  done
  CARMINE=${CARMINE_BIN:-$(build_carmine)} OUT=${OUT:-$PWD/$name-results}
  mkdir -p "$OUT"
  BEDS=$(mktemp -d "${DIR:-$CARMINE_CACHE}/$name.XXXXXX")
  export CARMINE OUT BEDS
  trap end_beside EXIT
}

end_beside() {
  local bed
  for bed in "$BEDS"/*/; do "$CARMINE" destroy --dir "$bed" >/dev/null 2>&1 || true; done
  "$CARMINE" peer destroy --dir "$BEDS/ceph" >/dev/null 2>&1 || true
  rm -rf "$BEDS"
}

needs_python() { # MODULE PACKAGE
  /usr/bin/python3 -c "import $1" 2>/dev/null || die "/usr/bin/python3 cannot import $1: apt-get install $2"
}

# Runs NAME.py of this folder. -B: it leaves nothing in the checkout.
run_beside() { # NAME ARGUMENTS...
  local name=$1; shift
  /usr/bin/python3 -B "$CHECKOUT/scripts/beside/$name.py" "$@"
}
