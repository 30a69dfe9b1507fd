"""The parts of scripts/recovery."""
import json, os, signal, struct, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import rados

from beside import CARMINE, FAILED, Cluster, in_turns, left, report, run, wanted

ROUNDS, BIG, SMALL, GRACE = (int(os.environ[name]) for name in ("ROUNDS", "BIG", "SMALL", "GRACE"))
OSDS, KIB, MIB, WINDOW_S = 3, 1 << 10, 1 << 20, 5
# An acknowledgement: the writer's number, when the write was sent, and when it was acknowledged.
ACK = struct.Struct("=Idd")

class Side(Cluster):
    """A cluster whose OSDs are killed and started again."""

    def __init__(self, name):
        super().__init__(name, op_timeout_s=120)
        self.started = {}
        self.ask("osd pool set", pool="bench", var="min_size", val="1")
        if not self.is_carmine:
            for option, value in (("osd_heartbeat_grace", GRACE), ("mon_osd_min_down_reporters", 1)):
                self.ask("config set", who="mon", name=option, value=str(value))
        self.pgs = self.objects_of_pgs()
        self.wait_clean()
        self.find_processes()

    def ask(self, prefix, **arguments):
        code, out, status = self.cluster.mon_command(json.dumps({"prefix": prefix, "format": "json", **arguments}), b"", timeout=30)
        if code != 0:
            sys.exit(f"error: {self.name}: {prefix}: {status}")
        return json.loads(out) if out.strip() else None

    def objects_of_pgs(self):
        """An object of each PG."""
        found, number = {}, 0
        while len(found) < 16:
            left()
            name = f"probe.{number}"
            found.setdefault(self.ask("osd map", pool="bench", object=name)["pgid"], name)
            number += 1
        return found

    def query(self, pg):
        try:
            code, out, _ = self.cluster.pg_command(pg, json.dumps({"prefix": "query", "pgid": pg, "format": "json"}), b"", timeout=10)
        except rados.Error:
            return None
        if code == 0:
            return json.loads(out)
        # The PG has moved since this client's last map, which an operation on one of its objects renews.
        try:
            self.io.stat(self.pgs[pg])
        except rados.Error:
            pass
        return None

    def look(self):
        """State, members and number of objects of each PG; nothing of one that does not answer."""
        with ThreadPoolExecutor(8) as pool:
            return dict(zip(self.pgs, pool.map(self.query, self.pgs)))

    def wait_clean(self, is_new=lambda look: True):
        """Waits until all PGs are clean, of which something is as it is to be."""
        while True:
            look = self.look()
            if all(pg and pg["state"] == "active+clean" for pg in look.values()) and is_new(look):
                return look
            left()
            time.sleep(0.1)

    def watch(self, seconds):
        """Looks as often as while it waits: the same observer costs the clients the same at all times."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            time.sleep(0.1)

    def pid(self, osd):
        return self.started[osd].pid if osd in self.started else super().pid(osd)

    def kill(self, osd):
        """The command that starts it again."""
        pid = self.pid(osd)
        with open(f"/proc/{pid}/cmdline") as file:
            words = file.read().rstrip("\0").split("\0")
        cpus, folder = os.sched_getaffinity(pid), os.readlink(f"/proc/{pid}/cwd")
        os.kill(pid, signal.SIGKILL)
        begin = time.monotonic()
        if osd in self.started:
            self.started.pop(osd).wait()
        return begin, (words, cpus, folder)

    def start(self, osd, command):
        if self.is_carmine:
            return run(CARMINE, "osd", "start", osd, "--dir", self.dir)
        words, cpus, folder = command
        with open(f"{self.dir}/again.{osd}.log", "a") as log:
            self.started[osd] = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                                 preexec_fn=lambda: os.sched_setaffinity(0, cpus))

    def wait_map(self, osd, field, value):
        while next(each for each in self.ask("osd dump")["osds"] if each["osd"] == osd)[field] != value:
            left()
            time.sleep(0.01)

    def write_all(self, names, size):
        data = os.urandom(size)
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: self.io.write(name, data, 0), names))

    def end(self):
        for process in self.started.values():
            process.kill()
            process.wait()

# The writers: a process of their own, so that whoever watches the cluster meanwhile does not have their interpreter's lock. Each has one
# write of 4 KiB in flight; each acknowledgement is a record on stdout. They stop when stdin ends; an error ends the process.
WRITERS = """
import json, os, random, struct, sys, threading, time
import rados
conf, names, ack = sys.argv[1], json.loads(sys.argv[2]), struct.Struct(sys.argv[3])
cluster = rados.Rados(conffile=conf, rados_id="admin", conf={"rados_osd_op_timeout": "120"})
cluster.connect(timeout=30)
io, block = cluster.open_ioctx("bench"), os.urandom(4096)
def work(number):
    while True:
        sent = time.monotonic()
        try:
            io.write(names[number], block, random.randrange(16) * 4096)
        except rados.Error as error:
            print(f"{names[number]}: {error}", file=sys.stderr, flush=True)
            os._exit(1)
        os.write(1, ack.pack(number, sent, time.monotonic()))
for number in range(len(names)):
    threading.Thread(target=work, args=(number,)).start()
sys.stdin.read()
os._exit(0)
"""

class Load:
    """Writers that run until the end of the block."""

    def __init__(self, side, names):
        self.side, self.names, self.acks = side, names, {name: [] for name in names}

    def collect(self):
        while data := self.process.stdout.read(ACK.size):
            number, sent, acked = ACK.unpack(data)
            self.acks[self.names[number]].append((sent, acked))
        if self.process.wait() != 0:
            FAILED.append(f"{self.side.name}: a write failed, as said above")

    def __enter__(self):
        words = [sys.executable, "-c", WRITERS, f"{self.side.dir}/ceph.conf", json.dumps(self.names), ACK.format]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.reader = threading.Thread(target=self.collect)
        self.reader.start()
        while not all(self.acks.values()):
            left()
            time.sleep(0.02)
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.reader.join()
        left()

    def within(self, begin, end):
        """Latencies of the writes that were sent in this time."""
        return sorted(acked - sent for acks in self.acks.values() for sent, acked in list(acks) if begin <= sent < end)

    def p99_ms(self, begin, end):
        latencies = self.within(begin, end)
        return latencies[int(0.99 * (len(latencies) - 1))] * 1e3 if latencies else 0.0

    def next_acks(self, since):
        """Of each writer the first acknowledgement of a write that was sent since; none yet: `None`."""
        return {name: next((acked for sent, acked in list(acks) if sent >= since), None) for name, acks in self.acks.items()}

def copied(before, after):
    """Objects that came to an OSD which had not their PG before."""
    count = lambda pg: before[pg]["info"]["stats"]["stat_sum"]["num_objects"]
    return sum(count(pg) * len(set(after[pg]["acting"]) - set(before[pg]["acting"])) for pg in before)

def measure(side, size, begin_work, is_done, objects_of):
    """Runs a recovery under load: `begin_work` begins it and tells of the CPU time and the time then, `is_done` knows a state after it."""
    with Load(side, [f"load.{n}" for n in range(8)]) as load:
        time.sleep(1)
        calm_cpu, calm = side.cpu_s(range(OSDS)), time.monotonic()
        side.watch(WINDOW_S)
        each_cpu, before = side.cpu_s(range(OSDS)) - calm_cpu, side.look()
        each_cpu /= max(len(load.within(calm, calm + WINDOW_S)), 1)
        cpu, begin = begin_work()
        after = side.wait_clean(is_done(before))
        end, cpu = time.monotonic(), side.cpu_s(range(OSDS)) - cpu
        side.watch(WINDOW_S)
        last = time.monotonic()
        objects, seconds = objects_of(before, after), end - begin
        cpu -= each_cpu * len(load.within(begin, end))
        of_cpu = lambda amount: amount / cpu if cpu > 0.01 else 0.0
        return {"s until all is clean": seconds, "objects": objects, "objects/s": objects / seconds,
                "MB/s": objects * size / seconds / 1e6, "objects per CPU second": of_cpu(objects),
                "MB per CPU second": of_cpu(objects * size / 1e6), "clients' p99 before, ms": load.p99_ms(calm, calm + WINDOW_S),
                "clients' p99 during, ms": load.p99_ms(begin, end), "clients' p99 after, ms": load.p99_ms(end, last)}

KINDS = {"4 KiB": (4 * KIB, SMALL), "4 MiB": (4 * MIB, BIG)}

def filled(side, kind):
    size, count = KINDS[kind]
    names = [f"data.{kind[2:]}.{n}" for n in range(count)]
    side.write_all(names, size)
    return size, names

def emptied(side, names):
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(side.io.remove_object, names))

def backfill(side):
    figures, osd = {}, OSDS - 1
    for kind in KINDS:
        size, names = filled(side, kind)
        is_gone = lambda _: lambda look: all(osd not in pg["acting"] for pg in look.values())

        def begin_work():
            cpu, begin = side.cpu_s(range(OSDS)), time.monotonic()
            side.ask("osd out", ids=[str(osd)])
            return cpu, begin

        figures[f"objects of {kind}"] = measure(side, size, begin_work, is_gone, copied)
        side.ask("osd in", ids=[str(osd)])
        side.wait_clean(lambda look: any(osd in pg["acting"] for pg in look.values()))
        emptied(side, names)
    return figures

def recovery(side):
    figures, osd = {}, OSDS - 1
    for kind in KINDS:
        size, names = filled(side, kind)

        def begin_work():
            _, command = side.kill(osd)
            side.wait_map(osd, "up", 0)
            side.write_all(names, 4 * KIB)
            cpu = side.cpu_s(other for other in range(OSDS) if other != osd)
            threading.Thread(target=side.start, args=(osd, command)).start()
            side.wait_map(osd, "up", 1)
            return cpu, time.monotonic()

        def missed(before, _):
            return sum(pg["info"]["stats"]["stat_sum"]["num_objects"] for pg in before.values() if osd in pg["acting"])

        is_back = lambda _: lambda look: any(osd in pg["acting"] for pg in look.values())
        figures[f"objects of {kind}"] = measure(side, size, begin_work, is_back, missed)
        emptied(side, names)
    return figures

def pauses(side, fault, heal):
    """Of each OSD: the pauses of the PGs that have it."""
    found = []
    for osd in range(OSDS):
        members = {name: pg["acting"] for name, pg in ((side.pgs[pg], look) for pg, look in side.wait_clean().items())}
        with Load(side, list(members)) as load:
            time.sleep(1)
            begin, memory = fault(osd)
            while not all(load.next_acks(begin).values()):
                left()
                time.sleep(0.02)
            acks = load.next_acks(begin)
            found += [(acks[name] - begin) * 1e3 for name in members if osd in members[name]]
            heal(osd, memory)
            side.wait_map(osd, "up", 1)
            side.wait_clean()
    found.sort()
    return {"pause": {"median ms": median(found), "longest ms": found[-1], "PGs": len(found)}}

def kill(side):
    return pauses(side, side.kill, side.start)

def stop(side):
    def fault(osd):
        pid = side.pid(osd)
        os.kill(pid, signal.SIGSTOP)
        return time.monotonic(), pid

    return pauses(side, fault, lambda _, pid: os.kill(pid, signal.SIGCONT))

PARTS = {"backfill": backfill, "recovery": recovery, "kill": kill, "stop": stop}
names = wanted(PARTS)
sides = [Side("carmine"), Side("ceph")]
try:
    rounds = in_turns(names, PARTS, sides, lambda _: ROUNDS)
finally:
    for side in sides:
        side.end()
report("recovery", rounds, grace=GRACE)
