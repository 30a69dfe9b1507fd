"""Asks two clusters the same at random, and compares their answers.

usage: answers.py CONF CONF [--seeds A..B] [--requests N] [--pool POOL]
The first cluster is to answer like the second, which is a real Ceph. Each seed makes N requests for three objects, with one to four
operations each, and snapshots. A difference is printed with the requests before it, and the seed goes on with new objects. The exit
code is 1 if there was one. Not drawn are requests that end an OSD of 16.2.15 (zeros of no length, a failing method that may fail, a
whole read after a change of size), and an object that is removed in the request that may have made it, which leaves traces there.
"""

import argparse
import ctypes as c
import errno
import random
import sys
import zlib

LIB = c.CDLL("librados.so.2")
LIB.rados_create_write_op.restype = c.c_void_p
LIB.rados_create_read_op.restype = c.c_void_p
SIZE, U64, INT, PTR = c.c_size_t, c.c_uint64, c.c_int, c.c_void_p
HEAD = (1 << 64) - 2

NAMES = [b"a", b"b", b"key", b"_x", b"k" * 40]
VALUES = [b"", b"1", b"12", b"7", b"abc", b"\0\xff", b"v" * 300]
PLACES = [0, 0, 0, 1, 7, 100, 4095, 4096, 4097, 8192, 65536, 70000, 1 << 20]
FAR = [(128 << 20) - 1, 128 << 20, (128 << 20) + 1, 500_000_000_000, 1 << 40, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]
LENGTHS = [0, 1, 5, 64, 4095, 4096, 4097, 9000]
CLASSES = [(b"hello", m) for m in (b"say_hello", b"record_hello", b"replay", b"turn_it_to_11", b"writes_dont_return_data")]
CLASSES += [(b"lock", m) for m in (b"lock", b"unlock", b"break_lock", b"get_info", b"list_locks", b"assert_locked", b"set_cookie")]
CLASSES += [(b"no_such_class", b"x"), (b"hello", b"no_such_method"), (b"lock", b"none"), (b"rbd", b"none")]


def string(text):
    return len(text).to_bytes(4, "little") + text


def draw_input(rng):
    return rng.choice([b"", b"", b"x", string(b"name"), string(b""), string(b"") + (100).to_bytes(8, "little"), (5).to_bytes(8, "little"),
                       rng.randbytes(rng.randrange(40)), b"w" * 1000])


def place(rng):
    return rng.choice(FAR) if rng.random() < 0.02 else rng.choice(PLACES)


def draw_guard(rng):
    return rng.choice([
        lambda: ("assert_exists",),
        lambda: ("cmpext", rng.choice([b"", b"\0" * 10, b"abc", rng.randbytes(5)]), place(rng)),
        lambda: ("cmpxattr", rng.choice(NAMES), rng.randrange(0, 8), rng.choice(VALUES)),
        lambda: ("omap_cmp2", rng.choice(NAMES), rng.randrange(0, 8), rng.choice(VALUES)),
        lambda: ("assert_version", rng.choice([0, 1, 1 << 40])),
    ])()


def draw_write(rng):
    data = lambda: bytes([rng.randrange(256)]) * rng.choice(LENGTHS)
    keys = lambda: [rng.choice(NAMES + [b""]) for _ in range(rng.randrange(4))]
    return rng.choice([
        lambda: ("create", rng.randrange(2)),
        lambda: ("write", data(), place(rng)),
        lambda: ("write", data(), place(rng)),
        lambda: ("write_full", data()),
        lambda: ("append", data()),
        lambda: ("writesame", bytes([rng.randrange(256)]) * rng.choice([1, 8, 512, 0]), rng.choice([0, 8, 512, 1024, 4096, 100]), place(rng)),
        lambda: ("remove",),
        lambda: ("truncate", place(rng)),
        lambda: ("zero", place(rng), rng.choice(LENGTHS[1:] + ([1 << 40] if rng.random() < 0.05 else []))),
        lambda: ("setxattr", rng.choice(NAMES + [b"n" * rng.choice([99, 100, 101])]), rng.choice(VALUES)),
        lambda: ("rmxattr", rng.choice(NAMES)),
        lambda: ("omap_set2", sorted(set(keys())), rng.choice(VALUES)),
        lambda: ("omap_rm_keys2", keys()),
        lambda: ("omap_rm_range2", rng.choice(NAMES), rng.choice(NAMES)),
        lambda: ("omap_clear",),
        lambda: ("set_alloc_hint2", rng.choice([0, 4096, 4 << 20]), 4096, 0),
        lambda: ("exec", *rng.choice(CLASSES), draw_input(rng)),
        lambda: draw_guard(rng),
        lambda: draw_guard(rng),
    ])()


def draw_read(rng):
    return rng.choice([
        lambda: ("read", place(rng), rng.choice(LENGTHS)),
        lambda: ("read", 1, 200_000),
        lambda: ("stat",),
        lambda: ("getxattrs",),
        lambda: ("checksum", rng.randrange(0, 4), place(rng), rng.choice(LENGTHS), rng.choice([0, 0, 1, 512, 4096])),
        lambda: ("exec", *rng.choice(CLASSES), draw_input(rng)),
        lambda: ("omap_get_vals2", rng.choice(NAMES + [b""]), rng.choice([b"", b"k", b"a"]), rng.choice([0, 1, 2, 100])),
        lambda: ("omap_get_keys2", rng.choice(NAMES + [b""]), rng.choice([0, 1, 2, 100])),
        lambda: ("omap_get_vals_by_keys2", [rng.choice(NAMES) for _ in range(rng.randrange(3))]),
        lambda: draw_guard(rng),
    ])()


def draw_read_at(rng):
    """No method: one that writes is refused at a snapshot, before or after one that there is not."""
    op = draw_read(rng)
    return op if op[0] != "exec" else ("stat",)


def draw(rng, objects):
    """A request: kind, object, operations with their flags, flags of the request."""
    kind = rng.choices(["write", "read", "snap", "unsnap", "rollback", "read_at"], [50, 40, 3, 1, 3, 6])[0]
    oid = rng.choice(objects)
    if kind == "rollback":
        return kind, oid, rng.random()
    if kind in ("snap", "unsnap"):
        return kind, rng.random()
    make = draw_write if kind == "write" else draw_read if kind == "read" else draw_read_at
    ops = []
    for _ in range(rng.choice([1, 1, 1, 2, 2, 3, 4])):
        op = make(rng)
        flags = rng.choice([0] * 12 + ([2] if kind != 'write' else [0]) + [8, 16])
        if op[0] == "exec":
            flags = 0  # a failing method that may fail ends a real OSD
        ops.append((op, flags))
    if rng.random() < 0.01:
        ops = []
    if kind == "write" and ops[1:] and any(words[0] == "remove" for words, _ in ops):
        ops = ops[:1]  # what is made and removed in one request leaves traces in Ceph
    return kind, oid, ops, rng.choice([0, 0, 0, 0, 1, 2, 8]) if kind != "write" else 0, rng.random()


def strings(items):
    array = (c.c_char_p * max(len(items), 1))(*items)
    sizes = (SIZE * max(len(items), 1))(*[len(item) for item in items])
    return array, sizes


class Side:
    def __init__(self, conf, pool):
        self.cluster, self.io, self.pool, self.snaps = PTR(), PTR(), pool.encode(), []
        assert LIB.rados_create(c.byref(self.cluster), b"admin") == 0
        assert LIB.rados_conf_read_file(self.cluster, conf.encode()) == 0
        LIB.rados_conf_set(self.cluster, b"rados_osd_op_timeout", b"30")
        assert LIB.rados_connect(self.cluster) == 0, f"{conf}: cannot connect"
        assert LIB.rados_ioctx_create(self.cluster, self.pool, c.byref(self.io)) == 0, f"{conf}: no pool {pool}"

    def context(self):
        ids = [snap for snap in reversed(self.snaps) if snap is not None]
        array = (U64 * max(len(ids), 1))(*ids)
        LIB.rados_ioctx_selfmanaged_snap_set_write_ctx(self.io, U64(self.newest()), array, INT(len(ids)))

    def newest(self):
        return getattr(self, "seq", 0)

    def chosen(self, at):
        live = [n for n, snap in enumerate(self.snaps) if snap is not None]
        return live[int(at * len(live))] if live else None

    def run(self, request):
        kind = request[0]
        if kind == "snap":
            snap = U64()
            result = LIB.rados_ioctx_selfmanaged_snap_create(self.io, c.byref(snap))
            self.snaps.append(snap.value)
            self.seq = snap.value
            self.context()
            return result
        if kind == "unsnap":
            at = self.chosen(request[1])
            if at is None:
                return None
            result = LIB.rados_ioctx_selfmanaged_snap_remove(self.io, U64(self.snaps[at]))
            self.snaps[at] = None
            self.context()
            return result
        if kind == "rollback":
            at = self.chosen(request[2])
            return None if at is None else LIB.rados_ioctx_selfmanaged_snap_rollback(self.io, request[1], U64(self.snaps[at]))
        if kind == "read_at":
            at = self.chosen(request[4])
            LIB.rados_ioctx_snap_set_read(self.io, U64(self.snaps[at] if at is not None else HEAD))
            answer = self.operate("read", *request[1:4])
            LIB.rados_ioctx_snap_set_read(self.io, U64(HEAD))
            return answer
        return self.operate(*request[:4])

    def operate(self, kind, oid, ops, flags):
        op = PTR(getattr(LIB, f"rados_create_{kind}_op")())
        outs = [self.add(kind, op, words, own) for words, own in ops]
        if kind == "write":
            result = LIB.rados_write_op_operate2(op, self.io, oid, None, INT(flags))
        else:
            result = LIB.rados_read_op_operate(op, self.io, oid, INT(flags))
        answer = (result, [out() for out in outs])
        getattr(LIB, f"rados_release_{kind}_op")(op)
        return answer

    def add(self, kind, op, words, flags):
        name, args = words[0], words[1:]
        call = getattr(LIB, f"rados_{kind}_op_{name}")
        rval = INT(-9999)
        code = lambda: (name, rval.value)
        out = lambda: name
        if name in ("assert_exists", "remove", "omap_clear"):
            call(op)
        elif name == "assert_version":
            call(op, U64(args[0]))
        elif name == "cmpext":
            call(op, args[0], SIZE(len(args[0])), U64(args[1]), c.byref(rval))
            out = code
        elif name == "cmpxattr":
            call(op, args[0], c.c_uint8(args[1]), args[2], SIZE(len(args[2])))
        elif name == "omap_cmp2":
            call(op, args[0], c.c_uint8(args[1]), args[2], SIZE(len(args[0])), SIZE(len(args[2])), c.byref(rval))
            out = code
        elif name == "create":
            call(op, INT(args[0]), None)
        elif name == "write":
            call(op, args[0], SIZE(len(args[0])), U64(args[1]))
        elif name in ("write_full", "append"):
            call(op, args[0], SIZE(len(args[0])))
        elif name == "writesame":
            call(op, args[0], SIZE(len(args[0])), SIZE(args[1]), U64(args[2]))
        elif name == "truncate":
            call(op, U64(args[0]))
        elif name == "zero":
            call(op, U64(args[0]), U64(args[1]))
        elif name == "setxattr":
            call(op, args[0], args[1], SIZE(len(args[1])))
        elif name == "rmxattr":
            call(op, args[0])
        elif name == "omap_set2":
            keys, key_sizes = strings(args[0])
            values, value_sizes = strings([args[1]] * len(args[0]))
            call(op, keys, values, key_sizes, value_sizes, SIZE(len(args[0])))
        elif name == "omap_rm_keys2":
            keys, sizes = strings(args[0])
            call(op, keys, sizes, SIZE(len(args[0])))
        elif name == "omap_rm_range2":
            call(op, args[0], SIZE(len(args[0])), args[1], SIZE(len(args[1])))
        elif name == "set_alloc_hint2":
            call(op, U64(args[0]), U64(args[1]), c.c_uint32(args[2]))
        elif name == "exec" and kind == "write":
            call(op, args[0], args[1], args[2], SIZE(len(args[2])), c.byref(rval))
            out = code
        elif name == "exec":
            data, size = c.c_void_p(), SIZE()
            call(op, args[0], args[1], args[2], SIZE(len(args[2])), c.byref(data), c.byref(size), c.byref(rval))
            out = lambda: (name, rval.value, c.string_at(data.value, size.value) if data.value and rval.value >= 0 else None)
        elif name == "read":
            buffer, size = c.create_string_buffer(args[1] + 1), SIZE()
            call(op, U64(args[0]), SIZE(args[1]), buffer, c.byref(size), c.byref(rval))
            out = lambda: (name, rval.value, size.value if rval.value >= 0 else None, short(buffer.raw[: size.value]) if rval.value >= 0 else None)
        elif name == "stat":
            size, mtime = U64(), c.c_long()
            call(op, c.byref(size), c.byref(mtime), c.byref(rval))
            out = lambda: (name, rval.value, size.value if rval.value >= 0 else None)
        elif name == "getxattrs":
            each = PTR()
            call(op, c.byref(each), c.byref(rval))
            out = lambda: (name, rval.value, xattrs(each) if rval.value >= 0 else None)
        elif name == "checksum":
            init = b"\xff" * (8 if args[0] == 1 else 4)
            buffer = c.create_string_buffer(70_000)
            call(op, INT(args[0]), init, SIZE(len(init)), U64(args[1]), SIZE(args[2]), SIZE(args[3]), buffer, SIZE(70_000), c.byref(rval))
            out = lambda: (name, rval.value, short(buffer.raw) if rval.value >= 0 else None)
        elif name == "omap_get_vals2":
            each, more = PTR(), c.c_ubyte(9)
            call(op, args[0], args[1], U64(args[2]), c.byref(each), c.byref(more), c.byref(rval))
            out = lambda: (name, rval.value, (omap(each), more.value) if rval.value >= 0 else None)
        elif name == "omap_get_keys2":
            each, more = PTR(), c.c_ubyte(9)
            call(op, args[0], U64(args[1]), c.byref(each), c.byref(more), c.byref(rval))
            out = lambda: (name, rval.value, (omap(each), more.value) if rval.value >= 0 else None)
        elif name == "omap_get_vals_by_keys2":
            each = PTR()
            keys, sizes = strings(args[0])
            call(op, keys, SIZE(len(args[0])), sizes, c.byref(each), c.byref(rval))
            out = lambda: (name, rval.value, omap(each) if rval.value >= 0 else None)
        else:
            raise ValueError(name)
        if flags:
            getattr(LIB, f"rados_{kind}_op_set_flags")(op, INT(flags))
        return out


def short(data):
    return data if len(data) < 40 else (len(data), zlib.crc32(data), data[:8])


def xattrs(each):
    found = []
    while True:
        name, value, size = c.c_char_p(), PTR(), SIZE()
        if LIB.rados_getxattrs_next(each, c.byref(name), c.byref(value), c.byref(size)) or name.value is None:
            break
        # The class hello writes down who called.
        is_caller = name.value in (b"said_by", b"amplified_by")
        found.append((name.value, short(c.string_at(value.value, size.value)) if value.value and not is_caller else b""))
    LIB.rados_getxattrs_end(each)
    return found


def omap(each):
    found = []
    while True:
        key, value, key_size, value_size = PTR(), PTR(), SIZE(), SIZE()
        LIB.rados_omap_get_next2(each, c.byref(key), c.byref(value), c.byref(key_size), c.byref(value_size))
        if not key.value:
            break
        found.append((c.string_at(key.value, key_size.value), short(c.string_at(value.value, value_size.value)) if value.value else b""))
    LIB.rados_omap_get_end(each)
    return found


def named(value):
    """Errnos by their names."""
    if isinstance(value, bytes) and len(value) > 12:
        return value[:6] + b"... %d" % len(value)
    if isinstance(value, int) and not isinstance(value, bool) and value < 0:
        return "-" + errno.errorcode.get(-value, str(-value))
    if isinstance(value, tuple):
        return tuple(named(v) for v in value)
    if isinstance(value, list):
        return [named(v) for v in value]
    return value


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("conf", nargs=2)
    parser.add_argument("--seeds", default="0..20")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--pool", default="bench")
    options = parser.parse_args()
    begin, end = (int(n) for n in options.seeds.split(".."))
    sides = [Side(conf, options.pool) for conf in options.conf]
    differences, asked = 0, 0
    for seed in range(begin, end):
        rng, made = random.Random(seed), 0
        objects, before = [f"s{seed}.{made}.{n}".encode() for n in range(3)], []
        for _ in range(options.requests):
            request = draw(rng, objects)
            ours, theirs = (side.run(request) for side in sides)
            asked += 1
            before.append((request, theirs))
            if -errno.ETIMEDOUT in (theirs, theirs[0] if isinstance(theirs, tuple) else 0):
                sys.exit(f"seed {seed}: the second cluster does not answer {named(request)}")
            if ours == theirs or isinstance(ours, tuple) and ours[0] == theirs[0] < 0:
                continue
            differences += 1
            print(f"seed {seed}: {named(request)}\n   ours   {named(ours)}\n   theirs {named(theirs)}")
            changes = [(old, answer) for old, answer in before[:-1] if old[1] == request[1] and old[0] != "read"]
            for old, answer in changes[-5:]:
                print(f"      before: {named(old[2])} -> {named(answer)}"[:300])
            sys.stdout.flush()
            # From here on they may differ for that reason alone.
            made += 1
            objects, before = [f"s{seed}.{made}.{n}".encode() for n in range(3)], []
    print(f"{asked} requests, {differences} differences")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
