"""Writes, discards, snapshots, rollbacks and clones of an image, drawn from a seed and compared with a model in memory.

usage: rbd_random.py CEPH.CONF POOL SEED SECONDS FEATURES
FEATURES are librbd's bits. Prints how often each step was taken; a difference ends the run with exit code 1 and the steps that led there.
"""

import collections
import random
import sys
import time

import rados
import rbd

MIB = 1 << 20
SIZE = 12 * MIB
ORDER = 20
# A step may be this long; an image may have this many snapshots and clones.
BYTES_MAX, SNAPS_MAX, CLONES_MAX = 192 << 10, 6, 3


class Wrong(Exception):
    """The image and the model differ."""


def compare(what, found, wanted):
    if found == wanted:
        return
    if len(found) != len(wanted):
        raise Wrong(f"{what} has {len(found)} bytes, not {len(wanted)}")
    at = next(i for i in range(len(wanted)) if found[i] != wanted[i])
    differing = sum(a != b for a, b in zip(found, wanted))
    raise Wrong(f"{what} differs in {differing} bytes, the first at {at}: {found[at:at + 8].hex()}, not {wanted[at:at + 8].hex()}")


class Model:
    """An image, what it holds, and what its snapshots hold."""

    def __init__(self, run, name, content):
        self.run, self.name = run, name
        self.content = bytearray(content)
        self.snaps = {}
        # Names of the clones of each snapshot.
        self.clones = collections.defaultdict(set)
        self.image = rbd.Image(run.ioctx, name)

    def range(self):
        length = self.run.random.randrange(1, BYTES_MAX)
        # Aligned as often as not: whole objects and sectors take other ways through librbd.
        align = self.run.random.choice([1, 1, 512, 4096, 1 << ORDER])
        length = max(align, length // align * align)
        start = self.run.random.randrange(0, SIZE - length + 1) // align * align
        return start, length

    def write(self):
        start, length = self.range()
        data = self.run.random.randbytes(length)
        self.image.write(data, start)
        self.content[start:start + length] = data
        return f"{start}~{length}"

    def discard(self):
        start, length = self.range()
        # A write of zeros is exact; a discard may leave parts of an object as they were.
        self.image.write_zeroes(start, length)
        self.content[start:start + length] = bytes(length)
        return f"{start}~{length}"

    def read(self):
        start, length = self.range()
        compare(f"{self.name} {start}~{length}", self.image.read(start, length), self.content[start:start + length])
        return f"{start}~{length}"

    def snap_create(self):
        if len(self.snaps) >= SNAPS_MAX:
            return self.snap_remove()
        snap = self.run.name("snap")
        self.image.create_snap(snap)
        self.snaps[snap] = bytes(self.content)
        return snap

    def free_snap(self):
        free = [snap for snap in self.snaps if not self.clones[snap]]
        return self.run.random.choice(free) if free else None

    def snap_remove(self):
        snap = self.free_snap()
        if snap is None:
            return None
        self.image.remove_snap(snap)
        del self.snaps[snap]
        return snap

    def snap_rollback(self):
        if not self.snaps:
            return None
        snap = self.run.random.choice(list(self.snaps))
        self.image.rollback_to_snap(snap)
        self.content[:] = self.snaps[snap]
        return snap

    def snap_read(self):
        if not self.snaps:
            return None
        snap = self.run.random.choice(list(self.snaps))
        self.check(snap)
        return snap

    def check(self, snap=None):
        # Another handle does not see what is in the cache of this one.
        self.image.flush()
        with rbd.Image(self.run.ioctx, self.name, snapshot=snap, read_only=True) as image:
            wanted = self.content if snap is None else self.snaps[snap]
            compare(f"{self.name}@{snap}", image.read(0, SIZE), wanted)


class Run:
    def __init__(self, ioctx, seed, features):
        self.ioctx, self.features = ioctx, features
        self.random = random.Random(seed)
        self.steps, self.counts = [], collections.Counter()
        self.named = 0
        self.rbd = rbd.RBD()
        self.rbd.create(ioctx, "image", SIZE, ORDER, old_format=False, features=features)
        self.base = Model(self, "image", bytes(SIZE))
        # Clones by their names, each with the snapshot that is its parent; None: it was flattened.
        self.clones = {}

    def name(self, kind):
        self.named += 1
        return f"{kind}{self.named}"

    def clone(self):
        if not self.base.snaps or len(self.clones) >= CLONES_MAX:
            return self.clone_remove()
        snap = self.random.choice(list(self.base.snaps))
        name = self.name("clone")
        self.rbd.clone(self.ioctx, "image", snap, self.ioctx, name, self.features, ORDER)
        self.base.clones[snap].add(name)
        self.clones[name] = (Model(self, name, self.base.snaps[snap]), snap)
        return f"{name} of {snap}"

    def a_clone(self):
        return self.random.choice(list(self.clones)) if self.clones else None

    def forget_parent(self, name):
        model, snap = self.clones[name]
        if snap is not None:
            self.base.clones[snap].discard(name)
        self.clones[name] = (model, None)
        return model

    def flatten(self):
        name = self.a_clone()
        # Without deep-flatten the snapshots of a clone keep its parent.
        if name is None or self.clones[name][0].snaps and not self.features & rbd.RBD_FEATURE_DEEP_FLATTEN:
            return None
        if self.clones[name][1] is None:
            return None
        self.clones[name][0].image.flatten()
        self.forget_parent(name).check()
        return name

    def clone_remove(self):
        name = self.a_clone()
        if name is None:
            return None
        model = self.forget_parent(name)
        for snap in list(model.snaps):
            model.check(snap)
            model.image.remove_snap(snap)
        model.check()
        model.image.close()
        del self.clones[name]
        self.rbd.remove(self.ioctx, name)
        return name

    STEPS = [("write", 40), ("discard", 10), ("read", 20), ("snap_create", 8), ("snap_remove", 4), ("snap_rollback", 2), ("snap_read", 4)]
    OF_CLONES = [("clone", 3), ("flatten", 1), ("clone_remove", 2)]

    def step(self):
        every = self.STEPS + self.OF_CLONES
        name = self.random.choices([n for n, _ in every], [weight for _, weight in every])[0]
        target, label = self, name
        if name in dict(self.STEPS):
            target = self.random.choice([self.base, self.base] + [model for model, _ in self.clones.values()])
            label = f"{target.name} {name}"
        self.steps.append(label)
        done = getattr(target, name)()
        self.steps[-1] += f" {done}"
        self.counts[name] += done is not None

    def end(self):
        for model in [self.base] + [model for model, _ in self.clones.values()]:
            model.check()
            for snap in model.snaps:
                model.check(snap)
        while self.clones:
            self.clone_remove()
        for snap in list(self.base.snaps):
            self.base.image.remove_snap(snap)
        self.base.check()
        self.base.image.close()
        self.rbd.remove(self.ioctx, "image")


def main(conf, pool, seed, seconds, features):
    cluster = rados.Rados(conffile=conf, conf={"rados_osd_op_timeout": "30", "rbd_default_clone_format": "2"})
    cluster.connect(timeout=30)
    with cluster.open_ioctx(pool) as ioctx:
        run = Run(ioctx, int(seed), int(features))
        end = time.monotonic() + float(seconds)
        try:
            while time.monotonic() < end:
                run.step()
            run.end()
        except Exception as error:
            print(f"seed {seed}: {error!r}, after")
            print("\n".join(run.steps[-60:]))
            sys.stdout.flush()
            raise
        print(f"{len(run.steps)} steps:", *(f"{name}={count}" for name, count in sorted(run.counts.items())))
    cluster.shutdown()


main(*sys.argv[1:])
