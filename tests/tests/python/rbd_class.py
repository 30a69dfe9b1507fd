"""Asks the methods of the class rbd of a cluster, with inputs made by hand, and prints what each answers: result and output.

The answers of a real Ceph 16.2.15 are in rbd_class.txt (`rbd_class.py CONF POOL > rbd_class.txt`): another cluster has to
print the same. Times and random names are masked.
"""

import re
import struct
import sys
import time

import rados

HEAD = 2**64 - 2
NONE = 2**64 - 1


def u8(*n):
    return bytes(n)


def u32(*n):
    return b"".join(struct.pack("<I", i) for i in n)


def u64(*n):
    return b"".join(struct.pack("<Q", i & NONE) for i in n)


def text(*words):
    return b"".join(struct.pack("<I", len(w)) + w for w in (w.encode() if isinstance(w, str) else w for w in words))


def section(version, compat, body):
    return u8(version, compat) + u32(len(body)) + body


def namespace(kind, body=b""):
    return section(1, 1, u32(kind) + body)


def parent(pool, image, snap, nspace=""):
    return section(1, 1, u64(pool) + text(nspace, image) + u64(snap))


def child(pool, image, nspace=""):
    return section(2, 1, u64(pool) + text(image, nspace))


def bits(states):
    """A BitVector<2> without checksums."""
    data = bytearray((len(states) + 3) // 4)
    for at, state in enumerate(states):
        data[at // 4] |= state << (6 - 2 * (at % 4))
    return text(section(1, 1, u64(len(states)))) + bytes(data) + text(b"")


def executed(ioctx, oid, name, method, data):
    """The result of a class's method, and its output."""
    try:
        result, out = ioctx.execute(oid, name, method, data, 65536)
    except rados.Error as error:
        return -error.errno, b""
    return result, bytes(out)


def hidden(out, mask):
    """The output with `?` for the bytes of `mask`, which are places that differ from call to call."""
    out = bytearray(out)
    for begin, end in mask:
        out[begin:end] = b"?" * len(out[begin:end])
    return bytes(out)


class Probe:
    def __init__(self, ioctx):
        self.ioctx = ioctx
        self.uuids = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")

    def call(self, oid, method, data=b"", mask=()):
        """One line: the method, its input, the result. `mask` are the places of times in the output."""
        result, out = executed(self.ioctx, oid, "rbd", method, data)
        out = hidden(self.uuids.sub(lambda found: b"?" * 36, out), mask)
        print(f"{oid} {method} {data.hex() or '-'} = {result} {out.hex() or '-'}")

    def values(self, oid):
        """What the object has in its omap: the keys, and values without times."""
        with rados.ReadOpCtx() as op:
            page, _ = self.ioctx.get_omap_vals(op, "", "", 1000)
            try:
                self.ioctx.operate_read_op(op, oid)
            except rados.Error as error:
                return print(f"{oid} has nothing = {-error.errno}")
            found = sorted((key, bytes(value)) for key, value in page)
        for key, value in found:
            shown = "?" if "timestamp" in key else self.masked(key, value).hex() or "-"
            print(f"{oid} has {key} = {shown}")

    def masked(self, key, value):
        value = bytearray(self.uuids.sub(lambda found: b"?" * 36, value))
        if key.startswith("snapshot_"):
            # The time stands before the number of clones and the overlap, which takes 1 or 9 bytes: where the seconds are of today.
            tail = 1 if abs(int.from_bytes(value[-13:-9], "little") - time.time()) < 86400 else 9
            value[-tail - 12:-tail - 4] = b"?" * 8
        return bytes(value)

    def write(self, oid, *runs):
        """Makes all of an object: bytes, and how often each."""
        self.ioctx.write_full(oid, b"".join(bytes([byte]) * count for byte, count in runs))
        print(f"{oid} is {' '.join(f'{byte:02x}*{count}' for byte, count in runs) or '-'}")

    def stat(self, oid):
        try:
            size, _ = self.ioctx.stat(oid)
            print(f"{oid} has {size} bytes: {self.ioctx.read(oid, 64).hex()}")
        except rados.Error as error:
            print(f"{oid} stat = {-error.errno}")


def create(size, features, order=22):
    return u64(size) + u8(order) + u64(features) + text("rbd_data.1f") + u64(-1)


def names_without_an_object(p):
    for method, data in [
        ("snapshot_add", text("s") + u64(5)), ("snapshot_remove", u64(5)), ("snapshot_rename", u64(5) + text("t")),
        ("snapshot_trash_add", u64(5)), ("snapshot_get", u64(5)), ("get_snapshot_name", u64(5)),
        ("get_snapshot_timestamp", u64(5)), ("get_snapcontext", b""), ("snapshot_get_limit", b""),
        ("snapshot_set_limit", u64(NONE)), ("snapshot_set_limit", u64(3)), ("get_protection_status", u64(5)), ("set_protection_status", u64(5) + u8(2)),
        ("parent_get", b""), ("parent_overlap_get", u64(HEAD)), ("parent_attach", parent(1, "p", 4) + u64(9) + u8(0)),
        ("parent_detach", b""), ("get_parent", u64(HEAD)), ("set_parent", u64(1) + text("p") + u64(4, 9)),
        ("remove_parent", b""), ("child_attach", u64(5) + child(1, "c")), ("child_detach", u64(5) + child(1, "c")),
        ("children_list", u64(5)), ("remove_child", u64(1) + text("p") + u64(4) + text("c")),
        ("get_children", u64(1) + text("p") + u64(4)), ("set_size", u64(9)), ("get_size", u64(HEAD)),
        ("set_flags", u64(1, 1)), ("get_flags", u64(HEAD)), ("set_features", u64(1, 1)), ("op_features_get", b""),
        ("op_features_set", u64(1, 1)), ("object_map_snap_add", b""), ("object_map_snap_remove", bits([1, 1])),
        ("assert_snapc_seq", u64(5) + u8(0)), ("assert_snapc_seq", u64(5) + u8(1)), ("assert_snapc_seq", u64(5) + u8(7)),
        ("sparsify", u64(4096) + u8(1)), ("sparsify", u64(4096) + u8(0)),
        ("metadata_get", text("k")), ("metadata_list", text("") + u64(9)), ("metadata_remove", text("k")),
        ("trash_get", text("i")), ("trash_list", text("") + u64(9)), ("trash_remove", text("i")),
        ("namespace_list", text("") + u64(9)), ("namespace_remove", text("n")), ("dir_list", text("") + u64(9)),
        ("mirror_mode_get", b""), ("mirror_uuid_get", b""), ("mirror_image_get", text("i")), ("migration_get", b""),
        ("group_dir_list", text("") + u64(9)), ("image_group_get", b""), ("get_create_timestamp", b""),
    ]:
        p.call("nothing", method, data)


def snapshots(p):
    p.call("h", "create", create(8 << 20, 0x3D))
    add = lambda name, snap, more=b"": p.call("h", "snapshot_add", text(name) + u64(snap) + more)
    add("a", 4)
    add("a", 5)
    add("b", 4)
    add("b", 3)
    add("b", 6, namespace(0))
    add("b", 7, namespace(9))
    add("b", 7, b"x")
    p.call("h", "snapshot_add", b"x")
    p.call("h", "set_size", u64(4 << 20))
    p.call("h", "set_flags", u64(3, 3))
    add("c", 9)
    p.values("h")
    for snap in [4, 6, 9, 5, HEAD, NONE]:
        name = 6 + 8 + 10 + 4 + 1 + 8
        p.call("h", "snapshot_get", u64(snap), [(name, name + 8)])
        p.call("h", "get_snapshot_name", u64(snap))
        p.call("h", "get_snapshot_timestamp", u64(snap), [(0, 8)])
        p.call("h", "get_snapshot_namespace", u64(snap))
        p.call("h", "get_size", u64(snap))
        p.call("h", "get_features", u64(snap) + u8(1))
        p.call("h", "get_flags", u64(snap))
        p.call("h", "get_protection_status", u64(snap))
        p.call("h", "parent_overlap_get", u64(snap))
        p.call("h", "get_parent", u64(snap))
        p.call("h", "children_list", u64(snap))
        p.call("h", "set_flags", u64(1, 1, snap))
    p.call("h", "get_snapcontext")
    p.call("h", "get_snapcontext", b"more")
    p.call("h", "snapshot_rename", u64(4) + text("b"))
    p.call("h", "snapshot_rename", u64(4) + text("a"))
    p.call("h", "snapshot_rename", u64(5) + text("b"))
    p.call("h", "snapshot_rename", u64(5) + text("z"))
    p.call("h", "snapshot_rename", u64(4) + text("d"))
    p.call("h", "snapshot_rename", u64(4))
    for limit in [2, 3, 0, NONE, NONE, 3]:
        p.call("h", "snapshot_set_limit", u64(limit))
        p.call("h", "snapshot_get_limit")
    add("e", 10)
    p.call("h", "snapshot_set_limit", b"")
    for snap in [4, 5, HEAD, NONE]:
        for status in [2, 1, 3, 0]:
            p.call("h", "set_protection_status", u64(snap) + u8(status))
            p.call("h", "get_protection_status", u64(snap))
            if status == 2:
                p.call("h", "snapshot_remove", u64(snap))
                p.call("h", "snapshot_trash_add", u64(snap))
    p.call("h", "snapshot_remove", u64(6))
    p.call("h", "snapshot_remove", u64(6))
    p.call("h", "snapshot_remove", b"")
    p.call("h", "set_flags", u64(1, 1, 6))
    p.values("h")


def trash(p):
    p.call("h", "snapshot_trash_add", u64(9))
    p.call("h", "snapshot_trash_add", u64(9))
    p.call("h", "op_features_get")
    p.call("h", "get_features", u64(HEAD) + u8(0))
    p.call("h", "child_attach", u64(9) + child(1, "c"))
    p.values("h")
    p.call("h", "snapshot_remove", u64(4))
    p.call("h", "op_features_get")
    p.call("h", "snapshot_remove", u64(9))
    p.call("h", "op_features_get")
    p.call("h", "get_features", u64(HEAD) + u8(0))
    for pair in [(1, 1), (16, 16), (2, 6), (0, 3), (4, 0)]:
        p.call("h", "op_features_set", u64(*pair))
        p.call("h", "op_features_get")
    p.values("h")


def parents(p):
    p.call("plain", "create", create(8 << 20, 0))
    for image in ["plain", "clone", "shallow", "nothing"]:
        if image not in ("plain", "nothing"):
            p.call(image, "create", create(8 << 20, 0x3D if image == "clone" else 1))
        attach = lambda spec, overlap, again=0: p.call(image, "parent_attach", spec + u64(overlap) + u8(again))
        p.call(image, "parent_get")
        p.call(image, "parent_overlap_get", u64(HEAD))
        p.call(image, "set_protection_status", u64(1) + u8(2))
        p.call(image, "snapshot_add", text("r") + u64(3))
        attach(parent(-1, "p", 4), 4096)
        attach(parent(1, "", 4), 4096)
        attach(parent(1, "p", HEAD), 4096)
        attach(parent(1, "p", 4), 0)
        attach(parent(1, "p", 4), 16 << 20)
        attach(parent(1, "p", 4), 16 << 20)
        attach(parent(1, "q", 4), 4096)
        p.call(image, "parent_get")
        p.call(image, "parent_overlap_get", u64(HEAD))
        p.call(image, "get_parent", u64(HEAD))
        p.call(image, "snapshot_add", text("s") + u64(4))
        p.call(image, "set_size", u64(4 << 20))
        p.call(image, "parent_overlap_get", u64(HEAD))
        p.call(image, "set_size", u64(8 << 20))
        p.call(image, "snapshot_add", text("t") + u64(5))
        for snap in [HEAD, 3, 4, 5, 6]:
            p.call(image, "parent_overlap_get", u64(snap))
            p.call(image, "get_parent", u64(snap))
        p.values(image)
        p.call(image, "parent_detach")
        p.call(image, "parent_get")
        for snap in [HEAD, 4, 5]:
            p.call(image, "parent_overlap_get", u64(snap))
            p.call(image, "get_parent", u64(snap))
        p.call(image, "parent_detach")
        p.values(image)
        attach(parent(1, "q", 4), 4096)
        attach(parent(1, "p", 4), 4096)
        p.call(image, "snapshot_remove", u64(4))
        p.call(image, "parent_detach")
        p.call(image, "snapshot_remove", u64(5))
        p.values(image)
        p.call(image, "snapshot_remove", u64(3))
        attach(parent(1, "r", 4, "space"), 4096)
        attach(parent(1, "s", 5), 4096, 1)
        attach(parent(1, "r", 4, "space"), 4096, 1)
        p.call(image, "get_parent", u64(HEAD))
        p.call(image, "parent_get")
        p.call(image, "remove_parent")
        p.call(image, "parent_detach")
        p.call(image, "set_parent", u64(1) + text("p") + u64(4, 4096))
        p.call(image, "set_parent", u64(1) + text("p") + u64(4, 4096))
        p.call(image, "remove_parent")
        p.call(image, "remove_parent")
        p.call(image, "parent_attach", b"x")
        if image != "nothing":
            p.values(image)


def children(p):
    p.call("up", "create", create(8 << 20, 1))
    p.call("up", "snapshot_add", text("s") + u64(4))
    p.call("up", "snapshot_add", text("t") + u64(5))
    for snap, of in [(4, child(1, "b")), (4, child(1, "a")), (4, child(1, "a")), (4, child(1, "a", "n")), (9, child(1, "a")),
                     (5, child(2, "a")), (HEAD, child(1, "a"))]:
        p.call("up", "child_attach", u64(snap) + of)
    for snap in [4, 5, 6, HEAD]:
        p.call("up", "children_list", u64(snap))
    p.values("up")
    p.call("up", "snapshot_remove", u64(4))
    p.call("up", "snapshot_trash_add", u64(4))
    p.call("up", "snapshot_remove", u64(4))
    for snap, of in [(4, child(1, "c")), (4, child(1, "a")), (4, child(1, "a")), (6, child(1, "a")), (5, child(2, "a")),
                     (4, child(1, "b"))]:
        p.call("up", "child_detach", u64(snap) + of)
        p.call("up", "op_features_get")
    p.call("up", "child_detach", u64(4) + child(1, "a", "n"))
    p.call("up", "children_list", u64(4))
    p.call("up", "snapshot_remove", u64(4))
    p.values("up")
    key = u64(1) + text("p") + u64(4)
    p.call("rbd_children", "get_children", key)
    for method, image in [("add_child", "b"), ("add_child", "a"), ("add_child", "a"), ("remove_child", "c")]:
        p.call("rbd_children", method, key + text(image))
    p.call("rbd_children", "get_children", key)
    p.call("rbd_children", "get_children", u64(2) + text("p") + u64(4))
    for image in ["a", "a", "b", "b"]:
        p.call("rbd_children", "remove_child", key + text(image))
        p.call("rbd_children", "get_children", key)
    p.call("rbd_children", "add_child", key)


def features(p):
    for image, first in [("f", 0x3D), ("g", 0x101)]:
        p.call(image, "create", create(8 << 20, first))
        for value, mask in [(0, 4), (4, 4), (0, 0x38), (0x20, 0x20), (0x40, 0x40), (1, 1), (0, 1), (2, 2), (0, 0x100),
                            (0x100, 0x100), (0x200, 0x200), (0, 0x200), (1 << 40, 1 << 40), (0, 1 << 40), (0x800, 0x800)]:
            p.call(image, "set_features", u64(value, mask))
            p.call(image, "get_features", u64(HEAD) + u8(0))
    p.call("f", "get_features", u64(HEAD))
    p.call("f", "get_all_features")
    p.call("e", "create", create(8 << 20, 0x41))
    p.call("e", "get_features", u64(HEAD) + u8(1))


def object_maps(p):
    p.call("map", "object_map_load")
    p.write("map")
    for method, data in [("object_map_load", b""), ("object_map_update", u64(0, 1) + u8(1) + u8(0)),
                         ("object_map_snap_remove", bits([1])), ("object_map_resize", u64(3) + u8(1))]:
        p.call("map", method, data)
    p.call("map", "object_map_save", bits([1, 0, 1, 3, 2, 1, 1]))
    p.call("map", "object_map_snap_add")
    p.call("map", "object_map_update", u64(0, 2) + u8(1) + u8(0))
    p.call("map", "object_map_snap_remove", bits([1, 1, 1, 3, 1]))
    p.call("map", "object_map_snap_remove", b"x")
    p.call("map", "object_map_snap_remove", bits([]))
    p.call("map", "object_map_snap_add")
    p.call("map", "object_map_update", u64(3, 9) + u8(1) + u8(0))


def data(p):
    p.call("d1", "copyup", b"parent")
    p.stat("d1")
    p.call("d1", "copyup", b"other parent")
    p.stat("d1")
    p.call("d2", "copyup", b"")
    p.stat("d2")
    p.call("d3", "sparse_copyup", u32(2) + u64(4, 2, 10, 3) + text(b"abcde"))
    p.stat("d3")
    p.call("d3", "sparse_copyup", u32(1) + u64(4, 2) + text(b"xy"))
    p.stat("d3")
    p.call("d4", "sparse_copyup", u32(0) + text(b""))
    p.stat("d4")
    p.call("d5", "sparse_copyup", u32(1) + u64(4, 20) + text(b"short"))
    p.stat("d5")
    p.call("d5", "sparse_copyup", b"x")
    contents = [[(0, 16384)], [(97, 4096), (0, 8192)], [(0, 8192), (98, 100)], [], [(97, 10)]]
    for n, content in enumerate(contents):
        for may_go in (0, 1):
            oid = f"s{n}{may_go}"
            p.write(oid, *content)
            p.call(oid, "sparsify", u64(4096) + u8(may_go))
            p.stat(oid)
    # Of steps of no bytes a real Ceph's OSD never ends.
    p.call("s10", "sparsify", b"")


def snapshot_sequences(p, ioctx):
    p.write("seq", (120, 1))
    for state in (0, 1, 2):
        for seq in (0, 1, 5):
            p.call("seq", "assert_snapc_seq", u64(seq) + u8(state))
    first = ioctx.create_self_managed_snap()
    ioctx.set_self_managed_snap_write([first])
    ioctx.write_full("seq", b"y")
    ioctx.set_self_managed_snap_write([])
    for state in (0, 1):
        for seq in (0, first - 1, first, first + 1):
            try:
                result = ioctx.execute("seq", "rbd", "assert_snapc_seq", u64(seq) + u8(state))[0]
            except rados.Error as error:
                result = -error.errno
            print(f"seq assert_snapc_seq {'first' if seq else 0}{seq - first if seq else ''} {state} = {result}")
    ioctx.remove_self_managed_snap(first)


def main(conf, pool, groups):
    cluster = rados.Rados(conffile=conf, rados_id="admin")
    cluster.connect(timeout=30)
    ioctx = cluster.open_ioctx(pool)
    ioctx.set_namespace("rbd-class")
    p = Probe(ioctx)
    for oid in [o.key for o in ioctx.list_objects()]:
        ioctx.remove_object(oid)
    for group in [names_without_an_object, snapshots, trash, parents, children, features, object_maps, data]:
        if not groups or group.__name__ in groups:
            print(f"# {group.__name__}")
            group(p)
    if not groups or "snapshot_sequences" in groups:
        print("# snapshot_sequences")
        snapshot_sequences(p, ioctx)
    for oid in [o.key for o in ioctx.list_objects()]:
        ioctx.remove_object(oid)
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
