"""Shared by the measurements beside a real Ceph: their clusters, their rounds in turns, and their table."""
import glob, json, os, subprocess, sys, time
from statistics import median

CARMINE, BEDS, OUT = (os.environ[name] for name in ("CARMINE", "BEDS", "OUT"))
BEGIN, LIMIT_S = time.monotonic(), float(os.environ["LIMIT_SECS"])
# Errors of threads: what looks for the time that is left ends by the first.
FAILED = []

def left():
    """Seconds that are left of the whole measurement."""
    if FAILED:
        sys.exit(f"error: {FAILED[0]}")
    seconds = LIMIT_S - (time.monotonic() - BEGIN)
    if seconds <= 0:
        sys.exit(f"error: more than {LIMIT_S:.0f} s have passed")
    return seconds

def say(text):
    print(f"{time.monotonic() - BEGIN:5.0f} s  {text}", file=sys.stderr, flush=True)

def run(*words, seconds=180):
    """The output of a command that ends in this time."""
    line = " ".join(map(str, words))
    try:
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=min(seconds, left()))
    except subprocess.TimeoutExpired as late:
        sys.exit(f"error: {words[0]} did not end in {late.timeout:.0f} s: {line}")
    if done.returncode != 0:
        sys.exit(f"error: {line}: {done.stderr or done.stdout}")
    return done.stdout

class Cluster:
    """A cluster, its pool, and its OSDs."""

    def __init__(self, name, op_timeout_s, **conf):
        import rados  # scripts/targets does without

        self.name, self.dir, self.is_carmine, self.peer_osds = name, f"{BEDS}/{name}", name == "carmine", []
        self.conf = f"{self.dir}/ceph.conf"
        self.cluster = rados.Rados(conffile=self.conf, rados_id="admin", conf={"rados_osd_op_timeout": str(op_timeout_s), **conf})
        self.cluster.connect(timeout=30)
        self.io = self.cluster.open_ioctx("bench")

    def find_processes(self):
        """Of a peer's OSDs: all PGs must be clean, of which the exit code tells."""
        if not self.is_carmine:
            self.peer_osds = json.loads(run(CARMINE, "peer", "status", "--dir", self.dir, "--json"))["osds"]

    def pid(self, osd):
        if self.is_carmine:
            return json.load(open(f"{self.dir}/run/osd.{osd}.json"))["pid"]
        return self.peer_osds[osd]["pid"]

    def cpu_s(self, osds):
        """CPU time of these OSDs' threads, without the reactors' spinning."""
        total_ns = 0
        for osd in osds:
            for task in glob.glob(f"/proc/{self.pid(osd)}/task/*/schedstat"):
                try:
                    total_ns += int(open(task).read().split()[0])
                except OSError:
                    pass
            if self.is_carmine:
                metrics = json.loads(run(CARMINE, "admin", "--dir", self.dir, "--osd", osd, '{"prefix":"dump_metrics"}'))
                total_ns -= sum(shard["reactor"]["spin_ns"] for shard in metrics["shards"])
        return total_ns / 1e9

def wanted(parts):
    """The parts that the command line names; all if it names none."""
    for name in sys.argv[1:]:
        if name not in parts:
            sys.exit(f"error: {name}: there is no such part; take {' '.join(parts)}")
    return sys.argv[1:] or list(parts)

def in_turns(names, parts, sides, rounds_of):
    """Every round of these parts, with its figures, on each side in turns."""
    rounds = []
    for part in names:
        for number in range(rounds_of(part)):
            for side in sides if number % 2 == 0 else sides[::-1]:
                say(f"{part}, round {number + 1}, {side.name}")
                rounds.append({"part": part, "round": number, "side": side.name, "figures": parts[part](side)})
    return rounds

def report(name, rounds, **about):
    """Prints a table of the medians of the rounds; OUT/NAME.json gets all of them."""
    rows = []
    for part in dict.fromkeys(found["part"] for found in rounds):
        of = {side: [found["figures"] for found in rounds if (found["part"], found["side"]) == (part, side)] for side in ("carmine", "ceph")}
        for kind, figures in of["carmine"][0].items():
            for figure in figures:
                rows.append([part, kind, figure, *(median(found[kind][figure] for found in of[side]) for side in ("carmine", "ceph"))])
    about = {"carmine": run(CARMINE, "--version").strip(), "ceph": run("ceph-osd", "--version").strip(), **about}
    summary = [dict(zip(("part", "kind", "figure", "carmine", "ceph"), row)) for row in rows]
    with open(f"{OUT}/{name}.json", "w") as file:
        json.dump({"about": about, "rounds": rounds, "summary": summary}, file, indent=1)
    show = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:,.2f}"
    print("| part | measured | figure | Carmine | Ceph | ratio |\n|---|---|---|---:|---:|---:|")
    for part, kind, figure, ours, theirs in rows:
        print(f"| {part} | {kind} | {figure} | {show(ours)} | {show(theirs)} | {f'{ours / theirs:.2f}' if theirs else '–'} |")
