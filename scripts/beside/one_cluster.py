"""The parts of scripts/one-cluster."""
import json, os, signal, subprocess, sys, threading, time, uuid
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import rados

from beside import BEDS, CARMINE, FAILED, Cluster, in_turns, left, report, run, wanted

ROUNDS, SECS = int(os.environ["ROUNDS"]), int(os.environ["SECS"])
PGS, DEAD_S, FILL_MIB, OBJECT_MIB = 32, 10, 512, 4

def size_bytes(text):
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]

class Side(Cluster):
    """The OSDs of one kind, and their pool."""

    def __init__(self, name, osds, rule):
        super().__init__("carmine", op_timeout_s=120)
        self.name, self.is_carmine, self.osds, self.processes = name, name == "carmine", osds, {}
        if not self.is_carmine:
            self.make_all()
        self.pool, self.rule = f"of_{name}", rule
        self.wait("its OSDs are up", lambda: all(each["up"] for each in self.ask("osd dump")["osds"] if each["osd"] in osds))
        device_class = self.ask("osd crush get-device-class", ids=[str(osds[0])])[0]["device_class"]
        self.ask("osd crush rule create-replicated", name=rule, root="default", type="osd", **{"class": device_class})
        self.ask("osd pool create", pool=self.pool, pg_num=PGS, pgp_num=PGS, pool_type="replicated", rule=rule)
        self.ask("osd pool application enable", pool=self.pool, app="rados")
        self.cluster.wait_for_latest_osdmap()
        self.io = self.cluster.open_ioctx(self.pool)
        self.pgs = self.objects_of_pgs()
        self.wait_clean()

    def ask(self, prefix, **arguments):
        code, out, status = self.cluster.mon_command(json.dumps({"prefix": prefix, "format": "json", **arguments}), b"", timeout=60)
        if code != 0:
            sys.exit(f"error: {self.name}: {prefix}: {status}")
        try:
            return json.loads(out) if out.strip() else None
        except ValueError:
            return out.decode().strip()

    def wait(self, what, is_so):
        while not is_so():
            left()
            time.sleep(0.1)

    # Classic OSDs.

    def make_all(self):
        for osd in self.osds:
            folder, own = f"{BEDS}/classic.{osd}", str(uuid.uuid4())
            os.mkdir(folder)
            given = self.ask("osd new", uuid=own)
            if given.get("osdid", given) != osd:
                sys.exit(f"error: the monitor gave osd.{osd} the number {given}")
            with open(f"{folder}/ceph.conf", "w") as conf:
                conf.write(open(self.conf).read() + f"\n[osd]\nosd_data = {folder}\nbluestore_block_size = {size_bytes(os.environ['OSD_SIZE'])}\n")
                conf.write(open(f"{BEDS}/osd.conf").read())
            self.in_folder(osd, "--mkfs", "--osd-uuid", own).wait()
            self.start(osd)

    def in_folder(self, osd, *words):
        folder = f"{BEDS}/classic.{osd}"
        with open(f"{folder}/log", "a") as log:
            line = ["ceph-osd", "-i", str(osd), "-c", f"{folder}/ceph.conf", *words]
            return subprocess.Popen(line, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self, osd):
        if self.is_carmine:
            return run(CARMINE, "osd", "start", osd, "--dir", self.dir)
        self.processes[osd] = self.in_folder(osd, "-f")

    def pid(self, osd):
        return super().pid(osd) if self.is_carmine else self.processes[osd].pid

    def all_cpu_s(self):
        """CPU time of its OSDs, with the reactors' spinning: where threads share CPUs, the time that they spend on it is not known."""
        files = [f"/proc/{self.pid(osd)}/task" for osd in self.osds]
        tasks = [f"{tasks}/{task}/schedstat" for tasks in files for task in os.listdir(tasks)]
        return sum(int(open(task).read().split()[0]) for task in tasks) / 1e9

    def kill(self, osd):
        os.kill(self.pid(osd), signal.SIGKILL)
        begin = time.monotonic()
        if not self.is_carmine:
            self.processes[osd].wait()
        return begin

    def end(self):
        for process in self.processes.values():
            process.kill()
            process.wait()

    # PGs.

    def objects_of_pgs(self):
        """An object of each PG."""
        found, number = {}, 0
        while len(found) < PGS:
            left()
            found.setdefault(self.ask("osd map", pool=self.pool, object=f"probe.{number}")["pgid"], f"probe.{number}")
            number += 1
        return found

    def query(self, pg):
        try:
            code, out, _ = self.cluster.pg_command(pg, json.dumps({"prefix": "query", "pgid": pg, "format": "json"}), b"", timeout=10)
            if code == 0:
                return json.loads(out)
            # The PG has moved since this client's last map, which an operation on one of its objects renews.
            self.io.stat(self.pgs[pg])
        except rados.Error:
            pass
        return None

    def wait_clean(self):
        """Waits until all PGs are clean with three OSDs; their acting sets."""
        while True:
            with ThreadPoolExecutor(8) as pool:
                look = dict(zip(self.pgs, pool.map(self.query, self.pgs)))
            if all(pg and pg["state"] == "active+clean" and len(pg["acting"]) == 3 for pg in look.values()):
                return {pg: found["acting"] for pg, found in look.items()}
            left()
            time.sleep(0.1)

def fio(side, rw, seconds, **more):
    # An object for each file, with the name of the job: all jobs use those that were written first.
    options = {"name": "load", "ioengine": "rados", "clientname": "admin", "conf": side.conf, "pool": side.pool, "rw": rw, "bs": "4k", "iodepth": 16,
               "size": f"{FILL_MIB}m", "nrfiles": FILL_MIB // OBJECT_MIB, "file_service_type": "random", "group_reporting": 1, "output-format": "json",
               **more}
    if seconds:
        options |= {"runtime": seconds, "time_based": 1}
    words = [f"--{name}={value}" for name, value in options.items()]
    out = run("fio", *words, seconds=600)
    return json.loads(out[out.index("{"):])["jobs"][0]

def load(side):
    figures = {}
    for rw, kind in (("randwrite", "write"), ("randread", "read")):
        fio(side, rw, 2)
        before = side.all_cpu_s()
        job = fio(side, rw, SECS)[kind]
        cpu = side.all_cpu_s() - before
        figures[f"4 KiB {rw}, iodepth 16"] = {
            "IOPS": job["iops"], "mean latency, µs": job["clat_ns"]["mean"] / 1e3, "OSD CPU an operation, µs": cpu * 1e6 / max(job["total_ios"], 1),
        }
    return figures

class Writers:
    """Each has one write of 4 KiB to its object in flight, and notes when it was sent and acknowledged."""

    def __init__(self, side, names):
        self.side, self.acks, self.stop = side, {name: [] for name in names}, threading.Event()
        self.threads = [threading.Thread(target=self.work, args=(name,)) for name in names]

    def work(self, name):
        block = os.urandom(4096)
        while not self.stop.is_set():
            sent = time.monotonic()
            try:
                self.side.io.write(name, block, 0)
            except rados.Error as error:
                FAILED.append(f"{self.side.name}: {name}: {error}")
                return
            self.acks[name].append((sent, time.monotonic()))
            time.sleep(0.01)

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        self.side.wait("all have written", lambda: all(self.acks.values()))
        return self

    def __exit__(self, *_):
        self.stop.set()
        for thread in self.threads:
            thread.join()
        left()

    def next_ack(self, name, since):
        return next((acked for sent, acked in list(self.acks[name]) if sent >= since), None)

def kill(side):
    acting = side.wait_clean()
    osd = side.osds[kill.count % len(side.osds)]
    kill.count += 1
    with Writers(side, list(side.pgs.values())) as writers:
        time.sleep(2)
        begin = side.kill(osd)
        names = [side.pgs[pg] for pg, osds in acting.items() if osd in osds]
        led = {side.pgs[pg] for pg, osds in acting.items() if osds[0] == osd}
        side.wait("all PGs take writes", lambda: all(writers.next_ack(name, begin) for name in names))
        time.sleep(max(0, begin + DEAD_S - time.monotonic()))
        again = time.monotonic()
        side.start(osd)
        side.wait_clean()
        clean = time.monotonic()
    pauses = {name: writers.next_ack(name, begin) - begin for name in names}
    return {"kill -9, its PGs": {
        "median of PGs it led, kill to next write, s": median([pauses[name] for name in led] or [0]),
        "longest of all its PGs, s": max(pauses.values()),
        "start to clean, s": clean - again,
    }}

kill.count = 0

def main():
    parts = {"load": load, "kill": kill}
    names = wanted(parts)
    ours = Side("carmine", [0, 1, 2], "ours")
    # The testbed's own pool may have no PG on classic OSDs.
    for pool in [each["pool_name"] for each in ours.ask("osd dump")["pools"]]:
        ours.ask("osd pool set", pool=pool, var="crush_rule", val="ours")
    theirs = Side("ceph", [3, 4, 5], "theirs")
    try:
        for side in (ours, theirs):
            fio(side, "write", 0, bs="1m")
        rounds = in_turns(names, parts, [ours, theirs], lambda _: ROUNDS)
    finally:
        theirs.end()
    report("one_cluster", rounds, seconds=SECS)

main()
