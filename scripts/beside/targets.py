"""The cases and the table of scripts/targets."""
import json, math, os, re, subprocess, sys, time
from statistics import mean, median, stdev

from beside import BEDS, CARMINE, OUT, run, say

LIMIT, ROUNDS, SECS = os.environ["LIMIT"], int(os.environ["ROUNDS"]), os.environ["SECS"]
STUDENT = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}
SIZE = "256m"

def bench(bed, rw, depth, *more, bs="4k"):
    """A window of `carmine bench`."""
    path = f"{OUT}/last.json"
    run(CARMINE, "bench", "--dir", f"{BEDS}/{bed}", "--rw", rw, "--bs", bs, "--size", SIZE, "--iodepth", depth, "--runtime", SECS, "--ramp", 1,
        "--json", path, *more)
    whole = json.load(open(path))
    side, carmine = whole["jobs"][0]["write" if "write" in rw else "read"], whole["carmine"]
    if whole["jobs"][1:]:
        sys.exit("error: more than one job")
    return {"machine": carmine["machine_cpu_us_per_op"], "osd": carmine["osd_cpu_us_per_op"], "mean_us": side["clat_ns"]["mean"] / 1e3,
            "p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3, "bw": side["bw_bytes"], "iops": side["iops"],
            "verdict": carmine["verdict"], "stages": carmine.get("stages")}

def rbd(bed, rw, depth):
    return bench(bed, rw, depth, "--client", "fio-rbd")

def fio(rw, depth, bs="4k"):
    """The same on a file beside the stores, with a flush for as many writes as are in flight."""
    flush = [f"--fdatasync={depth}"] if "write" in rw else []
    text = run("fio", "--name=raw", f"--filename={BEDS}/raw.dat", f"--size={SIZE}", "--ioengine=io_uring", "--direct=1", f"--bs={bs}", f"--rw={rw}",
               f"--iodepth={depth}", *flush, f"--runtime={SECS}", "--ramp_time=1", "--time_based", "--cpus_allowed=0", "--output-format=json")
    job = json.loads(text[text.index("{"):])["jobs"][0]
    side = job["write" if "write" in rw else "read"]
    process_us = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e3 / side["total_ios"]
    return {"p99_us": side["clat_ns"]["percentile"]["99.000000"] / 1e3, "bw": side["bw_bytes"], "mean_us": side["clat_ns"]["mean"] / 1e3,
            "process_us": process_us}

def store(rw, depth):
    """The store alone, without an OSD."""
    run(CARMINE, "store", "bench", "--dir", BEDS, "--cpus", 0, "--alien-cpus", 1, "--rw", rw, "--iodepth", depth, "--runtime", SECS, "--json", f"{OUT}/last.json")
    [row] = json.load(open(f"{OUT}/last.json"))["rows"]
    return row

def idle_s():
    """Seconds that all CPUs have been idle. The kernel counts these exactly; its times of user and system are sampled at each tick, and miss
    half of the work of a thread that sleeps between operations."""
    ticks = [int(word) for word in open("/proc/stat").readline().split()[1:]]
    return (ticks[3] + ticks[4]) / os.sysconf("SC_CLK_TCK")

def bare(mode, depth):
    """The bare program: CPU of all cores less idle time and less its client, as `carmine bench` counts it."""
    secs = int(SECS)
    words = [LIMIT, mode, "--conns", 1, "--depth", depth, "--file", f"{BEDS}/limit.dat", "--secs", secs + 2]
    program = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    time.sleep(1)
    begin, idle = time.monotonic(), idle_s()
    time.sleep(secs)
    wall, idle = time.monotonic() - begin, idle_s() - idle
    said, _ = program.communicate(timeout=60)
    if program.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, words))}: {said}")
    number = lambda pattern: float(re.search(pattern, said).group(1))
    busy_us = (os.cpu_count() * wall - idle) * 1e6 / wall / number(r"([\d.]+) ops/s")
    return {"machine": busy_us - number(r"client ([\d.]+)"), "mean_us": number(r"mean latency ([\d.]+)")}

# What is measured in a round; a row divides one of its figures by another's.
CASES = {
    "own r64": lambda: bench("one", "randread", 64), "own r1": lambda: bench("one", "randread", 1),
    "own w1": lambda: bench("one", "randwrite", 1), "own w16": lambda: bench("one", "randwrite", 16),
    "own w64": lambda: bench("one", "randwrite", 64),
    "bare r64": lambda: bare("read", 64), "bare r1": lambda: bare("read", 1), "bare w1": lambda: bare("dsync", 1),
    "rbd r64": lambda: rbd("one", "randread", 64), "ceph r64": lambda: rbd("ceph", "randread", 64),
    "rbd w64": lambda: rbd("one", "randwrite", 64), "ceph w64": lambda: rbd("ceph", "randwrite", 64),
    "rbd r16": lambda: rbd("one", "randread", 16), "ceph r16": lambda: rbd("ceph", "randread", 16),
    "rbd w16": lambda: rbd("one", "randwrite", 16), "ceph w16": lambda: rbd("ceph", "randwrite", 16),
    "cached r64": lambda: rbd("cached", "randread", 64),
    "three w64": lambda: bench("three", "randwrite", 64), "three w16": lambda: bench("three", "randwrite", 16),
    "three rbd w64": lambda: rbd("three", "randwrite", 64),
    "fio w16": lambda: fio("randwrite", 16), "fio w64": lambda: fio("randwrite", 64), "store w64": lambda: store("randwrite", 64),
    "own s64k": lambda: bench("sequential", "read", 16, bs="64k"), "fio s64k": lambda: fio("read", 16, "64k"),
    "own s4m": lambda: bench("sequential", "read", 4, bs="4m"), "fio s4m": lambda: fio("read", 4, "4m"),
    "own t64k": lambda: bench("sequential", "write", 16, bs="64k"), "fio t64k": lambda: fio("write", 16, "64k"),
    "own t64k full": lambda: bench("sequential", "write", 64, "--stages", bs="64k"),
    "own t4m": lambda: bench("sequential", "write", 4, bs="4m"), "fio t4m": lambda: fio("write", 4, "4m"),
}
# Name, figure, the case above the line, the case below it, the ratio to be reached, and whether it is a ceiling.
ROWS = [
    ("randread 64, machine CPU, against the bare program", "machine", "own r64", "bare r64", 1.5, True),
    ("bare store, durable randwrite 64, process CPU, against raw fio with the same flushes", "process_us", "store w64", "fio w64", 1.4, True),
    ("fio rbd randread 64, machine CPU: Ceph against Carmine", "machine", "ceph r64", "rbd r64", 3.5, False),
    ("fio rbd durable randwrite 64: Ceph against Carmine", "machine", "ceph w64", "rbd w64", 9, False),
    ("the same reads, Carmine with a data cache", "machine", "ceph r64", "cached r64", 6, False),
    ("fio rbd randread 16: Ceph against Carmine", "machine", "ceph r16", "rbd r16", 3, False),
    ("fio rbd durable randwrite 16: Ceph against Carmine", "machine", "ceph w16", "rbd w16", 6, False),
    ("randread 1, machine CPU, against the bare program", "machine", "own r1", "bare r1", 1.5, True),
    ("durable randwrite 1, machine CPU, against the bare program", "machine", "own w1", "bare w1", 1.5, True),
    ("randread 1, mean latency, against the bare program", "mean_us", "own r1", "bare r1", 1.15, True),
    ("durable randwrite 1, mean latency, against the bare program", "mean_us", "own w1", "bare w1", 1.15, True),
    ("3 OSDs, size 3, durable randwrite 64, OSD CPU, against size 1", "osd", "three w64", "own w64", 3.6, True),
    ("p99 of durable randwrite 16, against raw fio with the same flushes", "p99_us", "own w16", "fio w16", 4, True),
    ("p99 of durable randwrite 64, against raw fio with the same flushes", "p99_us", "own w64", "fio w64", 3, True),
    ("sequential reads of 64 KiB, bytes a second against raw fio", "bw", "own s64k", "fio s64k", 0.85, False),
    ("sequential reads of 4 MiB, bytes a second against raw fio", "bw", "own s4m", "fio s4m", 0.85, False),
    ("sequential writes of 64 KiB, bytes a second against raw fio", "bw", "own t64k", "fio t64k", 0.85, False),
    ("sequential writes of 4 MiB, bytes a second against raw fio", "bw", "own t4m", "fio t4m", 0.85, False),
]
# Name, case, microseconds of OSD CPU to be reached.
COSTS = [
    ("3 OSDs, size 3, durable randwrite 64", "three w64", 55), ("3 OSDs, size 3, durable randwrite 64, fio rbd", "three rbd w64", 80),
    ("3 OSDs, size 3, durable randwrite 16", "three w16", 100),
]
# Name, case with the stages, bytes of an operation.
FULL = [("sequential writes of 64 KiB, iodepth 64, copies of each byte while one CPU is full", "own t64k full", 64 << 10)]

rounds = []
ROWS = [row for row in ROWS if re.search(os.environ["ONLY"], row[0]) and (LIMIT or not row[3].startswith("bare "))]
COSTS = [cost for cost in COSTS if re.search(os.environ["ONLY"], cost[0])]
FULL = [row for row in FULL if re.search(os.environ["ONLY"], row[0])]
wanted = {name for row in ROWS for name in row[2:4]} | {row[1] for row in COSTS + FULL}
CASES = {name: case for name, case in CASES.items() if name in wanted}
run("fio", "--name=raw", f"--filename={BEDS}/raw.dat", f"--size={SIZE}", "--ioengine=io_uring", "--direct=1", "--bs=1m", "--rw=write")
if any(name.startswith("bare ") for name in CASES):
    run(LIMIT, "disk", "--file", f"{BEDS}/limit.dat", "--secs", 1)  # makes its file
for number in range(ROUNDS):
    names = list(CASES)
    if number % 2:
        names.reverse()
    found = {}
    for name in names:
        say(f"round {number + 1}: {name}")
        found[name] = CASES[name]()
    rounds.append(found)
    json.dump(rounds, open(f"{OUT}/targets.json", "w"), indent=1)

def interval(values):
    """The 95 % interval of the mean of logarithms."""
    logs = [math.log(value) for value in values]
    if len(logs) < 2:
        return values[0], values[0]
    half = STUDENT.get(len(logs), 2.23) * stdev(logs) / math.sqrt(len(logs))
    return math.exp(mean(logs) - half), math.exp(mean(logs) + half)

def line(name, above, below, values, target, is_ceiling, digits):
    low, high = interval(values)
    reached = high <= target if is_ceiling else low >= target
    sign = "≤" if is_ceiling else "≥"
    print(f"| {name} | {above} | {below} | {median(values):.{digits}f} [{low:.{digits}f}–{high:.{digits}f}] | {sign} {target} | {'yes' if reached else '**no**'} |")

print("| row | figure | beside | ratio: median [95 % interval] | to be reached | reached |")
print("|---|---:|---:|---:|---:|---|")
for name, figure, above, below, target, is_ceiling in ROWS:
    pairs = [(found[above][figure], found[below][figure]) for found in rounds]
    pairs = [pair for pair in pairs if None not in pair]  # a window whose figure is unknown gives none
    shown = lambda values: f"{median(values) / 1e6:,.0f} MB/s" if figure == "bw" else f"{median(values):,.1f} us"
    line(name, shown([a for a, _ in pairs]), shown([b for _, b in pairs]), [a / b for a, b in pairs], target, is_ceiling, 2)
for name, case, target in COSTS:
    values = [found[case]["osd"] for found in rounds]
    line(f"{name}, OSD CPU us a write", f"{median(values):.1f} us", "–", values, target, True, 1)
for name, case, bs_bytes in FULL:
    cases = [found[case] for found in rounds]
    full = sum(each["verdict"] == "OSD" for each in cases)
    copies = max(1 + dict(each["stages"]["per_op"])["bytes copied"] / bs_bytes for each in cases)
    reached = full == len(cases) and round(copies, 1) <= 2
    bw = median(each["bw"] for each in cases) / 1e6
    print(f"| {name} | {bw:,.0f} MB/s | full in {full} of {len(cases)} | {copies:.2f} at most | ≤ 2 | {'yes' if reached else '**no**'} |")
