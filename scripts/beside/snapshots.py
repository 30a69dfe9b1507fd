"""The parts of scripts/snapshots."""
import json, os, struct, time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import rbd

from beside import Cluster, in_turns, report, run, wanted

ROUNDS, SECS, SNAPS, TRIM_SECS = (int(os.environ[name]) for name in ("ROUNDS", "SECS", "SNAPS", "TRIM_SECS"))
MIB, BLOCK, OBJECT = 1 << 20, os.urandom(4096), 4 << 20
# Of the programs that are run.
os.environ["CEPH_ARGS"] = "--rbd_cache=false"
if (os.cpu_count() or 1) > 1:
    os.sched_setaffinity(0, {1})

class Side(Cluster):
    """A cluster of one OSD."""

    def __init__(self, name):
        super().__init__(name, op_timeout_s=60, rbd_cache="false")
        self.find_processes()

    def cpu_us(self):
        return self.cpu_s([0]) * 1e6

    def timed(self, figures, work):
        """Latencies of what `work` yields as it is done, and the OSD's CPU time for each."""
        cpu, latencies, last = self.cpu_us(), [], time.perf_counter()
        for _ in work:
            now = time.perf_counter()
            latencies.append((now - last) * 1e6)
            last = time.perf_counter()
        cpu = self.cpu_us() - cpu
        latencies.sort()
        figures["median us"] = median(latencies)
        figures["p99 us"] = latencies[int(0.99 * (len(latencies) - 1))]
        figures["OSD CPU us/op"] = cpu / len(latencies)

    def fio(self, image, rw="randread"):
        cpu = self.cpu_us()
        os.environ["CEPH_CONF"] = self.conf
        out = run("fio", "--output-format=json", "--name=job", "--ioengine=rbd", "--clientname=admin", "--pool=bench", f"--rbdname={image}",
                  f"--rw={rw}", "--bs=4k", "--iodepth=16", "--time_based", f"--runtime={SECS}")
        cpu = self.cpu_us() - cpu
        side = json.loads(out[out.index("{"):])["jobs"][0]["read" if "read" in rw else "write"]
        return {"IOPS": side["iops"], "median us": side["clat_ns"]["percentile"]["50.000000"] / 1e3,
                "p99 us": side["clat_ns"]["percentile"]["99.000000"] / 1e3, "OSD CPU us/op": cpu / max(side["total_ios"], 1)}

    def write_each(self, names, offset):
        for name in names:
            self.io.write(name, BLOCK, offset)
            yield

    def new_snap(self, snaps):
        snaps.insert(0, self.io.create_self_managed_snap())
        self.io.set_self_managed_snap_write(snaps)

    def forget(self, snaps):
        self.io.set_self_managed_snap_write([])
        with ThreadPoolExecutor(32) as pool:
            list(pool.map(self.io.remove_self_managed_snap, snaps))

    def clones(self, name):
        listed = json.loads(run("rados", "-c", self.conf, "-p", "bench", "listsnaps", name, "--format", "json"))
        return sum(clone["id"] != "head" for clone in listed["clones"])

def writes(side):
    names, snaps, figures = [f"written.{n}" for n in range(32)], [], {}
    for name in names:
        side.io.write_full(name, os.urandom(OBJECT))
    for kind in ("no snapshot", "first after a snapshot", "later"):
        figures[kind] = {}
    side.timed(figures["no snapshot"], (done for at in range(4) for done in side.write_each(names, at * 65536)))
    parts = {"first after a snapshot": [], "later": []}
    for turn in range(4):
        side.new_snap(snaps)
        for place, kind in enumerate(parts):
            part = {}
            side.timed(part, side.write_each(names, MIB * (1 + place) + turn * 65536))
            parts[kind].append(part)
    for kind, all_parts in parts.items():
        figures[kind] = {figure: median(part[figure] for part in all_parts) for figure in all_parts[0]}
    side.forget(snaps)
    for name in names:
        side.io.remove_object(name)
    return figures

def fill(side, image, mib):
    with rbd.Image(side.io, image) as opened:
        for at in range(mib):
            opened.write(os.urandom(MIB), at * MIB)

def clone(side):
    images, size_mib = rbd.RBD(), 128
    if "parent" not in images.list(side.io):
        images.create(side.io, "parent", size_mib * MIB, 22, old_format=False, features=1)
        fill(side, "parent", size_mib)
        with rbd.Image(side.io, "parent") as parent:
            parent.create_snap("kept")
            parent.protect_snap("kept")
        images.clone(side.io, "parent", "kept", side.io, "child", 1)
    return {"random reads of the image": side.fio("parent"), "random reads of the clone": side.fio("child")}

def text(word):
    return struct.pack("<I", len(word)) + word.encode()

def many(side):
    """The snapshots are made as librbd makes them, but with their ids fetched in parallel: a monitor gives out only a few a second."""
    images, figures = rbd.RBD(), {"snapshots": {}, "write under them": {}, "first write after one more": {}, "later": {}}
    images.create(side.io, "many", 4 * OBJECT, 22, old_format=False, features=1)
    fill(side, "many", 4 * OBJECT // MIB)
    with rbd.Image(side.io, "many") as image:
        prefix, header = image.block_name_prefix(), f"rbd_header.{image.id()}"
    names = [f"{prefix}.{n:016x}" for n in range(4)]
    with ThreadPoolExecutor(32) as pool:
        ids = sorted(pool.map(lambda _: side.io.create_self_managed_snap(), range(SNAPS)))

    def write_under_each():
        for n, snap in enumerate(ids):
            side.io.execute(header, "rbd", "snapshot_add", text(f"snap{n}") + struct.pack("<Q", snap))
            side.io.set_self_managed_snap_write(ids[n::-1])
            for done in [side.io.aio_write(name, BLOCK, n % 1024 * 4096) for name in names]:
                done.wait_for_complete()
            yield

    side.timed(figures["write under them"], write_under_each())
    opened = []
    for _ in range(5):
        begin = time.perf_counter()
        rbd.Image(side.io, "many", read_only=True).close()
        opened.append((time.perf_counter() - begin) * 1e3)
    figures["snapshots"]["open ms"] = median(opened)
    snaps, first, later = ids[::-1], [], []
    for turn in range(8):
        side.new_snap(snaps)
        for parts, at in ((first, 0), (later, MIB)):
            parts.append({})
            side.timed(parts[-1], side.write_each(names, at + turn * 4096))
    for kind, parts in (("first write after one more", first), ("later", later)):
        figures[kind] = {figure: median(part[figure] for part in parts) for figure in parts[0]}
    figures["random reads of it"] = side.fio("many")
    before = sum(map(side.clones, names))
    cpu, begin = side.cpu_us(), time.monotonic()
    for snap in ids:
        side.io.execute(header, "rbd", "snapshot_remove", struct.pack("<Q", snap))
    side.forget(snaps)
    removed = time.monotonic()
    while (left := sum(map(side.clones, names))) and time.monotonic() - removed < TRIM_SECS:
        time.sleep(0.2)
    end = time.monotonic()
    figures["snapshots"].update({"s to remove them": removed - begin, "s more until they are trimmed": end - removed,
                                 "clones before": before, "clones left": left, "clones trimmed a second": (before - left) / (end - begin),
                                 "OSD CPU us a clone": (side.cpu_us() - cpu) / max(before - left, 1)})
    images.remove(side.io, "many")
    return figures

PARTS = {"writes": writes, "clone": clone, "many": many}
names = wanted(PARTS)
# An image with many snapshots takes most of the time: two rounds of it.
rounds = in_turns(names, PARTS, [Side("carmine"), Side("ceph")], lambda part: min(ROUNDS, 2) if part == "many" else ROUNDS)
report("snapshots", rounds, peer_opts=os.environ.get("PEER_OPTS", ""))
