"""About a hundred calls of librados, through Debian's python3-rados (and its C interface for what python does not have).

usage: librados.py CEPH.CONF POOL [GROUP …]
Without groups all of them run; on a real Ceph, too. Prints a line for each group, `ok NAME CALLS` or `FAIL NAME: WHY`; the exit code is 1 if a group failed.
"""

import ctypes
import errno
import json
import sys
import threading
import time
import traceback

import rados

GROUPS = []


def group(function):
    """Registers a group of calls; its docstring says what it looks at."""
    GROUPS.append(function)
    return function


class Counted:
    """An object whose method calls are counted."""

    calls = 0

    def __init__(self, inner):
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name):
        found = getattr(self.inner, name)
        if not callable(found):
            return found

        def call(*args, **kwargs):
            Counted.calls += 1
            args = [a.inner if isinstance(a, Counted) else a for a in args]
            return found(*args, **kwargs)

        return call


def fails(error, function, *args):
    """The call must fail with this errno."""
    try:
        function(*args)
    except rados.Error as e:
        found = abs(getattr(e, "errno", 0) or 0)
        assert found == error, f"{e!r}: errno {found}, not {errno.errorcode.get(error, error)}"
        return
    raise AssertionError(f"no error, where {errno.errorcode.get(error, error)} is due")


def expect(found, wanted, what=""):
    assert found == wanted, f"{what}: {found!r:.200}, not {wanted!r:.200}"


def write_op(io, name, *steps):
    """Runs a vector of write operations: (method, argument, …) each."""
    op = io.create_write_op()
    try:
        for method, *args in steps:
            Counted.calls += 1
            getattr(op, method)(*args)
        io.operate_write_op(op, name)
    finally:
        io.release_write_op(op)


@group
def objects(io):
    """write_full, write, append, read, stat, trunc, remove"""
    io.write_full("plain", b"0123456789")
    io.write("plain", b"ab", 4)
    io.append("plain", b"xyz")
    expect(io.read("plain"), b"0123ab6789xyz")
    expect(io.read("plain", 4, 3), b"3ab6")
    expect(io.read("plain", 100, 50), b"")
    expect(io.stat("plain")[0], 13)
    io.trunc("plain", 5)
    expect(io.read("plain"), b"0123a")
    io.trunc("plain", 8)
    expect(io.read("plain"), b"0123a\0\0\0")
    io.write("holes", b"end", 9000)
    expect(io.read("holes", 9003, 0), b"\0" * 9000 + b"end")
    io.writesame("same", b"ab", 8)
    expect(io.read("same"), b"abababab")
    io.remove_object("plain")
    fails(errno.ENOENT, io.read, "plain")
    fails(errno.ENOENT, io.stat, "plain")
    fails(errno.ENOENT, io.remove_object, "plain")
    for name in ("holes", "same"):
        io.remove_object(name)


@group
def big_objects(io):
    """9 MiB in one write, read in pieces"""
    data = bytes((i * 2654435761 >> 7) & 0xFF for i in range(65536)) * 144 + b"tail"
    io.write_full("big", data)
    back = b"".join(io.read("big", 4 << 20, off) for off in range(0, len(data), 4 << 20))
    assert back == data, "the data came back different"
    io.remove_object("big")


@group
def async_writes(io):
    """64 aio_write in flight, aio_append, aio_read, aio_stat, aio_remove"""
    done, lock = [], threading.Lock()

    def oncomplete(completion):
        with lock:
            done.append(completion.get_return_value())

    flights = [io.aio_write(f"aio{i}", b"%04d" % i * 1024, 0, oncomplete) for i in range(64)]
    for flight in flights:
        flight.wait_for_complete_and_cb()
    expect(done, [0] * 64)
    got = {}

    def onread(i):
        return lambda completion, data: got.__setitem__(i, data)

    flights = [io.aio_read(f"aio{i}", 4096, 0, onread(i)) for i in range(64)]
    for flight in flights:
        flight.wait_for_complete_and_cb()
    assert all(got[i] == b"%04d" % i * 1024 for i in range(64)), "an asynchronous read differs"
    flight = io.aio_append("aio0", b"more")
    flight.wait_for_complete()
    expect(flight.get_return_value(), 0)
    sizes = []
    io.aio_stat("aio0", lambda completion, size, mtime: sizes.append(size)).wait_for_complete_and_cb()
    expect(sizes, [4100])
    for flight in [io.aio_remove(f"aio{i}") for i in range(64)]:
        flight.wait_for_complete()
        expect(flight.get_return_value(), 0)
    flight = io.aio_remove("aio0")
    flight.wait_for_complete()
    expect(flight.get_return_value(), -errno.ENOENT)
    io.aio_flush()


@group
def ordered_writes(io):
    """200 asynchronous appends to one object arrive in their order"""
    flights = [io.aio_append("ordered", b"%03d," % i) for i in range(200)]
    for flight in flights:
        flight.wait_for_complete()
        expect(flight.get_return_value(), 0)
    expect(io.read("ordered", 8192), b"".join(b"%03d," % i for i in range(200)))
    io.remove_object("ordered")


@group
def xattrs(io):
    """set_xattr, get_xattr, get_xattrs, rm_xattr, and their asynchronous forms"""
    io.write_full("x", b"data")
    io.set_xattr("x", "one", b"1")
    io.set_xattr("x", "empty", b"")
    io.set_xattr("x", "long", b"v" * 4000)
    expect(io.get_xattr("x", "one"), b"1")
    expect(dict(io.get_xattrs("x")), {"one": b"1", "empty": b"", "long": b"v" * 4000})
    io.set_xattr("x", "one", b"other")
    expect(io.get_xattr("x", "one"), b"other")
    io.rm_xattr("x", "long")
    fails(errno.ENODATA, io.get_xattr, "x", "long")
    flight = io.aio_setxattr("x", "aio", b"a")
    flight.wait_for_complete()
    expect(io.get_xattr("x", "aio"), b"a")
    flight = io.aio_rmxattr("x", "aio")
    flight.wait_for_complete()
    fails(errno.ENODATA, io.get_xattr, "x", "aio")
    fails(errno.ENOENT, io.get_xattr, "none", "one")
    io.remove_object("x")


def omap_of(io, name, start, prefix, most):
    op = io.create_read_op()
    try:
        values, _ = io.get_omap_vals(op, start, prefix, most)
        io.operate_read_op(op, name)
        return list(values)
    finally:
        io.release_read_op(op)


@group
def omap(io):
    """set_omap, get_omap_vals, keys, by keys, remove_omap_keys, clear_omap"""
    op = io.create_write_op()
    io.set_omap(op, ("a", "b", "p1", "p2"), (b"A", b"", b"P1", b"P2"))
    io.operate_write_op(op, "m")
    io.release_write_op(op)
    expect(omap_of(io, "m", "", "", 10), [("a", b"A"), ("b", None), ("p1", b"P1"), ("p2", b"P2")])
    expect(omap_of(io, "m", "", "p", 10), [("p1", b"P1"), ("p2", b"P2")])
    expect(omap_of(io, "m", "a", "", 2), [("b", None), ("p1", b"P1")])
    op = io.create_read_op()
    some, _ = io.get_omap_vals_by_keys(op, ("b", "p2", "none"))
    keys, _ = io.get_omap_keys(op, "a", 2)
    io.operate_read_op(op, "m")
    expect(list(some), [("b", None), ("p2", b"P2")])
    expect([key for key, _ in keys], ["b", "p1"])
    io.release_read_op(op)
    op = io.create_write_op()
    io.remove_omap_keys(op, ("a", "p1"))
    io.operate_write_op(op, "m")
    io.release_write_op(op)
    expect([key for key, _ in omap_of(io, "m", "", "", 10)], ["b", "p2"])
    op = io.create_write_op()
    io.set_omap(op, ("",), (b"E",))
    io.operate_write_op(op, "m")
    io.release_write_op(op)
    expect([key for key, _ in omap_of(io, "m", "", "", 10)], ["b", "p2"], "no listing has the empty key")
    op = io.create_read_op()
    some, _ = io.get_omap_vals_by_keys(op, ("", "b"))
    io.operate_read_op(op, "m")
    expect(list(some), [("", b"E"), ("b", None)])
    io.release_read_op(op)
    op = io.create_write_op()
    io.clear_omap(op)
    io.operate_write_op(op, "m")
    io.release_write_op(op)
    expect(omap_of(io, "m", "", "", 10), [])
    io.remove_object("m")


@group
def omap_pages(io):
    """3,000 keys, iterated in pages of 250 while others are written"""
    keys = [f"key{i:05}" for i in range(3000)]
    for at in range(0, 3000, 1000):
        op = io.create_write_op()
        part = keys[at : at + 1000]
        io.set_omap(op, tuple(part), tuple(k.encode() for k in part))
        io.operate_write_op(op, "pages")
        io.release_write_op(op)
    found, start = [], ""
    while True:
        page = omap_of(io, "pages", start, "", 250)
        if not page:
            break
        assert len(page) <= 250, f"a page of {len(page)}"
        found += page
        start = page[-1][0]
        op = io.create_write_op()
        io.set_omap(op, (f"before{len(found)}",), (b"new",))
        io.operate_write_op(op, "pages")
        io.release_write_op(op)
    expect([key for key, _ in found], keys)
    assert all(value == key.encode() for key, value in found), "a value differs"
    io.remove_object("pages")


@group
def odd_extents(io):
    """zeros that reach the end cut an object off, beyond it they change nothing; an empty write beyond the end makes it longer"""
    c, none = C(CONF, POOL), ctypes.c_size_t(0)
    for begin, length, size in ((6, 6, 6), (6, 2, 6), (6, 1, 8), (8, 4, 8), (9, 4, 8), (0, 8, 0), (0, 99, 0)):
        io.write_full("odd", b"12345678")
        expect(c.vector("write", b"odd", ("zero", begin, length)), 0)
        kept = b"12345678"[:begin] + b"\0" * length + b"12345678"[begin + length :]
        expect(io.read("odd"), kept[:size], f"zero {begin} {length}")
    expect(c.vector("write", b"odd", ("write", b"", none, 100)), 0)
    expect((io.stat("odd")[0], io.read("odd")), (100, b"\0" * 100))
    expect(c.vector("write", b"odd", ("write", b"", none, 50)), 0)
    expect(io.stat("odd")[0], 100)
    expect(c.vector("write", b"new", ("write", b"", none, 20)), 0)
    expect(io.stat("new")[0], 20)
    expect(c.vector("write", b"none", ("zero", 0, 20)), 0)
    fails(errno.ENOENT, io.stat, "none")
    c.close()
    io.remove_object("odd")
    io.remove_object("new")


@group
def balanced_reads(io):
    """reads with OPERATION_BALANCE_READS and OPERATION_LOCALIZE_READS, which any OSD of the acting set may be asked"""
    for at in range(16):
        io.write_full(f"balanced{at}", b"%d" % at)
    c = C(CONF, POOL)
    for flag in (rados.LIBRADOS_OPERATION_BALANCE_READS, rados.LIBRADOS_OPERATION_LOCALIZE_READS):
        for at in range(16):
            data, size, result = ctypes.create_string_buffer(8), ctypes.c_size_t(0), ctypes.c_int(-1)
            read = ("read", 0, 8, data, ctypes.byref(size), ctypes.byref(result))
            expect(c.vector("read", b"balanced%d" % at, read, flags=flag), 0)
            expect((data.raw[: size.value], result.value), (b"%d" % at, 0))
    expect(c.vector("read", b"nothing", ("stat", None, None, None), flags=rados.LIBRADOS_OPERATION_BALANCE_READS), -errno.ENOENT)
    c.close()
    for at in range(16):
        io.remove_object(f"balanced{at}")


@group
def op_vectors(io):
    """several operations in one message: all of them or none"""
    write_op(io, "v", ("new", rados.LIBRADOS_CREATE_EXCLUSIVE), ("write_full", b"body"), ("append", b"+"),
             ("set_xattr", "k", b"v"))
    expect(io.read("v"), b"body+")
    expect(io.get_xattr("v", "k"), b"v")
    write_op(io, "v", ("write", b"BO", 0), ("truncate", 3), ("zero", 1, 1), ("rm_xattr", "k"))
    expect(io.read("v"), b"B\0d")
    fails(errno.ENODATA, io.get_xattr, "v", "k")
    fails(errno.EEXIST, write_op, io, "v", ("write_full", b"lost"), ("new", rados.LIBRADOS_CREATE_EXCLUSIVE))
    expect(io.read("v"), b"B\0d", "what failed left something behind")
    write_op(io, "v", ("remove",))
    fails(errno.ENOENT, io.stat, "v")


@group
def exclusive_create(io):
    """of 16 that create an object at once one wins"""
    won, lock = [], threading.Lock()

    def create(i):
        try:
            write_op(io, "once", ("new", rados.LIBRADOS_CREATE_EXCLUSIVE), ("write_full", b"%d" % i))
            with lock:
                won.append(i)
        except rados.ObjectExists:
            pass

    threads = [threading.Thread(target=create, args=(i,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1, f"{len(won)} have created it"
    expect(io.read("once"), b"%d" % won[0])
    write_op(io, "once", ("new", rados.LIBRADOS_CREATE_IDEMPOTENT))
    io.remove_object("once")


@group
def write_full_races(io):
    """readers beside 200 write_full of other lengths see one of them whole"""
    stop, bad = threading.Event(), []
    io.write_full("race", b"0" * 5000)

    def read():
        while not stop.is_set():
            data = io.read("race", 16384)
            if len(set(data)) != 1 or len(data) != 5000 + 37 * int(data[:1]):
                bad.append((len(data), set(data)))

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for i in range(200):
        digit = i % 10
        io.write_full("race", b"%d" % digit * (5000 + 37 * digit))
    stop.set()
    for reader in readers:
        reader.join()
    expect(bad, [])
    io.remove_object("race")


@group
def assert_version(io):
    """a guard on the object's version: ERANGE when behind, EOVERFLOW when ahead"""
    io.write_full("guard", b"one")
    version = io.get_last_version()
    write_op(io, "guard", ("assert_version", version), ("write_full", b"two"))
    newer = io.get_last_version()
    assert newer > version, f"version {newer} after {version}"
    fails(errno.ERANGE, write_op, io, "guard", ("assert_version", version), ("write_full", b"lost"))
    fails(errno.EOVERFLOW, write_op, io, "guard", ("assert_version", newer + 100), ("write_full", b"lost"))
    expect(io.read("guard"), b"two")
    io.remove_object("guard")


@group
def cmpext(io):
    """compares a range, alone and as a guard"""
    io.write_full("cmp", b"compare me")
    expect(io.cmpext("cmp", b"pare", 3), 0)
    expect(io.cmpext("cmp", b"paXe", 3), -4095 - 2)
    write_op(io, "cmp", ("cmpext", b"compare", 0), ("write", b"COMPARE", 0))
    expect(io.read("cmp"), b"COMPARE me")
    fails(4095, write_op, io, "cmp", ("cmpext", b"compare", 0), ("write_full", b"lost"))
    expect(io.read("cmp"), b"COMPARE me")
    io.remove_object("cmp")


class C:
    """librados' C interface, for guards that python3-rados does not offer."""

    def __init__(self, conf, pool):
        self.lib = ctypes.CDLL("librados.so.2")
        for name in ("create_write_op", "create_read_op", "object_list_begin", "object_list_end"):
            getattr(self.lib, f"rados_{name}").restype = ctypes.c_void_p
        self.cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.must("rados_create", ctypes.byref(self.cluster), b"admin")
        self.must("rados_conf_read_file", self.cluster, conf.encode())
        self.must("rados_connect", self.cluster)
        self.must("rados_ioctx_create", self.cluster, pool.encode(), ctypes.byref(self.io))

    def must(self, name, *args):
        Counted.calls += 1
        result = getattr(self.lib, name)(*args)
        assert result == 0, f"{name}: {result}"

    def vector(self, kind, name, *steps, flags=0):
        """Runs a vector of `read` or `write` operations, (name, argument, …) each; its result. Numbers are of 64 bits."""
        op = ctypes.c_void_p(getattr(self.lib, f"rados_create_{kind}_op")())
        for step, *args in steps:
            Counted.calls += 1
            args = [ctypes.c_uint64(arg) if isinstance(arg, int) else arg for arg in args]
            getattr(self.lib, f"rados_{kind}_op_{step}")(op, *args)
        mtime = [None] if kind == "write" else []
        result = getattr(self.lib, f"rados_{kind}_op_operate")(op, self.io, name, *mtime, flags)
        getattr(self.lib, f"rados_release_{kind}_op")(op)
        return result

    def checksum(self, name, kind, start, length, offset, chunk):
        """The result of rados_checksum, and what it gave out."""
        Counted.calls += 1
        out = ctypes.create_string_buffer(b"\xee" * 64, 64)
        size, long = ctypes.c_size_t, ctypes.c_uint64
        result = self.lib.rados_checksum(
            self.io, name, kind, start, size(len(start)), size(length), long(offset), size(chunk), out, size(64)
        )
        return result, out.raw.rstrip(b"\xee").hex()

    def listed(self, *words):
        """How many objects a listing with this filter finds."""
        Counted.calls += 1
        wanted = b"".join(len(word).to_bytes(4, "little") + word for word in words)
        items = (ctypes.c_size_t * 6 * 1000)()
        begin, end, behind = (ctypes.c_void_p(getattr(self.lib, f"rados_object_list_{at}")(self.io)) for at in ("begin", "end", "begin"))
        return self.lib.rados_object_list(
            self.io, begin, end, ctypes.c_size_t(1000), wanted, ctypes.c_size_t(len(wanted)), items, ctypes.byref(behind)
        )

    def guarded(self, name, attr, comparison, value, data):
        """write_full behind a cmpxattr; its result."""
        Counted.calls += 4
        op = ctypes.c_void_p(self.lib.rados_create_write_op())
        self.lib.rados_write_op_cmpxattr(op, attr, ctypes.c_uint8(comparison), value, ctypes.c_size_t(len(value)))
        self.lib.rados_write_op_write_full(op, data, ctypes.c_size_t(len(data)))
        result = self.lib.rados_write_op_operate(op, self.io, name, None, 0)
        self.lib.rados_release_write_op(op)
        return result

    def asserted(self, name, data):
        """write_full behind assert_exists; its result."""
        op = ctypes.c_void_p(self.lib.rados_create_write_op())
        self.lib.rados_write_op_assert_exists(op)
        self.lib.rados_write_op_write_full(op, data, ctypes.c_size_t(len(data)))
        result = self.lib.rados_write_op_operate(op, self.io, name, None, 0)
        self.lib.rados_release_write_op(op)
        Counted.calls += 4
        return result

    def close(self):
        self.lib.rados_ioctx_destroy(self.io)
        self.lib.rados_shutdown(self.cluster)


@group
def cmpxattr(io):
    """six comparisons of an attribute as guards, through librados' C interface"""
    io.write_full("attr", b"before")
    io.set_xattr("attr", "k", b"m")
    c = C(CONF, POOL)
    names = ("EQ", "NE", "GT", "GTE", "LT", "LTE")
    eq, ne, gt, gte, lt, lte = (getattr(rados, f"LIBRADOS_CMPXATTR_OP_{name}") for name in names)
    for comparison, value, passes in (
        (eq, b"m", True), (eq, b"n", False), (ne, b"n", True), (ne, b"m", False), (gt, b"z", True), (gt, b"m", False),
        (gte, b"m", True), (gte, b"a", False), (lt, b"a", True), (lt, b"m", False), (lte, b"m", True), (lte, b"z", False),
    ):
        wanted = 0 if passes else -errno.ECANCELED
        result = c.guarded(b"attr", b"k", comparison, value, b"%d" % comparison)
        expect(result, wanted, f"comparison {comparison} with {value}")
    expect(io.read("attr"), b"%d" % lte)
    c.close()
    io.remove_object("attr")


@group
def cmpxattr_alone(io):
    """a comparison that holds is answered with 1, where it is the last operation of a read"""
    io.set_xattr("alone", "k", b"v")
    c, size = C(CONF, POOL), ctypes.c_size_t(1)
    holds = ("cmpxattr", b"k", ctypes.c_uint8(rados.LIBRADOS_CMPXATTR_OP_EQ), b"v", size)
    differs = ("cmpxattr", b"k", ctypes.c_uint8(rados.LIBRADOS_CMPXATTR_OP_EQ), b"w", size)
    expect(c.vector("read", b"alone", holds), 1)
    expect(c.vector("read", b"alone", ("stat", None, None, None), holds), 1)
    expect(c.vector("read", b"alone", differs), -errno.ECANCELED)
    expect(c.vector("read", b"nothing", holds), -errno.ENOENT)
    expect(c.vector("write", b"alone", ("write", b"x", size, 0), holds), 0)
    c.close()
    io.remove_object("alone")


@group
def limits(io):
    """names of attributes, ranges and versions that Ceph refuses: ENAMETOOLONG, EFBIG, EINVAL, in Ceph's order"""
    c, far = C(CONF, POOL), 500_000_000_000
    one = ctypes.c_size_t(1)
    io.write_full("limits", b"abcdefg")
    io.set_xattr("limits", "a" * 100, b"v")
    fails(errno.ENAMETOOLONG, io.set_xattr, "limits", "a" * 101, b"v")
    fails(errno.EINVAL, io.set_xattr, "limits", "", b"v")
    fails(errno.ENODATA, io.get_xattr, "limits", "a" * 101)
    for name in (b"limits", b"nothing"):
        for begin, length in ((far, 1), (1, far), (far, far)):
            expect(c.vector("write", name, ("zero", begin, length)), -errno.EFBIG, f"zero {begin} {length}")
        expect(c.vector("write", name, ("write", b"x", one, far)), -errno.EFBIG)
    expect(c.vector("write", b"limits", ("truncate", far)), -errno.EFBIG)
    most = 128 << 20
    for step, result in (
        (("truncate", most + 1), -errno.EFBIG), (("truncate", most - 1), 0), (("write", b"x", one, most), -errno.EFBIG), (("zero", most, 1), -errno.EFBIG),
        (("write", b"x", one, most - 1), 0), (("append", b"x", one), -errno.EFBIG), (("truncate", most), -errno.EFBIG),
    ):
        expect(c.vector("write", b"limits", step), result, str(step[:1]))
    expect(io.stat("limits")[0], most)
    io.write_full("limits", b"abcdefg")
    expect(c.vector("write", b"nothing", ("truncate", far)), 0)
    fails(errno.ENOENT, io.stat, "nothing")
    zeros = ("cmpext", b"\0\0\0\0", ctypes.c_size_t(4), 0, None)
    expect(c.vector("read", b"nothing", zeros), -errno.ENOENT)
    letters = ("cmpext", b"\0x", ctypes.c_size_t(2), 0, None)
    expect(c.vector("write", b"nothing", letters, ("write", b"x", one, 0)), -4096)
    fails(errno.ENOENT, io.stat, "nothing")
    expect(c.vector("write", b"nothing", zeros, ("write", b"x", one, 0)), 0)
    io.remove_object("nothing")
    expect(c.vector("read", b"limits", ("assert_version", 0), ("stat", None, None, None)), -errno.EINVAL)
    expect(c.vector("write", b"nothing", ("assert_version", 3), ("write", b"x", one, 0)), -errno.EOVERFLOW)
    c.close()
    io.remove_object("limits")


@group
def versions_of_what_changes_nothing(io):
    """an alloc hint, a truncate to the same size and an empty write are modifications; zeros behind the end and omap_clear of none are not; a read that fails tells no version, a write that finds no object the last one of its PG"""
    c, none = C(CONF, POOL), ctypes.c_size_t(0)
    c.lib.rados_get_last_version.restype = ctypes.c_uint64

    def version():
        expect(c.vector("read", b"same", ("stat", None, None, None)), 0)
        return c.lib.rados_get_last_version(c.io)

    io.write_full("same", b"1234")
    snap = io.create_self_managed_snap()
    c.lib.rados_ioctx_selfmanaged_snap_set_write_ctx.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_int]
    for snaps in ([], [snap]):
        context = (ctypes.c_uint64 * len(snaps))(*snaps)
        expect(c.lib.rados_ioctx_selfmanaged_snap_set_write_ctx(c.io, max(snaps, default=0), context, len(snaps)), 0)
        for step, modifies in (
            (("set_alloc_hint", 4096, 4096), True), (("truncate", 4), True), (("write", b"", none, 0), True), (("append", b"", none), True),
            (("zero", 4, 10), False), (("omap_clear",), False),
        ):
            before = version()
            expect(c.vector("write", b"same", step), 0)
            expect(version() > before, modifies, str(step[:1]))
        expect(io.read("same"), b"1234")
    expect(c.vector("read", b"same", ("assert_version", version() + 1)), -errno.EOVERFLOW)
    expect(c.lib.rados_get_last_version(c.io), 0)
    c.close()
    io.write_full("gone", b"x")
    io.remove_object("gone")
    last = io.get_last_version()
    fails(errno.ENOENT, io.remove_object, "gone")
    assert io.get_last_version() >= last > 0, (io.get_last_version(), last)
    fails(errno.ENOENT, io.read, "gone")
    expect(io.get_last_version(), 0)
    io.remove_self_managed_snap(snap)
    io.remove_object("same")


@group
def refused_as_a_whole(io):
    """OP_FLAG_FAILOK saves neither a request that calls an unknown method, nor a read of what is not there; nothing is executed"""
    c, none, failok = C(CONF, POOL), ctypes.c_size_t(0), ("set_flags", ctypes.c_int(rados.LIBRADOS_OP_FLAG_FAILOK))
    io.write_full("whole", b"before")
    for cls, method, result in ((b"unheard_of", b"x", errno.EPERM), (b"lock", b"pick", errno.EOPNOTSUPP)):
        call = ("exec", cls, method, b"", none, None)
        expect(c.vector("write", b"whole", ("write_full", b"x", ctypes.c_size_t(1)), call, failok), -result)
    expect(io.read("whole"), b"before")
    stat = ("stat", None, None, None)
    expect(c.vector("read", b"nothing", stat, failok), -errno.ENOENT)
    value = ctypes.c_int(7)
    expect(c.vector("read", b"nothing", ("stat", None, None, ctypes.byref(value))), -errno.ENOENT)
    for most, found, is_more in ((0, 0, 1), (2, 2, 1), (3, 3, 0)):
        op = io.create_write_op()
        io.set_omap(op, ("a", "b", "c"), (b"1", b"2", b"3"))
        io.operate_write_op(op, "whole")
        io.release_write_op(op)
        keys, more, value = ctypes.c_void_p(), ctypes.c_ubyte(7), ctypes.c_int(7)
        listing = ("omap_get_keys2", b"", most, ctypes.byref(keys), ctypes.byref(more), ctypes.byref(value))
        expect(c.vector("read", b"whole", listing), 0)
        expect((c.lib.rados_omap_iter_size(keys), more.value), (found, is_more), f"{most} keys")
        c.lib.rados_omap_get_end(keys)
    c.close()
    io.remove_object("whole")


@group
def checksums(io):
    """rados_checksum with crc32c, xxhash32 and xxhash64, whole and in chunks: what a Ceph 16.2.15 answers for the same bytes"""
    io.write_full("sum", bytes(range(256)) * 4)
    io.write_full("empty", b"")
    c = C(CONF, POOL)
    ones = (b"\xff" * 4, b"\xff" * 8, b"\xff" * 4)
    for kind, length, offset, chunk, answer in (
        (0, 0, 0, 0, "01000000c063721d"), (0, 16, 4, 8, "02000000c3dbce7665ce01a7"), (0, 16, 1016, 8, "01000000c85bd43f"),
        (1, 1024, 0, 0, "01000000e328ee21ce4d0c61"), (1, 16, 0, 8, "02000000aca5c749c6577a364df465d7010a4dab"),
        (2, 0, 0, 0, "01000000709120d3"), (2, 1024, 0, 512, "02000000a511ef51a511ef51"), (2, 100, 1000, 0, "010000005cc88861"),
        (2, 16, 1024, 8, ""), (2, 0, 5, 0, "00000000"),
    ):
        expect(c.checksum(b"sum", kind, ones[kind], length, offset, chunk), (0, answer), f"{kind} {length}@{offset}/{chunk}")
    for kind, start, length, offset, chunk in (
        (2, ones[2], 16, 1020, 8), (2, ones[2], 0, 0, 8), (2, ones[2], 15, 0, 8), (1, ones[0], 0, 0, 0), (7, ones[0], 0, 0, 0),
    ):
        expect(c.checksum(b"sum", kind, start, length, offset, chunk)[0], -errno.EINVAL, f"{kind} {length}@{offset}/{chunk}")
    expect(c.checksum(b"empty", 2, ones[2], 0, 0, 0), (0, "00000000"))
    expect(c.checksum(b"nothing", 2, ones[2], 0, 0, 0)[0], -errno.ENOENT)
    c.close()
    io.remove_object("sum")
    io.remove_object("empty")


@group
def filtered_listings(io):
    """rados_object_list with the filters `plain` and `hello.hello`: the objects whose attribute has a value"""
    for name, value in (("f1", b"theval"), ("f2", b"other"), ("f3", b"")):
        io.set_xattr(name, "theattr", value)
    c = C(CONF, POOL)
    for words, found in (
        ((), 3), ((b"plain", b"_theattr", b"theval"), 1), ((b"plain", b"_theattr", b""), 1), ((b"plain", b"theattr", b"theval"), 0),
        ((b"plain", b"", b""), 3), ((b"hello.hello", b"_theattr", b"other"), 1), ((b"plain",), -errno.EINVAL),
        ((b"nosuch",), -errno.EINVAL), ((b"hello.nosuch",), -errno.EINVAL), ((b"a.b",), -errno.EPERM),
        ((b"plain", b"_theattr", b"theval", b""), -errno.EINVAL),
    ):
        expect(c.listed(*words), found, str(words))
    c.close()
    for name in ("f1", "f2", "f3"):
        io.remove_object(name)


@group
def assert_exists(io):
    """a guard on existence, through librados' C interface"""
    c = C(CONF, POOL)
    expect(c.asserted(b"exists", b"x"), -errno.ENOENT)
    fails(errno.ENOENT, io.stat, "exists")
    io.write_full("exists", b"")
    expect(c.asserted(b"exists", b"x"), 0)
    expect(io.read("exists"), b"x")
    c.close()
    io.remove_object("exists")


@group
def namespaces(io):
    """the same name in two namespaces is two objects; listings keep them apart"""
    for space in ("", "one", "two"):
        io.set_namespace(space)
        io.write_full("shared", space.encode())
    for space in ("one", "two", ""):
        io.set_namespace(space)
        expect(io.read("shared"), space.encode())
        expect([o.key for o in io.list_objects() if o.key == "shared"], ["shared"])
    io.set_namespace(rados.LIBRADOS_ALL_NSPACES)
    found = sorted(o.nspace for o in io.list_objects() if o.key == "shared")
    expect(found, ["", "one", "two"])
    for space in ("", "one", "two"):
        io.set_namespace(space)
        io.remove_object("shared")
    io.set_namespace("")


@group
def locator_keys(io):
    """objects with the same locator key, and not without it"""
    io.set_locator_key("together")
    expect(io.get_locator_key(), "together")
    for i in range(8):
        io.write_full(f"located{i}", b"%d" % i)
    expect(io.read("located3"), b"3")
    listed = {o.key: o.locator_key for o in io.list_objects() if o.key.startswith("located")}
    expect(listed, {f"located{i}": "together" for i in range(8)})
    io.set_locator_key("")
    fails(errno.ENOENT, io.read, "located3")
    io.set_locator_key("together")
    for i in range(8):
        io.remove_object(f"located{i}")
    io.set_locator_key("")


@group
def listing_while_writing(io):
    """what is there from begin to end is listed exactly once, whatever comes and goes"""
    kept = {f"kept{i}" for i in range(300)}
    for flight in [io.aio_write_full(name, b"k") for name in kept]:
        flight.wait_for_complete()
    stop = threading.Event()

    def churn():
        i = 0
        while not stop.is_set():
            io.write_full(f"churn{i % 40}", b"c")
            if i % 3 == 0:
                io.remove_object(f"churn{i % 40}")
            i += 1

    writer = threading.Thread(target=churn)
    writer.start()
    try:
        for _ in range(5):
            listed = [o.key for o in io.list_objects()]
            expect(sorted(name for name in listed if name in kept), sorted(kept))
            strangers = [name for name in listed if name not in kept and not name.startswith("churn")]
            expect(strangers, [])
    finally:
        stop.set()
        writer.join()
    for flight in [io.aio_remove(o.key) for o in io.list_objects()]:
        flight.wait_for_complete()
    expect([o.key for o in io.list_objects()], [])


@group
def locks(io):
    """lock_exclusive, lock_shared, unlock: a second holder is refused"""
    io.write_full("locked", b"")
    io.lock_exclusive("locked", "l", "me", "a description")
    fails(errno.EBUSY, io.lock_exclusive, "locked", "l", "another")
    fails(errno.EEXIST, io.lock_exclusive, "locked", "l", "me")
    io.unlock("locked", "l", "me")
    io.lock_shared("locked", "l", "a", "tag")
    io.lock_shared("locked", "l", "b", "tag")
    io.lock_shared("locked", "l", "b", "tag", "", None, 1)
    fails(errno.EINVAL, io.lock_shared, "locked", "l", "b", "tag", "", None, 3)
    io.unlock("locked", "l", "a")
    io.unlock("locked", "l", "b")
    fails(errno.ENOENT, io.unlock, "locked", "l", "b")
    io.remove_object("locked")


@group
def watch_and_notify(io):
    """a notification reaches two watchers, and their answers the notifier"""
    io.write_full("watched", b"")
    heard = []

    def hears(who):
        def callback(notify_id, notifier, watch_id, data):
            heard.append((who, data))
            return b"ack " + who.encode()

        return callback

    first, second = io.watch("watched", hears("a")), io.watch("watched", hears("b"))
    acks, timeouts = [], []

    def done(completion, result, got, late):
        acks.extend(data for _, _, data in got)
        timeouts.extend(late)

    io.aio_notify("watched", done, "hello", 5000).wait_for_complete_and_cb()
    expect(sorted(heard), [("a", b"hello"), ("b", b"hello")])
    expect((sorted(acks), timeouts), ([b"ack a", b"ack b"], []))
    first.close()
    second.close()
    io.remove_object("watched")


@group
def pools_and_statistics(io):
    """pool ids and names, get_stats, applications"""
    expect(io.get_pool_name(), POOL)
    assert io.get_pool_id() > 0
    assert io.get_stats()["num_objects"] >= 0
    CLUSTER.create_pool("counted")
    with CLUSTER.open_ioctx("counted") as counted:
        for at in range(20):
            counted.write_full(f"o{at}", b"x" * 4096)
        for _ in range(100):
            stats = counted.get_stats()
            if stats["num_objects"] == 20:
                break
            time.sleep(0.1)
        # As in Ceph the bytes are those of all copies.
        copies = stats["num_object_copies"] // 20
        expect((stats["num_objects"], stats["num_bytes"]), (20, copies * 20 * 4096))
    CLUSTER.delete_pool("counted")
    io.application_enable("testing", True)
    assert "testing" in list(io.application_list())


@group
def asynchronous_op_vectors(io):
    """operate_aio_write_op, operate_aio_read_op, aio_writesame, aio_cmpext"""
    op = io.create_write_op()
    op.write_full(b"asynchronous")
    flight = io.operate_aio_write_op(op, "a")
    flight.wait_for_complete()
    expect(flight.get_return_value(), 0)
    io.release_write_op(op)
    op = io.create_write_op()
    io.set_omap(op, ("k",), (b"v",))
    io.operate_write_op(op, "a")
    io.release_write_op(op)
    op = io.create_read_op()
    values, _ = io.get_omap_vals(op, "", "", 10)
    flight = io.operate_aio_read_op(op, "a")
    flight.wait_for_complete()
    expect((flight.get_return_value(), list(values)), (0, [("k", b"v")]))
    io.release_read_op(op)
    flight = io.aio_writesame("a", b"xy", 6)
    flight.wait_for_complete()
    expect(io.read("a"), b"xyxyxyronous")
    flight = io.aio_cmpext("a", b"xyxy")
    flight.wait_for_complete()
    expect(flight.get_return_value(), 0)
    flight = io.aio_cmpext("a", b"xyXy")
    flight.wait_for_complete()
    expect(flight.get_return_value(), -4095 - 2)
    io.remove_object("a")


@group
def omap_ranges_and_guards(io):
    """remove_omap_range2, and omap_cmp as a guard"""
    op = io.create_write_op()
    io.set_omap(op, ("a", "b", "c", "d"), (b"1", b"2", b"3", b"4"))
    io.operate_write_op(op, "r")
    io.release_write_op(op)
    op = io.create_write_op()
    io.remove_omap_range2(op, "b", "d")
    io.operate_write_op(op, "r")
    io.release_write_op(op)
    expect([key for key, _ in omap_of(io, "r", "", "", 10)], ["a", "d"])
    write_op(io, "r", ("omap_cmp", "a", "1", rados.LIBRADOS_CMPXATTR_OP_EQ), ("write_full", b"guarded"))
    fails(errno.ECANCELED, write_op, io, "r", ("omap_cmp", "a", "2", rados.LIBRADOS_CMPXATTR_OP_EQ), ("write_full", b"lost"))
    for name, result in (("GT", 0), ("LT", errno.ECANCELED), ("NE", errno.EINVAL), ("GTE", errno.EINVAL), ("LTE", errno.EINVAL)):
        guard = ("omap_cmp", "a", "0", getattr(rados, f"LIBRADOS_CMPXATTR_OP_{name}"))
        if result:
            fails(result, write_op, io, "r", guard, ("write_full", b"lost"))
        else:
            write_op(io, "r", guard)
    expect(io.read("r"), b"guarded")
    io.remove_object("r")


@group
def object_classes(io):
    """execute, aio_execute and a method in an op vector: methods of the classes lock and rbd; EOPNOTSUPP for others of Ceph"""
    io.write_full("classes", b"")
    io.lock_exclusive("classes", "name", "cookie")
    length, listed = io.execute("classes", "lock", "list_locks", b"")
    assert length == len(listed) and b"name" in listed, listed
    io.unlock("classes", "name", "cookie")
    got = []
    flight = io.aio_execute("classes", "lock", "list_locks", b"", 4096, lambda completion, data: got.append(data))
    flight.wait_for_complete_and_cb()
    # The lock stays known when nobody holds it.
    assert flight.get_return_value() >= 0 and b"name" in got[0], got
    write_op(io, "classes", ("execute", "rbd", "metadata_set", b"\1\0\0\0\3\0\0\0key\5\0\0\0value"))
    expect(io.execute("classes", "rbd", "metadata_get", b"\3\0\0\0key")[1], b"\5\0\0\0value")
    fails(errno.EOPNOTSUPP, io.execute, "classes", "rgw", "bucket_list", b"")
    fails(errno.EOPNOTSUPP, io.execute, "classes", "lock", "pick", b"")
    fails(errno.EOPNOTSUPP, io.execute, "nothing", "user", "get_header", b"")
    fails(errno.EPERM, io.execute, "nothing", "unheard_of", "add", b"")
    io.remove_object("classes")


@group
def class_hello(io):
    """the class hello: greetings, what a write gives back with and without OPERATION_RETURNVEC, methods that break their word"""
    io.write_full("loud", b"loud")
    expect(io.execute("loud", "hello", "say_hello", b"")[1], b"Hello, world!")
    expect(io.execute("loud", "hello", "say_hello", b"fred")[1], b"Hello, fred!")
    fails(errno.EINVAL, io.execute, "loud", "hello", "say_hello", b"x" * 101)
    fails(errno.ENOENT, io.execute, "hi", "hello", "say_hello", b"")
    write_op(io, "hi", ("execute", "hello", "record_hello", b"ebs"))
    expect(io.read("hi"), b"Hello, ebs!")
    assert io.get_xattr("hi", "said_by").startswith(b"client."), io.get_xattr("hi", "said_by")
    fails(errno.EEXIST, io.execute, "hi", "hello", "record_hello", b"")
    io.execute("loud", "hello", "turn_it_to_11", b"")
    expect(io.execute("loud", "hello", "replay", b"")[1], b"LOUD")
    fails(errno.EIO, io.execute, "loud", "hello", "bad_reader", b"")
    fails(errno.EIO, io.execute, "loud", "hello", "bad_writer", b"")
    expect(io.execute("loud", "hello", "write_return_data", b""), (0, b""))
    expect(io.get_xattr("loud", "foo"), b"bar")
    c = C(CONF, POOL)
    returnvec = 1024
    for method, flags, result, told in (
        (b"write_return_data", 0, 0, 42), (b"write_return_data", returnvec, 42, 42),
        (b"write_too_much_return_data", 0, 0, 42), (b"write_too_much_return_data", returnvec, -errno.EOVERFLOW, -errno.EOVERFLOW),
    ):
        value = ctypes.c_int(7)
        step = ("exec", b"hello", method, b"", ctypes.c_size_t(0), ctypes.byref(value))
        expect((c.vector("write", b"loud", step, flags=flags), value.value), (result, told), f"{method} {flags}")
    c.close()
    io.remove_object("hi")
    io.remove_object("loud")


@group
def tmaps(io):
    """rados_tmap_put, rados_tmap_update and rados_tmap_get, the maps in an object's bytes of old clients: set, create, remove, header"""
    c = C(CONF, POOL)
    word = lambda text: len(text).to_bytes(4, "little") + text

    def update(*commands):
        Counted.calls += 1
        commands = b"".join(kind + b"".join(word(text) for text in words) for kind, *words in commands)
        return c.lib.rados_tmap_update(c.io, b"tmap", commands, ctypes.c_size_t(len(commands)))

    def stored(header, *pairs):
        return word(header) + len(pairs).to_bytes(4, "little") + b"".join(word(key) + word(value) for key, value in pairs)

    expect(update((b"s", b"foo", b"1")), 0, "of no object")
    expect(io.read("tmap"), stored(b"", (b"foo", b"1")))
    expect(update((b"s", b"zed", b"2"), (b"c", b"bar", b"3"), (b"h", b"head")), 0)
    expect(io.read("tmap"), stored(b"head", (b"bar", b"3"), (b"foo", b"1"), (b"zed", b"2")))
    expect(update((b"c", b"foo", b"x")), -errno.EEXIST)
    expect(update((b"r", b"none")), -errno.ENOENT)
    expect(update((b"r", b"bar"), (b"R", b"none"), (b"s", b"foo", b"4")), 0)
    expect(io.read("tmap"), stored(b"head", (b"foo", b"4"), (b"zed", b"2")))
    expect(update(), 0)
    expect(update((b"x", b"key")), -errno.EINVAL)
    expect(c.lib.rados_tmap_update(c.io, b"tmap", b"s\xff\xff", ctypes.c_size_t(3)), -errno.EINVAL)
    data = stored(b"", (b"b", b"1"), (b"a", b"2"))
    c.must("rados_tmap_put", c.io, b"tmap", data, ctypes.c_size_t(len(data)))
    expect(update((b"s", b"c", b"3")), 0, "entries in any order")
    out = ctypes.create_string_buffer(100)
    length = c.lib.rados_tmap_get(c.io, b"tmap", out, ctypes.c_size_t(100))
    expect(out.raw[:length], stored(b"", (b"a", b"2"), (b"b", b"1"), (b"c", b"3")))
    c.close()
    io.remove_object("tmap")


@group
def requests_of_nothing(io):
    """an asynchronous op vector without operations is EINVAL; what only caches have is EINVAL, too"""
    io.write_full("empty", b"")
    for name, make, operate, release in (
        ("write", io.create_write_op, io.operate_aio_write_op, io.release_write_op),
        ("read", io.create_read_op, io.operate_aio_read_op, io.release_read_op),
    ):
        op = make()
        flight = operate(op, "empty")
        flight.wait_for_complete()
        expect(flight.get_return_value(), -errno.EINVAL, name)
        release(op)
    c = C(CONF, POOL)
    expect([c.lib.rados_cache_pin(c.io, b"empty"), c.lib.rados_cache_unpin(c.io, b"empty")], [-errno.EINVAL] * 2)
    c.close()
    io.remove_object("empty")


@group
def holders_addresses(io):
    """rados_list_lockers shows a holder's address as a Ceph does: `v1:127.0.0.1:0/NONCE`"""
    io.lock_exclusive("held", "name", "cookie")
    c = C(CONF, POOL)
    exclusive, texts = ctypes.c_int(), [ctypes.create_string_buffer(200) for _ in range(4)]
    sizes = [ctypes.c_size_t(200) for _ in texts]
    filled = [arg for text, size in zip(texts, sizes) for arg in (text, ctypes.byref(size))]
    count = c.lib.rados_list_lockers(c.io, b"held", b"name", ctypes.byref(exclusive), *filled)
    address = texts[3].value
    assert count == 1 and address.startswith(b"v1:127.0.0.1:0/"), (count, address)
    c.close()
    io.unlock("held", "name", "cookie")
    io.remove_object("held")


@group
def pools(io):
    """any name but an empty one; create_pool, pool_exists, pool_lookup, pool_reverse_lookup, list_pools, get_pool_base_tier, delete_pool"""
    c = CLUSTER
    c.create_pool("made")
    assert c.pool_exists("made") and "made" in c.list_pools()
    number = c.pool_lookup("made")
    expect(c.pool_reverse_lookup(number), "made")
    expect(c.get_pool_base_tier(number), number)
    fails(errno.EEXIST, c.create_pool, "made")
    other = c.open_ioctx2(number)
    other.write_full("there", b"x")
    expect(other.read("there"), b"x")
    other.close()
    for name in ("a/b", "with spaces", "\u9ec5", "x" * 500, "-dash", ".dot"):
        c.create_pool(name)
        expect(c.pool_reverse_lookup(c.pool_lookup(name)), name)
        c.delete_pool(name)
    fails(errno.EINVAL, c.create_pool, "")
    fails(errno.ENOENT, c.create_pool, "ruled", 99)
    c.create_pool("ruled", 0)
    c.delete_pool("ruled")
    c.delete_pool("made")
    c.wait_for_latest_osdmap()
    assert not c.pool_exists("made")


@group
def application_values(io):
    """application_metadata_set, get, list, remove"""
    fails(errno.EPERM, io.application_enable, "valued")
    io.application_enable("valued", True)
    io.application_metadata_set("valued", "key", "value")
    expect(io.application_metadata_get("valued", "key"), "value")
    expect(io.application_metadata_list("valued"), [("key", "value")])
    io.application_metadata_remove("valued", "key")
    expect(io.application_metadata_list("valued"), [])


@group
def commands(io):
    """mon_command, mgr_command, osd_command, pg_command, ping_monitor, get_fsid, get_cluster_stats, get_inconsistent_pgs"""
    c = CLUSTER
    version = json.dumps({"prefix": "version", "format": "json"})
    for name, answer in (
        ("mon", c.mon_command(version, b"")), ("mgr", c.mgr_command(version, b"")), ("osd", c.osd_command(0, version, b"")),
    ):
        assert answer[0] == 0 and b"version" in answer[1], f"{name}: {answer}"
    result, _, why = c.mon_command(json.dumps({"prefix": "make tea"}), b"")
    assert result == -errno.EINVAL and "make tea" in why, (result, why)
    result, _, _ = c.pg_command("1.0", json.dumps({"prefix": "query"}), b"")
    assert result < 0, result
    pinged = json.loads(c.ping_monitor("a"))
    status = pinged["mon_status"]
    assert status["state"] == "leader" and status["monmap"]["mons"][0]["name"] == "a" and status["feature_map"]["osd"], status
    assert pinged["health"]["status"].startswith("HEALTH_")
    dump = {"prefix": "mon dump", "format": "json"}
    epoch = json.loads(c.mon_command(json.dumps(dump), b"")[1])["epoch"]
    expect(c.mon_command(json.dumps({**dump, "epoch": epoch + 1000}), b"")[:2], (-errno.ENOENT, b""))
    result, out, _ = c.mon_command(version, b"", target="a")
    assert result == 0 and "release" in json.loads(out), out
    flushed = c.osd_command(0, json.dumps({"prefix": "flush_pg_stats"}), b"")
    expect(flushed[0], 0)
    pg = f"{c.pool_lookup(POOL)}.0"
    for prefix in ("scrub", "deep_scrub"):
        expect(c.pg_command(pg, json.dumps({"prefix": prefix, "pgid": pg}), b"")[0], 0)
    expect(len(c.get_fsid()), 36)
    assert c.get_cluster_stats()["kb"] >= 0
    assert c.get_instance_id() > 0
    expect(list(c.get_inconsistent_pgs(c.pool_lookup(POOL))), [])
    fails(errno.ENOENT, c.get_inconsistent_pgs, 999)


@group
def services(io):
    """service_daemon_register, service_daemon_update: `service dump` and `status` show the process while it is there"""
    own = rados.Rados(conffile=CONF)
    own.connect(timeout=30)
    metadata = {"daemon_type": "portal", "version": "3.14"}
    own.service_daemon_register("laundry", "one", metadata)
    own.service_daemon_update({"result": "unknown"})
    dump, status = (json.dumps({"prefix": prefix}) for prefix in ("service dump", "status"))
    for _ in range(100):
        shown = json.loads(CLUSTER.mon_command(dump, b"")[1])["services"]
        if shown:
            break
        time.sleep(0.1)
    told = shown["laundry"]["daemons"]["one"]["metadata"]
    assert metadata.items() <= told.items(), told
    assert b"laundry: 1 portal active (1 hosts)" in CLUSTER.mon_command(status, b"")[1]
    own.shutdown()
    for _ in range(100):
        if not json.loads(CLUSTER.mon_command(dump, b"")[1])["services"]:
            break
        time.sleep(0.1)
    expect(json.loads(CLUSTER.mon_command(dump, b"")[1])["services"], {})


@group
def cluster_log(io):
    """monitor_log and the command log: a subscriber gets each line once, and none after it has left"""
    heard, came = [], threading.Condition()

    def line(_arg, _line, _who, _sec, _nsec, _seq, _level, msg):
        with came:
            heard.append(msg.decode() if isinstance(msg, bytes) else msg)
            came.notify_all()

    def say(text):
        expect(CLUSTER.mon_command(json.dumps({"prefix": "log", "logtext": [text]}), b"")[0], 0)

    monitor = rados.MonitorLog(CLUSTER.inner, "info", line, 0)
    say("onexx")
    say("twoxx")
    with came:
        assert came.wait_for(lambda: "twoxx" in heard, timeout=20), heard
    expect([text for text in heard if text.endswith("xx")], ["onexx", "twoxx"])
    del monitor


@group
def self_managed_snapshots(io):
    """create_self_managed_snap, set_self_managed_snap_write, set_read, rollback_self_managed_snap, remove_self_managed_snap"""
    io.write_full("s", b"kept")
    io.set_xattr("s", "a", b"1")
    first = io.create_self_managed_snap()
    io.set_self_managed_snap_write([first])
    io.write_full("s", b"after the snapshot")
    io.set_xattr("s", "a", b"2")
    io.write_full("young", b"y")
    second = io.create_self_managed_snap()
    io.set_self_managed_snap_write([second, first])
    io.remove_object("s")
    fails(errno.ENOENT, io.read, "s")
    fails(errno.ENOENT, io.stat, "s")
    io.set_read(first)
    expect((io.read("s"), io.get_xattr("s", "a"), io.stat("s")[0]), (b"kept", b"1", 4))
    fails(errno.ENOENT, io.read, "young")
    fails(errno.EROFS, io.write_full, "s", b"x")
    io.set_read(second)
    expect((io.read("s"), io.get_xattr("s", "a")), (b"after the snapshot", b"2"))
    io.set_read(rados.LIBRADOS_SNAP_HEAD)
    io.rollback_self_managed_snap("s", first)
    expect((io.read("s"), io.get_xattr("s", "a")), (b"kept", b"1"))
    io.set_self_managed_snap_write([first])
    io.remove_self_managed_snap(second)
    io.set_self_managed_snap_write([])
    io.remove_self_managed_snap(first)
    io.remove_object("s")
    io.remove_object("young")
    fails(errno.EINVAL, io.create_snap, "of the pool")


@group
def pool_snapshots(_):
    """create_snap, list_snaps, lookup_snap, get_timestamp, set_read, snap_rollback, remove_snap"""
    CLUSTER.create_pool("of-snaps")
    with CLUSTER.open_ioctx("of-snaps") as io:
        io.write_full("s", b"kept")
        io.create_snap("one")
        fails(errno.EEXIST, io.create_snap, "one")
        io.write_full("s", b"after the snapshot")
        snap = io.lookup_snap("one")
        expect([s.name for s in io.list_snaps()], ["one"])
        expect(snap.get_timestamp().year >= 2020, True)
        io.set_read(snap.snap_id)
        expect(io.read("s"), b"kept")
        io.set_read(rados.LIBRADOS_SNAP_HEAD)
        io.snap_rollback("s", "one")
        expect(io.read("s"), b"kept")
        io.remove_snap("one")
        fails(errno.ENOENT, io.lookup_snap, "one")
        fails(errno.EINVAL, io.create_self_managed_snap)
    CLUSTER.delete_pool("of-snaps")


@group
def moved_primaries(_):
    """pg_command of a client whose map is old: the new primary answers"""

    def other_asks(prefix, **words):
        code, out, _ = other.mon_command(json.dumps({"prefix": prefix, "format": "json", **words}), b"")
        expect(code, 0)
        return json.loads(out) if out else None

    with rados.Rados(conffile=CONF) as other:
        pgs = [pg["pgid"] for pg in other_asks("pg ls-by-pool", poolstr=POOL)["pg_stats"]]
        other_asks("osd primary-affinity", id="osd.0", weight=0.0)
        try:
            time.sleep(1)  # until the OSDs have that map
            for pg in pgs:
                question = json.dumps({"prefix": "query", "pgid": pg, "format": "json"})
                code, out, status = CLUSTER.pg_command(pg, question, b"", timeout=30)
                expect((code, status), (0, ""))
                answer = json.loads(out)
                expect(answer["recovery_state"][0]["name"].split("/")[:2], ["Started", "Primary"])
                expect(answer["acting"][0] != 0, True)
        finally:
            other_asks("osd primary-affinity", id="osd.0", weight=1.0)


CONF, POOL = sys.argv[1], sys.argv[2]
CLUSTER = Counted(None)


def main():
    cluster = rados.Rados(conffile=CONF, conf={"rados_osd_op_timeout": "30", "rados_mon_op_timeout": "30"})
    cluster.connect(timeout=30)
    object.__setattr__(CLUSTER, "inner", cluster)
    failed = False
    for function in GROUPS:
        if sys.argv[3:] and function.__name__ not in sys.argv[3:]:
            continue
        io = Counted(cluster.open_ioctx(POOL))
        Counted.calls = 0
        name = function.__name__
        try:
            function(io)
            print(f"ok {name} {Counted.calls}", flush=True)
        except Exception as e:  # whatever it is, the other groups run, too
            failed = True
            line = traceback.extract_tb(e.__traceback__)
            where = [frame.lineno for frame in line if frame.name == name]
            print(f"FAIL {name}: line {where[-1] if where else 0}: {e!r}", flush=True)
        io.close()
    cluster.shutdown()
    sys.exit(1 if failed else 0)


main()
