#!/bin/bash
# Snapshots and clones of images with the unmodified `rbd`: what it says, and checksums of what it reads.
#   rbd_snapshots.sh CONF FOLDER      of a cluster whose pool `bench` has no image
# rbd_snapshots.txt is what a real Ceph 16.2.15 says: another cluster has to say the same. Times, ids and random names are masked,
# and librbd's log, which comes in any order, is left out.
set -u
conf=$1 dir=$2
rbd="rbd -c $conf"
export CEPH_ARGS="--log-file=/dev/null --log-to-stderr=false --err-to-stderr=false"

mask='s/[A-Z][a-z]{2} [A-Z][a-z]{2} +[0-9]+ [0-9:]{8} [0-9]{4}/TIME/g; s/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/UUID/g
s/^ +[0-9]+  /    N  /; s/\b[0-9a-f]{9,16}\b/ID/g; s#'"$dir"'/##g; s/ +$//'

# Runs `rbd` and prints it, what it says, and its code if that is not 0.
t() {
    echo "$ rbd $*" | sed -E "$mask"
    timeout 100 $rbd "$@" >"$dir/said" 2>&1
    local code=$?
    grep -vE "^$|^librbd::|^20[0-9]{2}-.* librbd::" "$dir/said" | sed -E "$mask"
    [ $code = 0 ] || echo "-> $code"
    return $code
}
sum() { timeout 100 $rbd export --no-progress "bench/$1" - 2>/dev/null | md5sum | cut -c1-8; }
same() { [ "$(sum "$1")" = "$(sum "$2")" ] && echo "$1 is $2" || echo "$1 IS NOT $2"; }
scribble() { timeout 100 $rbd bench --io-type write --io-size 64K --io-total "$2" --io-threads 1 "bench/$1" >/dev/null; }
content() {
    python3 -c 'import sys; sys.stdout.buffer.write(bytes((i * 2654435761 >> 9) & 255 for i in range(1 << 20)))' >"$dir/mib"
    truncate -s 12M "$dir/content"
    for at in 2 9; do dd if="$dir/mib" of="$dir/content" bs=1M seek=$at conv=notrunc status=none; done
}

snapshots() {
    local i=$1
    t snap create --no-progress "bench/$i@one"
    t snap create --no-progress "bench/$i@one"
    t snap ls "bench/$i"
    scribble "$i" 1M
    echo "$i@one is $(sum "$i@one"), $i is $(sum "$i")"
    t snap create --no-progress "bench/$i@two"
    t snap rename "bench/$i@two" "bench/$i@three"
    t snap rename "bench/$i@one" "bench/$i@three"
    t snap ls "bench/$i"
    t du "bench/$i"
    t diff --from-snap one "bench/$i@three"
    t diff --whole-object "bench/$i"
    t snap limit set --limit 2 "bench/$i"
    t snap create --no-progress "bench/$i@four"
    t snap limit clear "bench/$i"
    t snap create --no-progress "bench/$i@four"
    for _ in 1 2; do t snap protect "bench/$i@one"; done
    t snap rm --no-progress "bench/$i@one"
    for _ in 1 2; do t snap unprotect "bench/$i@one"; done
    t snap rollback --no-progress "bench/$i@one"
    same "$i" "$i@one"
    t info "bench/$i@one"
    t object-map check --no-progress "bench/$i@one"
    t object-map rebuild --no-progress "bench/$i"
    t object-map rebuild --no-progress "bench/$i@one"
    t object-map check --no-progress "bench/$i@one"
    t object-map check --no-progress "bench/$i"
}

differences() {
    local i=$1
    t export-diff --no-progress "bench/$i@one" "$dir/d1"
    t export-diff --no-progress --from-snap one "bench/$i@three" "$dir/d2"
    t merge-diff --no-progress "$dir/d1" "$dir/d2" "$dir/d12"
    t create --size 1M "bench/${i}x"
    for d in d1 d2; do t import-diff --no-progress "$dir/$d" "bench/${i}x"; done
    t snap ls "bench/${i}x"
    same "${i}x@three" "$i@three"
    same "${i}x@one" "$i@one"
    t create --size 1M "bench/${i}y"
    t import-diff --no-progress "$dir/d12" "bench/${i}y"
    same "${i}y" "$i@three"
    t deep cp --no-progress "bench/$i" "bench/${i}z"
    t snap ls "bench/${i}z"
    same "${i}z@one" "$i@one"
    same "${i}z@three" "$i@three"
    t export --no-progress --export-format 2 "bench/$i" "$dir/whole"
    t import --no-progress --export-format 2 "$dir/whole" "bench/${i}w"
    t snap ls "bench/${i}w"
    same "${i}w@three" "$i@three"
    rm -f "$dir"/d1 "$dir"/d2 "$dir"/d12 "$dir"/whole
    t snap rm --no-progress "bench/$i@nothing"
    t snap rm --no-progress "bench/$i@four"
    t snap purge --no-progress "bench/${i}x"
    t snap ls "bench/${i}x"
}

clones() {
    local i=$1 format=$2 c=$1c$2
    t clone --rbd-default-clone-format "$format" "bench/$i@one" "bench/$c" || {
        t snap protect "bench/$i@one"
        t clone --rbd-default-clone-format "$format" "bench/$i@one" "bench/$c"
    }
    t info "bench/$c"
    same "$c" "$i@one"
    t children "bench/$i@one"
    t children --all "bench/$i"
    scribble "$c" 512K
    t snap create --no-progress "bench/$c@s"
    t snap unprotect "bench/$i@one"
    t snap rm --no-progress "bench/$i@one"
    t rm --no-progress "bench/$i"
    t snap ls --all "bench/$i"
    local before
    before=$(sum "$c")
    t flatten --no-progress "bench/$c"
    [ "$(sum "$c")" = "$before" ] && echo "$c is the same" || echo "$c HAS CHANGED"
    t info "bench/$c"
    t info "bench/$c@s"
    t children --all "bench/$i"
    [ "$format" = 2 ] || t snap unprotect "bench/$i@one"
    t snap ls --all "bench/$i"
    t snap purge --no-progress "bench/$c"
    t rm --no-progress "bench/$c"
    [ "$format" = 2 ] || t snap unprotect "bench/$i@one"
}

content
t import --no-progress "$dir/content" bench/a
t import --no-progress --image-feature layering "$dir/content" bench/p
for i in a p; do
    echo "# $i"
    snapshots $i
    differences $i
    for format in 1 2; do clones $i $format; done
done
echo "# the end"
t trash mv bench/a
t trash ls bench
t trash purge --no-progress bench
t trash restore bench/"$($rbd trash ls bench | cut -d' ' -f1)"
for i in $($rbd ls bench); do
    t snap purge --no-progress "bench/$i"
    t rm --no-progress "bench/$i"
done
# The data of removed images may wait for its snapshots to be trimmed.
rados -c "$conf" -p bench ls | grep -v ^rbd_data | sort
