//! Archives for tests, always the same: what `carmine sweep` would write if OSDs obeyed Little's law.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::fs;
use std::path::Path;

use carmine_topology::{Grid, PlanRequest, Topology};
use serde_json::{Value, json};

/// The subject of an archive.
pub(crate) struct Study {
    pub(crate) name: &'static str,
    pub(crate) workloads: &'static [(&'static str, u64)],
    pub(crate) osds: u32,
    /// Of each OSD.
    pub(crate) reactors: &'static [u32],
    pub(crate) depths: &'static [u32],
    /// Values of the axis `balance`; the second arm is a tenth slower. Empty: no comparison.
    pub(crate) arms: &'static [&'static str],
    pub(crate) repeats: u32,
    /// Every point is SHARED and short.
    pub(crate) smoke: bool,
    /// All IOPS are multiplied by this.
    pub(crate) speed: f64,
}

impl Study {
    /// Reactors and iodepths, four times each, of which the last time fails.
    pub(crate) const SCALING: Study = Study {
        name: "reactors",
        workloads: &[("randread4k", 4096), ("seqwrite64k", 65536)],
        osds: 1,
        reactors: &[1, 2, 4],
        depths: &[4, 64],
        arms: &[],
        repeats: 4,
        smoke: false,
        speed: 1.0,
    };

    /// All that a report can show.
    pub(crate) const FULL: Study = Study {
        name: "split-the-cores",
        workloads: &[("randread4k", 4096), ("randwrite4k", 4096), ("seqwrite64k", 65536)],
        osds: 1,
        reactors: &[1, 2, 3, 4, 6],
        depths: &[1, 4, 16, 64],
        arms: &["osd", "socket"],
        repeats: 5,
        smoke: false,
        speed: 1.0,
    };

    /// Placements on two sockets.
    pub(crate) const SOCKETS: Study = Study {
        name: "placement",
        workloads: &[("randread4k", 4096)],
        osds: 8,
        reactors: &[1, 3, 5],
        depths: &[64],
        arms: &["default", "osd", "socket"],
        repeats: 5,
        smoke: false,
        speed: 1.0,
    };

    /// Writes the archive into an empty folder.
    pub(crate) fn write(&self, dir: &Path) {
        fs::create_dir_all(dir.join("points")).expect("a folder");
        let mut points = self.points();
        let mut again = points[0].clone();
        again["stem"] = json!(format!("{}_again", again["stem"].as_str().expect("text")));
        (again["kind"], again["index"]) = (json!("again"), json!(points.len()));
        points.push(again);
        put(dir, "run.json", &self.run());
        put(dir, "points.json", &json!({ "points": points }));
        fs::write(dir.join("plan.toml"), format!("name = \"{}\"\n", self.name)).expect("a file");
        fs::write(dir.join("commands.sh"), "carmine up --osds 1\nfio --ioengine=rados --rw=randread\n")
            .expect("a file");
        let last = points.len() - 2;
        for (at, point) in points.iter().enumerate() {
            self.write_point(dir, point, at == last);
        }
    }

    fn run(&self) -> Value {
        let comparison = if self.arms.is_empty() {
            Value::Null
        } else {
            let arms: Vec<String> = self.arms.iter().map(|a| format!("balance={a}")).collect();
            json!({"axis": "balance", "arms": arms})
        };
        json!({
            "format": 1, "name": self.name, "created_unix_s": 1_763_700_000u64, "finished_unix_s": 1_763_703_600u64, "seed": 7,
            "carmine": {"version": "0.1.0", "git_hash": "0123456789abcdef", "profile": "release", "allocator": "mimalloc"},
            "kernel": "6.1.0-test", "host": {"cpu": {"model": "Test CPU", "cores": 8}, "memory_bytes": 17_179_869_184u64},
            "doctor": [
                {"topic": "boost", "subject": null, "severity": "not_present", "is": "no switch", "better": null, "cost": null,
                    "source": null, "command": null},
                {"topic": "CPU governor", "subject": null, "severity": "warn", "is": "powersave", "better": "performance",
                    "cost": "10–20 %", "source": "a study", "command": "cpupower frequency-set -g performance"},
            ],
            "command": ["carmine", "sweep", self.name], "complete": true,
            "label": if self.smoke { "smoke" } else { "" }, "comparison": comparison, "chart": "scaling",
        })
    }

    fn points(&self) -> Vec<Value> {
        let mut points = Vec::new();
        let arms: Vec<Option<&str>> =
            if self.arms.is_empty() { vec![None] } else { self.arms.iter().map(|a| Some(*a)).collect() };
        for (workload, bs_bytes) in self.workloads {
            for reactors in self.reactors {
                for depth in self.depths {
                    for repeat in 0..self.repeats {
                        for arm in &arms {
                            let mut stem = format!(
                                "blue_{}osd_{reactors}reactor_{}_size1_{workload}_qd{depth}",
                                self.osds,
                                arm.unwrap_or("osd")
                            );
                            stem.push_str(&format!("_r{repeat}"));
                            points.push(json!({
                                "index": points.len(), "stem": stem, "kind": "point", "repeat": repeat, "layout": "blue-1",
                                "arm": arm.map(|a| format!("balance={a}")), "curve": format!("{workload}-{reactors}-{arm:?}"),
                                "pair": repeat,
                                "config": {"osds": self.osds, "reactors": reactors, "store": "blue", "balance": arm.unwrap_or("osd"),
                                    "pool_size": 1, "pgs": 64 * reactors, "bs_bytes": bs_bytes, "workload": workload,
                                    "iodepth": depth, "jobs": 2, "seconds": 60},
                            }));
                        }
                    }
                }
            }
        }
        points
    }

    fn write_point(&self, dir: &Path, point: &Value, fails: bool) {
        let stem = point["stem"].as_str().expect("text");
        let state = if fails { "failed" } else { "done" };
        let error = fails.then_some("osd.0 ended with signal 11 <script>alert(1)</script>");
        let state = json!({"state": state, "error": error, "started_unix_s": 1_763_700_000u64, "seconds": 75.5, "attempts": 1,
            "condition": "prefilled"});
        put(dir, &format!("points/{stem}.state.json"), &state);
        if fails {
            fs::write(dir.join(format!("points/{stem}.log")), "osd.0: it fell\n").expect("a file");
            return;
        }
        let figures = Figures::new(self, point);
        put(dir, &format!("points/{stem}.json"), &figures.result(point, self.smoke));
        if point["repeat"] == 0 {
            put(dir, &format!("points/{stem}.samples.json"), &figures.samples());
        }
    }
}

fn put(dir: &Path, name: &str, value: &Value) {
    fs::write(dir.join(name), serde_json::to_vec(value).expect("JSON")).expect("a file");
}

/// A number from −1 to 1 that depends on the text only.
fn wobble(text: &str) -> f64 {
    let hash =
        text.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    (hash >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

/// Where its threads run.
fn grid(config: &Value) -> Grid {
    let number = |axis: &str| config[axis].as_u64().expect("a number") as usize;
    let request = PlanRequest {
        osds: number("osds"),
        reactors: number("reactors"),
        strategy: config["balance"].as_str().expect("text").parse().expect("a strategy"),
        alien_cpus: Some("26-27,82-83".parse().expect("CPUs")),
        client_cpus: Some("count:8".parse().expect("a number of CPUs")),
        ..PlanRequest::default()
    };
    Grid::plan(&Topology::from_short("2x28x2").expect("a machine"), &request).expect("a grid")
}

/// The figures of a point.
struct Figures {
    iops: f64,
    bs_bytes: f64,
    reads: bool,
    /// Of all OSDs.
    reactors: f64,
    latency_ns: f64,
    limiter: (&'static str, String),
}

impl Figures {
    fn new(study: &Study, point: &Value) -> Figures {
        let config = &point["config"];
        let number = |axis: &str| config[axis].as_f64().expect("a number");
        let text = |axis: &str| config[axis].as_str().expect("text");
        let (reactors, bs_bytes) = (number("osds") * number("reactors"), number("bs_bytes"));
        let reads = text("workload").contains("read");
        let per_reactor = if bs_bytes > 4096.0 {
            9_000.0
        } else if reads {
            46_000.0
        } else {
            17_000.0
        };
        let arm = if text("balance") == "socket" { 0.9 } else { 1.0 };
        // Beyond four reactors the generator is the limit.
        let most = per_reactor * reactors.min(4.2 * number("osds")) * arm * study.speed;
        let inflight = number("iodepth") * 2.0 * number("osds");
        let noise = 1.0 + 0.004 * wobble(point["stem"].as_str().expect("text"));
        let iops = most * inflight / (inflight + 6.0 * reactors) * noise;
        let limiter = match (reactors, inflight) {
            (r, _) if r > 4.0 * number("osds") => {
                ("CLIENT", "a generator thread was busy 97 % of the window".to_owned())
            }
            (_, q) if q < 32.0 => ("QD", format!("{} requests in flight per reactor", q / reactors)),
            _ => ("OSD", "reactors were busy 96 % on average, 98 % at most".to_owned()),
        };
        Figures { iops, bs_bytes, reads, reactors, latency_ns: inflight / iops * 1e9, limiter }
    }

    /// Most operations take a little less than the mean, some four times as long.
    fn histogram(&self) -> Value {
        let count = (self.iops * 60.0) as u64;
        let parts = [(0.7, 0.5), (0.85, 0.3), (1.4, 0.16), (2.5, 0.03), (4.0, 0.01)];
        let buckets: Vec<(u64, u64)> = parts
            .iter()
            .map(|(at, part)| ((self.latency_ns * at) as u64, (count as f64 * part) as u64))
            .collect();
        let sum =
            |power: i32| buckets.iter().map(|(ns, n)| (*ns as f64).powi(power) * *n as f64).sum::<f64>();
        json!({"count": buckets.iter().map(|b| b.1).sum::<u64>(), "sum": sum(1) as u64, "squares": sum(2),
            "min": buckets[0].0, "max": buckets[4].0, "buckets": buckets})
    }

    fn result(&self, point: &Value, smoke: bool) -> Value {
        let ns = |factor: f64| (self.latency_ns * factor) as u64;
        let used = json!({"iops": self.iops, "bw_bytes": self.iops * self.bs_bytes, "total_ios": (self.iops * 60.0) as u64,
            "clat_ns": {"min": ns(0.5), "max": ns(4.0), "mean": self.latency_ns, "stddev": self.latency_ns / 2.0,
                "percentile": {"50.000000": ns(0.85), "95.000000": ns(1.4), "99.000000": ns(2.5), "99.900000": ns(4.0)}}});
        let idle = json!({"iops": 0.0, "total_ios": 0});
        let (read, write) = if self.reads { (&used, &idle) } else { (&idle, &used) };
        let busy = self.reactors * 0.7;
        let seconds = if smoke { 2.0 } else { 60.0 };
        let histogram = self.histogram();
        let per_core = |cores: f64| if smoke { Value::Null } else { json!(self.iops / cores) };
        let marks: Vec<&str> = if smoke { vec!["SHARED: <b>all</b> CPUs are shared"] } else { Vec::new() };
        let drain_s = if self.reads { 0.0 } else { 4.0 };
        let osd_us = (busy + 0.3 + drain_s / seconds) / self.iops * 1e6;
        // In thousandths of the OSDs' CPU time; the rest is no stage's.
        let stages = [
            ("receive", 90),
            ("frame", 60),
            ("route", 30),
            ("pg", 110),
            ("store", 200),
            ("log", 80),
            ("device", 180),
            ("replicas", 20),
            ("reply", 40),
            ("send", 100),
            ("reactor", 70),
        ];
        let stages = stages.map(
            |(stage, part)| json!({"stage": stage, "cpu_ns": osd_us * f64::from(part), "wait_us": null}),
        );
        json!({
            "jobs": [{"read": read, "write": write}],
            "carmine": {
                "stages": {"stages": stages, "unattributed_ns": osd_us * 20.0},
                "plan": {}, "load": {"rw": if self.reads { "randread" } else { "randwrite" }}, "iops": self.iops, "osd_iops": self.iops,
                "window_seconds": seconds, "shared": smoke, "marks": marks,
                "iops_per_core": {"allocated": per_core(self.reactors + 1.0), "used": per_core(self.reactors + 0.1),
                    "busy": per_core(busy + 0.3)},
                "osd_cpu_us_per_op": osd_us, "machine_cpu_us_per_op": osd_us * 1.15, "client_cores_used": 0.8,
                "grid": grid(&point["config"]), "drain": {"wall_ns": 5_000_000_000u64, "cpu_ns": (drain_s * 1e9) as u64, "finished": true},
                "hops_per_op": 0.0, "errors": 0,
                "osds": [{"id": 0, "rss_bytes": 1_200_000_000u64, "cpu_seconds": {"busy": busy * seconds,
                    "spin": (self.reactors - busy) * 0.6 * seconds, "sleep": 0.0, "wait": 0.02 * seconds, "alien": 0.3 * seconds,
                    "kernel_total": self.reactors * seconds}}],
                "verdict": if smoke { "SHARED" } else { self.limiter.0 }, "verdict_reason": self.limiter.1,
                "latency_histogram": {"read": self.reads.then_some(&histogram), "write": (!self.reads).then_some(&histogram)},
                "percent_of_device": self.iops / 2_400.0, "percent_of_messenger": self.iops / 3_900.0,
                "baseline": {"device": {"iops": 240_000.0}, "messenger": {"iops": 390_000.0}},
                "iops_per_drive": self.iops, "device_bytes_per_client_byte": if self.reads { 1.0 } else { 1.4 },
                "wire_bytes_per_client_byte": 1.05, "cache_state": "onode-warm", "flush_mode": "flush per group", "route": "direct",
            }
        })
    }

    fn samples(&self) -> Value {
        let t_ms: Vec<u32> = (1..=60).map(|n| n * 1000).collect();
        let series = |mean: f64, noise: f64| -> Vec<f64> {
            t_ms.iter().map(|t| mean * (1.0 + noise * wobble(&format!("{t}{mean}")))).collect()
        };
        let cpu = |number: u32| {
            let busy = if f64::from(number) < self.reactors {
                0.9
            } else if number == 7 {
                0.8
            } else {
                0.05
            };
            let idle: Vec<f64> = t_ms
                .iter()
                .map(|t| (1.0 - busy * (1.0 + 0.3 * wobble(&format!("{t}-{number}")))).clamp(0.0, 1.0))
                .collect();
            let part = |factor: f64| idle.iter().map(|i| (1.0 - i) * factor).collect::<Vec<f64>>();
            json!({"cpu": number, "user": part(0.6), "system": part(0.35), "irq": part(0.0), "softirq": part(0.05),
                "steal": part(0.0), "idle": idle})
        };
        json!({
            "interval_ms": 1000, "t_ms": t_ms,
            "series": {
                "iops": series(self.iops, 0.05), "p99_ns": series(self.latency_ns * 2.5, 0.2),
                "osd_cores": series(self.reactors, 0.03), "generator_cores": series(0.8, 0.05),
                "osd_wait_cores": series(0.02, 0.5), "memory_bytes": series(1.2e9, 0.002),
                "device_read_bytes_per_s": series(if self.reads { self.iops * self.bs_bytes } else { 1e5 }, 0.05),
                "device_write_bytes_per_s": series(if self.reads { 1e5 } else { self.iops * self.bs_bytes * 1.4 }, 0.05),
                "network_bytes_per_s": series(self.iops * self.bs_bytes * 1.05, 0.05),
            },
            "cpus": (0..8).map(cpu).collect::<Vec<Value>>(),
            "threads": [{"osd": 0, "tid": 7, "name": "osd.0-0", "kind": "reactor", "user_s": self.reactors * 30.0,
                "system_s": self.reactors * 14.0, "wait_s": 0.1}],
            "cores_used_10ms": {"p50": self.reactors * 0.9, "p99": self.reactors, "max": self.reactors + 0.8},
        })
    }
}
