"""Asks the methods of the classes numops, refcount, version and log of a cluster, with inputs made by hand, and prints what each answers and what
it leaves in the object's omap and xattrs.

The answers of a real Ceph 16.2.15 are in classes.txt (`classes.py CONF POOL > classes.txt`): another cluster has to print the same.
"""

import re
import sys

import rados

from rbd_class import executed, hidden, section, text, u8, u32, u64

class Probe:
    def __init__(self, ioctx):
        self.ioctx = ioctx

    def call(self, oid, method, data=b"", mask=()):
        """One line: the method, its input, the result and the output, with `?` for the bytes of `mask`."""
        name, method = method.split(".")
        result, out = executed(self.ioctx, oid, name, method, data)
        shown = data.hex() or "-" if len(data) < 200 else f"{len(data)} bytes"
        print(f"{oid} {name}.{method} {shown} = {result} {hidden(out, mask).hex() or '-'}")

    def has(self, oid):
        """The omap and the xattrs of an object."""
        with rados.ReadOpCtx() as op:
            page, _ = self.ioctx.get_omap_vals(op, "", "", 1000)
            try:
                self.ioctx.operate_read_op(op, oid)
            except rados.Error as error:
                return print(f"{oid} has nothing = {-error.errno}")
            for key, value in page:
                print(f"{oid} omap {key.encode('utf8', 'surrogateescape').hex()} = {bytes(value).hex() or '-'}")
        for name, value in sorted(self.ioctx.get_xattrs(oid)):
            print(f"{oid} xattr {name} = {bytes(value).hex() or '-'}")
        print(f"{oid} size = {self.ioctx.stat(oid)[0]}")

    def listed(self, oid, method="list", **arguments):
        """The entries of a log, or what is known of it. The key of an entry has the number of a write in it, which is of as many digits as it
        happens to be: it is left out."""
        try:
            out = self.ioctx.execute(oid, "log", method, listed(**arguments) if method == "list" else section(1, 1, b""), 1 << 20)[1]
        except rados.Error as error:
            return print(f"{oid} {method} {arguments} = {-error.errno}")
        reader = Reader(out).section()
        if method == "info":
            header = reader.section()
            return print(f"{oid} info = {header.key()} {header.time()}")
        entries = [reader.entry() for _ in range(reader.u32())]
        print(f"{oid} list {arguments} = {len(entries)} {entries[:3]} {reader.key()} {reader.rest.hex()}")


class Reader:
    """Takes an answer apart."""

    def __init__(self, rest):
        self.rest = bytes(rest)

    def bytes(self, count):
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def u32(self):
        return int.from_bytes(self.bytes(4), "little")

    def text(self):
        return self.bytes(self.u32())

    def section(self):
        self.bytes(2)
        return Reader(self.text())

    def time(self):
        return self.u32(), self.u32()

    def key(self):
        return re.sub(rb"(1_\d{10}\.\d{6}_)\d+\.", rb"\1N.", self.text())

    def entry(self):
        entry = self.section()
        return entry.text(), entry.text(), entry.time(), entry.text(), entry.key()


def numops(p):
    for method in ("add", "mul"):
        call = lambda key, value, m=method: p.call(f"n-{m}", f"numops.{m}", text(key, value))
        for value in ("2", "3.5", "-7.25", "1e3", "0.1", "0.2", "+4", ".5", "5.", " 5", "5 ", "5x", "x", "", " ", "-0"):
            call("k", value)
        p.has(f"n-{method}")
        call("", "1")
        call("other", "1.5")
        for bad in (b"", text("k"), text("k") + u32(9) + b"1", text("k", "1", "more"), u32(5)):
            p.call(f"n-{method}", f"numops.{method}", bad)
        p.has(f"n-{method}")
        p.call("n-gone", f"numops.{method}", text("k", "x"))
        p.has("n-gone")
    with rados.WriteOpCtx() as op:
        p.ioctx.set_omap(op, ("k", "bad", "empty", "long"), (b"12 3", b"word", b"", b"2" * 400))
        p.ioctx.operate_write_op(op, "n-stored")
    for key in ("k", "bad", "empty", "long"):
        p.call("n-stored", "numops.add", text(key, "1"))
        p.call("n-stored", "numops.mul", text(key, "2"))
    p.has("n-stored")
    for first, second in (("1.5", "1e15"), ("1e16", "1"), ("0.1", "0.2"), ("1", "-1"), ("1e22", "1e21"), ("3", "1e-7"), ("100000", "1"),
                          ("999999.5", "0"), ("1e-5", "0"), ("1e-4", "0"), ("1.25e-5", "0"),
                          ("123456789.123456789", "0"), ("0.123456789123456789", "0"), ("12345678901234567890", "0"), ("1234567890.5", "0"), ("12345678901.5", "0"),
                          ("1e300", "1e300"), ("1e-310", "0"), ("1e999", "0"), ("-1e999", "0"), ("nan", "1"), ("99999999999", "1")):
        p.call("n-sums", "numops.add", text(f"{first} {second}", first))
        p.call("n-sums", "numops.add", text(f"{first} {second}", second))
    p.has("n-sums")


def tag(word, implicit=None):
    return section(1, 1, text(word) + (b"" if implicit is None else u8(implicit)))


def refcount(p):
    read = lambda oid, implicit=0: p.call(oid, "refcount.read", section(1, 1, u8(implicit)))
    for implicit in (0, 1):
        oid = f"r-{implicit}"
        read(oid, implicit)
        p.call(oid, "refcount.put", tag("a", implicit))
        p.call(oid, "refcount.get", tag("a", implicit))
        p.ioctx.write_full(oid, b"")
        for word in ("a", "b", "a", "", "c"):
            p.call(oid, "refcount.get", tag(word, implicit))
            p.has(oid)
        for other in (0, 1):
            read(oid, other)
        for word in ("x", "b", "b", "", "c"):
            p.call(oid, "refcount.put", tag(word, implicit))
            p.has(oid)
            read(oid, implicit)
        p.call(oid, "refcount.get", tag("b", implicit))
        p.has(oid)
        p.call(oid, "refcount.put", tag("a", implicit))
        p.has(oid)
        p.call(oid, "refcount.put", tag("", implicit))
        p.call(oid, "refcount.get", tag("d", implicit))
        p.call(oid, "refcount.put", tag("b", implicit))
        p.has(oid)
    # An object that nobody counted.
    for implicit in (0, 1):
        for get in (0, 1):
            oid = f"r-plain-{implicit}-{get}"
            p.ioctx.write_full(oid, b"bytes")
            read(oid, implicit)
            if get:
                p.call(oid, "refcount.get", tag("new", implicit))
            p.has(oid)
            p.call(oid, "refcount.put", tag("foreign", implicit))
            p.has(oid)
            p.call(oid, "refcount.put", tag("new", implicit))
            p.has(oid)
            p.call(oid, "refcount.put", tag("other", implicit))
            p.has(oid)
    words = lambda *names: section(1, 1, u32(len(names)) + text(*names))
    for names in (("a", "b", "a"), ("z",), ()):
        p.call("r-set", "refcount.set", words(*names))
        p.has("r-set")
        read("r-set")
        read("r-set", 1)
    p.call("r-set-gone", "refcount.set", words())
    p.has("r-set-gone")
    for method in ("get", "put", "set", "read"):
        for bad in (b"", b"\x01", section(1, 1, b""), section(2, 2, text("t") + u8(0)), section(2, 1, text("t") + u8(0) + b"more"), tag("t"), section(1, 1, u32(9))):
            p.call("r-bad", f"refcount.{method}", bad)
    p.has("r-bad")
    p.ioctx.set_xattr("r-stored", "refcount", b"no")
    for method, data in (("get", tag("t", 0)), ("put", tag("t", 0)), ("read", section(1, 1, u8(0))), ("set", words("a"))):
        p.call("r-stored", f"refcount.{method}", data)
    p.has("r-stored")
    # Of the first version, without retired tags.
    p.ioctx.set_xattr("r-old", "refcount", section(1, 1, u32(1) + text("t") + u8(1)))
    read("r-old")
    p.call("r-old", "refcount.get", tag("u", 0))
    p.has("r-old")


def version(n, word):
    return section(1, 1, u64(n) + text(word))


def condition(n, word, kind):
    return section(1, 1, version(n, word) + u32(kind))


def conditions(n, word, *wanted):
    return section(1, 1, version(n, word) + u32(len(wanted)) + b"".join(wanted))


def versions(p):
    masked = ((24, 48),)  # a tag that is drawn
    p.call("v-gone", "version.read")
    p.call("v-gone", "version.check_conds", conditions(0, "", condition(1, "t", 1)))
    p.call("v-gone", "version.check_conds", conditions(0, ""))
    p.has("v-gone")
    p.ioctx.write_full("v", b"bytes")
    p.call("v", "version.read", b"ignored")
    p.call("v", "version.check_conds", conditions(0, "", condition(0, "", 1)))
    p.call("v", "version.set", section(1, 1, version(7, "mine")))
    p.call("v", "version.read")
    p.has("v")
    for kind in range(9):
        for n in (6, 7, 8):
            for word in ("mine", "other"):
                p.call("v", "version.check_conds", conditions(0, "", condition(n, word, kind)))
    both = condition(7, "mine", 1), condition(9, "mine", 2)
    p.call("v", "version.check_conds", conditions(0, "", *both))
    p.call("v", "version.check_conds", conditions(0, "", both[0], both[0]))
    inc = lambda oid, *wanted: p.call(oid, "version.inc", conditions(0, "", *wanted))
    inc("v")
    p.call("v", "version.read")
    inc("v", condition(99, "mine", 1))
    p.call("v", "version.read")
    p.call("v", "version.inc", conditions(50, "own"))
    p.call("v", "version.read")
    for n, kind in ((99, 1), (9, 1), (10, 1), (50, 1), (1, 3), (51, 1)):
        p.call("v", "version.inc_conds", conditions(0, "", condition(n, "mine", kind)))
        p.call("v", "version.read")
    p.call("v", "version.set", section(1, 1, version(0, "")))
    p.call("v", "version.read")
    p.has("v")
    inc("v")
    p.call("v", "version.read", mask=masked)
    for first in ("inc", "inc_conds"):
        p.call(f"v-{first}", f"version.{first}", conditions(0, ""))
        p.call(f"v-{first}", "version.read", mask=((22, 99),))
    p.call("v-conds", "version.inc_conds", conditions(0, "", condition(0, "", 1)))
    p.call("v-conds", "version.read", mask=((22, 99),))
    p.call("v-set", "version.set", section(1, 1, version(2**64 - 1, "t" * 40)))
    inc("v-set")
    p.call("v-set", "version.read")
    for method in ("set", "inc", "inc_conds", "check_conds"):
        for bad in (b"", b"\x01", section(1, 1, b""), section(2, 2, version(1, "t") + u32(0)), section(2, 1, version(1, "t") + u32(0) + b"more"), section(1, 1, version(1, "t") + u32(9))):
            p.call("v-bad", f"version.{method}", bad)
    p.ioctx.set_xattr("v-stored", "ceph.objclass.version", b"no")
    for method, data in (("read", b""), ("inc", conditions(0, "")), ("check_conds", conditions(0, "")), ("set", section(1, 1, version(1, "t")))):
        p.call("v-stored", f"version.{method}", data)
    p.has("v-stored")


def when(sec, nsec=0):
    return u32(sec, nsec)


def entry(sec, nsec, group, name, data, ident=""):
    return section(2, 1, text(group, name) + when(sec, nsec) + text(data, ident))


def added(*entries, rising=1):
    return section(2, 1, u32(len(entries)) + b"".join(entries) + u8(rising))


def listed(start=(0, 0), marker="", end=(0, 0), most=1000):
    return section(1, 1, when(*start) + text(marker) + when(*end) + u32(most & 0xFFFFFFFF))


def trimmed(start=(0, 0), end=(0, 0), first="", last=""):
    return section(2, 1, when(*start) + when(*end) + text(first, last))


def logs(p):
    nothing = section(1, 1, b"")
    for method, data in (("info", nothing), ("list", listed()), ("trim", trimmed())):
        p.call("l", f"log.{method}", data)
    p.call("l", "log.add", added())
    p.has("l")
    p.call("l", "log.info", nothing)
    p.call("l", "log.add", added(entry(10, 5000, "g", "n", b"bytes")))
    p.listed("l", "info")
    p.listed("l")
    p.call("l", "log.add", added(*(entry(second, 999_999_999, "group", f"name{second}", bytes([second])) for second in (20, 15, 30))))
    p.call("l", "log.add", added(*(entry(second, 1, "group", f"own{second}", b"", f"id{second}") for second in (12, 40)), rising=0))
    p.call("l", "log.add", added(entry(35, 2000, "group", "late", b""), entry(36, 3000, "group", "later", b""), rising=0))
    p.call("l", "log.add", added(entry(38, 2000, "group", "rising", b"")))
    p.listed("l", "info")
    for arguments in ({}, {"most": 2}, {"most": 0}, {"most": -1}, {"most": 5000}, {"start": (15, 0)}, {"start": (15, 0), "end": (30, 0)}, {"end": (20, 0)},
                      {"start": (30, 999_999_999)}, {"start": (50, 0)}, {"start": (30, 0), "end": (20, 0)}, {"start": (5, 0), "end": (5, 0)}):
        p.listed("l", **arguments)
    for marker in ("1_", "2", "1_0000000030.000000_", "x", "1_0000000020.999999"):
        p.listed("l", marker=marker)
        p.listed("l", marker=marker, end=(25, 0))
        p.listed("l", marker=marker, start=(1, 0), end=(25, 0))
    p.call("l", "log.trim", trimmed(end=(1, 0)))
    p.call("l", "log.trim", trimmed(start=(14, 0), end=(16, 0)))
    p.call("l", "log.trim", trimmed(first="1_00000000200", last="1_0000000025"))
    p.call("l", "log.trim", trimmed(last="1_0000000033"))
    p.listed("l")
    p.call("l", "log.trim", trimmed())
    p.call("l", "log.trim", trimmed(end=(2**31, 0)))
    p.call("l", "log.trim", trimmed(end=(2**31, 0)))
    p.has("l")
    p.listed("l", "info")
    p.listed("l")
    p.call("l-many", "log.add", added(*(entry(100 + n, 5000, "g", f"n{n}", b"") for n in range(1500))))
    p.listed("l-many", most=2000)
    p.listed("l-many", start=(1190, 0), end=(1195, 0), most=5)
    p.listed("l-many", start=(1190, 0), end=(1195, 0), most=4)
    for bounds in ({"start": (110, 0), "end": (112, 5000)}, {"start": (110, 0), "end": (112, 5000)}, {"start": (115, 0), "end": (116, 4999)},
                   {"first": "1_0000000120", "last": "1_0000000122.0000"}, {"end": (1300, 0)}, {"end": (1300, 0)}):
        p.call("l-many", "log.trim", trimmed(**bounds))
        for second in (0, 109, 114, 119):
            p.listed("l-many", start=(second, 0), most=3)
    for method in ("add", "list", "trim", "info"):
        for bad in (b"", b"\x01", section(1, 1, b""), section(3, 3, b""), section(1, 1, u32(1) + entry(1, 2, "g", "n", b"x")),
                    section(1, 1, when(1) + when(2)), section(1, 1, u32(1) + section(1, 1, text("g", "n") + when(7) + text(b"d")))):
            if (method, bad[:1]) == ("info", b"\x01"):
                continue
            p.call("l-bad", f"log.{method}", bad)
        p.listed("l-bad")
    p.listed("l-bad", "info")
    with rados.WriteOpCtx() as op:
        p.ioctx.set_omap(op, ("1_0000000001.000000_a", "1_0000000002.000000_b"), (b"no", entry(2, 0, "g", "n", b"x")))
        p.ioctx.operate_write_op(op, "l-stored")
    p.listed("l-stored")
    p.listed("l-stored", "info")


GROUPS = [numops, refcount, versions, logs]


def main(conf, pool):
    cluster = rados.Rados(conffile=conf)
    cluster.connect(timeout=20)
    p = Probe(cluster.open_ioctx(pool))
    for group in GROUPS:
        print(f"# {group.__name__}")
        group(p)
    cluster.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
