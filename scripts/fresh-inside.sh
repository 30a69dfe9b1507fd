# shellcheck shell=bash
# What scripts/fresh does in namespaces of its own: it makes a Debian for each case in $FOLDER, mounts what is shared with this machine,
# and runs the case's steps there. All mounts and processes are these namespaces' own.

inside() {
  FOLDER=$INSIDE
  debootstrapped
  share_all
  local name failed=0
  for name in "${CASES[@]}"; do
    # Not as a condition: set -e must hold within.
    set +e
    (set -e; run_case "$name")
    [ $? = 0 ] || failed=1
    set -e
  done
  say "results"
  cat "$FOLDER/results"
  return "$failed"
}

# The mirror from which this machine gets its own Debian, if it is one.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null \
    | sed -nE 's/^URIs: *([^ ]*\/debian\/?)( .*)?$/\1/p; s/^deb (\[[^]]*\] )?([^ ]*\/debian\/?) .*/\2/p' | head -n 1)
  echo "${found:-http://deb.debian.org/debian}"
}

debootstrapped() {
  local begin=$SECONDS
  say "debootstrap"
  debootstrap --variant=minbase --include=ca-certificates "$SUITE" "$FOLDER/base" "$(mirror)" >"$LOGS/debootstrap.log" 2>&1 \
    || { tail -n 20 "$LOGS/debootstrap.log" >&2; die "debootstrap failed; its log: $LOGS/debootstrap.log"; }
  set_up_apt "$FOLDER/base"
  cp -L /etc/resolv.conf /etc/hosts "$FOLDER/base/etc/"
  say "debootstrap: $((SECONDS - begin)) s"
}

# This machine's mirrors if it is of the same release, and its proxy, keys and certificates in any case.
set_up_apt() { # ROOT
  local part
  for part in apt.conf apt.conf.d auth.conf auth.conf.d keyrings trusted.gpg trusted.gpg.d preferences.d; do
    [ ! -e "/etc/apt/$part" ] || cp -aLT "/etc/apt/$part" "$1/etc/apt/$part"
  done
  # shellcheck disable=SC1091
  if [ "$(. /etc/os-release; echo "${VERSION_CODENAME:-}")" = "$SUITE" ]; then
    rm -rf "$1/etc/apt/sources.list" "$1/etc/apt/sources.list.d"
    for part in sources.list sources.list.d; do
      [ ! -e "/etc/apt/$part" ] || cp -aLT "/etc/apt/$part" "$1/etc/apt/$part"
    done
    [ ! -d /usr/share/keyrings ] || cp -aL /usr/share/keyrings/. "$1/usr/share/keyrings/"
  fi
  if [ -d /usr/local/share/ca-certificates ]; then
    cp -aL /usr/local/share/ca-certificates/. "$1/usr/local/share/ca-certificates/"
    chroot "$1" update-ca-certificates >/dev/null 2>&1 || true
  fi
}

# Shows LOWER at TARGET; what is written there lands in the folder of this run. Fails where there are no overlays.
overlay() { # LOWER TARGET NAME
  local upper=$FOLDER/upper.$3
  mkdir -p "$2" "$upper/up" "$upper/work"
  # With metacopy a change of owner copies no content.
  mount -t overlay -o "lowerdir=$1,upperdir=$upper/up,workdir=$upper/work,metacopy=on,redirect_dir=on" none "$2" 2>/dev/null \
    || mount -t overlay -o "lowerdir=$1,upperdir=$upper/up,workdir=$upper/work" none "$2" 2>/dev/null
}

# Shows a folder of this machine at $FOLDER/NAME, once for all cases: what one of them compiles the next has.
shared() { # FOLDER NAME
  [ -d "$1" ] || return 0
  if ! overlay "$1" "$FOLDER/$2" "$2"; then
    NO_OVERLAYS=1
    mount --bind "$1" "$FOLDER/$2"
    [ "$2" = ccache ] || mount -o remount,bind,ro "$FOLDER/$2"
  fi
}

share_all() {
  mkdir -p "$CARMINE_CACHE/target" "$CARMINE_CACHE/ccache"
  shared "$CARGO_FOLDER" cargo
  shared "$RUSTUP_FOLDER" rustup
  shared "$CARMINE_CACHE/ccache" ccache
  if ! overlay "$CARMINE_CACHE/target" "$FOLDER/target" target; then
    mkdir -p "$CARMINE_CACHE/fresh/target"
    mount --bind "$CARMINE_CACHE/fresh/target" "$FOLDER/target"
  fi
  git clone --quiet --no-hardlinks "$CHECKOUT" "$FOLDER/clone"
}

# One of them at a path of the new system. Rust is at the same path as here: what was compiled names it.
give() { # NAME PATH
  local target=$ROOT$2 parent
  [ -d "$FOLDER/$1" ] || return 0
  mkdir -p "$target"
  mount --bind "$FOLDER/$1" "$target"
  # An ordinary user must get there.
  parent=$(dirname "$target")
  while [ "$parent" != "$ROOT" ] && [ "${parent#"$ROOT"}" != "$parent" ]; do chmod a+x "$parent"; parent=$(dirname "$parent"); done
}

mount_system() { # NAME
  ROOT=$FOLDER/$1
  if ! overlay "$FOLDER/base" "$ROOT" "$1"; then
    rm -rf "$ROOT"
    cp -a "$FOLDER/base" "$ROOT"
  fi
  mount -t proc proc "$ROOT/proc"
  mount -t sysfs -o ro sysfs "$ROOT/sys"
  # No disk of this machine is to be seen there.
  mount -t tmpfs -o mode=755 tmpfs "$ROOT/dev"
  mkdir -p "$ROOT/dev/pts" "$ROOT/dev/shm"
  local node
  for node in null zero full random urandom tty; do
    touch "$ROOT/dev/$node"
    mount --bind "/dev/$node" "$ROOT/dev/$node"
  done
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$ROOT/dev/pts"
  mount -t tmpfs -o mode=1777 tmpfs "$ROOT/dev/shm"
  ln -s pts/ptmx "$ROOT/dev/ptmx"
  ln -s /proc/self/fd "$ROOT/dev/fd"
  give cargo "$CARGO_FOLDER"
  give rustup "$RUSTUP_FOLDER"
  give clone "$CLONE"
}

# Runs a command there, with nothing of this environment but what leads to Rust and through proxies.
there() { # USER COMMAND...
  local user=$1 home pass=() name value; shift
  home=/root
  [ "$user" = root ] || home=/home/$user
  for name in http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE \
    CARGO_HTTP_CAINFO CARGO_NET_OFFLINE RUSTUP_TOOLCHAIN RUSTUP_AUTO_INSTALL; do
    value=${!name:-}
    [ -n "$value" ] || continue
    pass+=("$name=$value")
    if [ "${value#/}" != "$value" ] && [ -e "$value" ] && [ ! -e "$ROOT$value" ]; then
      mkdir -p "$(dirname "$ROOT$value")"
      cp -aLT "$value" "$ROOT$value"
    fi
  done
  chroot --userspec="$user" "$ROOT" /usr/bin/env -i -C "$home" HOME="$home" USER="$user" LANG=C.UTF-8 TERM=dumb \
    CARGO_HOME="$CARGO_FOLDER" RUSTUP_HOME="$RUSTUP_FOLDER" "${pass[@]}" \
    PATH="$CARGO_FOLDER/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" "$@"
}

# Runs a step with its output in a log and notes how it ended. `fails` before the command: it must fail.
step() { # NAME [fails] USER COMMAND...
  local name=$1 begin=$SECONDS want=0 status=0 log; shift
  if [ "$1" = fails ]; then want=1; shift; fi
  log=$LOGS/$CASE.$name.log
  say "$CASE: $name"
  there "$@" >"$log" 2>&1 || status=1
  if [ "$status" = "$want" ]; then
    echo "$CASE: $name: ok, $((SECONDS - begin)) s" >>"$FOLDER/results"
    return 0
  fi
  echo "$CASE: $name: FAILED after $((SECONDS - begin)) s, log $log" >>"$FOLDER/results"
  tail -n 30 "$log" >&2
  say "$CASE: $name failed; the whole log: $log"
  return 1
}

run_case() { # CASE
  CASE=$1
  local user=root home=/root asked
  mount_system "$CASE"
  if [ "$CASE" = user ]; then
    user=user home=/home/user
    chroot "$ROOT" useradd --create-home --shell /bin/bash "$user"
  fi
  # Without overlays these are this machine's own and stay root's: an ordinary user compiles all.
  if [ "$user" = root ] || [ -z "$NO_OVERLAYS" ]; then
    give target "$home/.cache/carmine/target"
    give ccache "$home/.cache/carmine/ccache"
  fi
  chroot "$ROOT" chown -R "$user:" "$home" "$CLONE"
  [ -n "$NO_OVERLAYS" ] || chroot "$ROOT" chown -R "$user:" "$CARGO_FOLDER"
  case $CASE in
    llvm)
      step llvm-without-libclang root sh -c 'apt-get update -qq && apt-get install -y -qq --no-install-recommends libclang-cpp14'
      ! has_libclang "$ROOT" || die "llvm: libclang is there after all: the case tries nothing" ;;
    user)
      step quickstart-that-may-not-install fails "$user" "$CLONE"/scripts/quickstart "${SHORT[@]}"
      asked=$(sed -n 's/^error: .*as root run: *//p' "$LOGS/$CASE.quickstart-that-may-not-install.log")
      [ -n "$asked" ] || die "user: the script does not say what root must run"
      step what-it-says-that-root-must-run root sh -c "$asked" ;;
  esac
  step quickstart "$user" "$CLONE"/scripts/quickstart "${SHORT[@]}"
  [ -z "$TESTS" ] || step tests "$user" "$CLONE"/scripts/test "${TEST_ARGS[@]}"
}
