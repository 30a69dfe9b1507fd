//! The testbed of a point: `carmine up`, `peer up`, `down` and `destroy`, and what makes a layout.

use std::collections::BTreeMap;
use std::path::Path;

use carmine_testbed::Wish;
use carmine_testbed::spec::{Axis, peer_axes, place_axes, tuning_axes};
use carmine_topology::{CpuList, Grid, Topology};

use super::load::{AROUND_S, SLOW_BYTES_PER_S, client, is_hosted, load_spec, object_size};
use super::{BoundedCommand, What, is_peer, words};
use crate::archive::Config;
use crate::expand::Machine;
use crate::plan::Plan;

/// Bytes per second that a slow disk takes while block files are written through.
const SLOW_FILE_BYTES_PER_S: f64 = 40e6;
/// Time in which processes start and every PG gets active; `up` has the same limit itself, and hangs if it takes longer.
const START_S: f64 = 90.0;
const STOP_S: f64 = 60.0;
/// `up` gives up on a drive after 8 hours.
const PRECONDITION_LIMIT_S: f64 = 9.0 * 3600.0;
/// Largest write that `up --precondition` makes.
const PRECONDITION_BS_MAX: u64 = 1 << 20;
/// Block file of an OSD if the plan does not name it.
const OSD_SIZE_BYTES: u64 = 4 << 30;
/// Bound of a load of named devices, whose size is not known here.
const DEVICE_LIMIT_S: f64 = 86_400.0;

/// The placement on CPUs, and the options of `carmine up` (for a peer `carmine peer up`) that lead to it, without the folder.
/// A peer gets the CPUs that Carmine would have. Fails if it does not fit the machine.
pub fn start_options(config: &Config, plan: &Plan, machine: &Machine) -> Result<(Grid, Vec<String>), String> {
    let devices = devices(config, machine)?;
    let shared = Vec::from_iter(plan.overprovisioned.then(|| "--overprovisioned".to_owned()));
    let own = [own_options(config, machine, &devices)?, shared.clone()].concat();
    // As `carmine up` would plan it.
    let wish = Wish::from_words(own.clone()).map_err(|e| e.to_string())?;
    let planned = carmine_testbed::Plan::new(&wish, &machine.topology, "").map_err(|e| e.to_string())?;
    let grid = planned.grid;
    if !is_peer(config) {
        return Ok((grid, own));
    }
    let options = [peer_options(config, &grid, &devices)?, shared].concat();
    Ok((grid, options))
}

fn own_options(config: &Config, machine: &Machine, devices: &Option<String>) -> Result<Vec<String>, String> {
    let blue = config.text("store").is_none_or(|store| store == "blue");
    // Devices are used whole; a store in memory has none.
    let given = place_axes().filter(|axis| axis.name != "osd_size_bytes" || devices.is_none());
    let of_axes = options_of(config, given.chain(tuning_axes().filter(|_| blue)));
    let smt = config.text("smt").map(|smt| {
        let reactors = config.number("osds").unwrap_or(1) * config.number("reactors").unwrap_or(1);
        cpu_list(&machine.topology, smt == "on", reactors as usize)
            .ok_or_else(|| format!("smt = {smt}: there are no {reactors} such CPUs beside the client's"))
    });
    let rest = words([("--cpus", smt.transpose()?), ("--devs", devices.clone())]);
    Ok([of_axes, rest, confinement(config)?].concat())
}

/// CPUs for `reactors` reactors: the first threads of as many cores, or with `smt` all threads of as few cores as suffice. Cores
/// are taken from all sockets in turn. `None` if there are too few, or no CPU would be left for a client.
fn cpu_list(topology: &Topology, smt: bool, reactors: usize) -> Option<String> {
    let mut cores: BTreeMap<(usize, usize), Vec<usize>> = BTreeMap::new();
    for cpu in topology.cpus().iter().filter(|cpu| topology.allowed().contains(cpu.cpu)) {
        cores.entry((cpu.socket, cpu.core)).or_default().push(cpu.cpu);
    }
    if smt && cores.values().all(|threads| threads.len() < 2) {
        return None;
    }
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    let ranked = cores.into_iter().map(|((socket, _), threads)| {
        let rank = counts.entry(socket).or_default();
        *rank += 1;
        (*rank, socket, threads)
    });
    let mut in_turn: Vec<(usize, usize, Vec<usize>)> = ranked.collect();
    in_turn.sort_unstable();
    let threads = in_turn.iter().flat_map(|(.., core)| core.iter().take(if smt { core.len() } else { 1 }));
    let chosen: CpuList = threads.take(reactors).copied().collect();
    let fits = chosen.len() == reactors && chosen.len() < topology.allowed().len();
    fits.then(|| chosen.to_string())
}

/// The options of `up` for these settings, as far as the configuration has them.
fn options_of(config: &Config, axes: impl Iterator<Item = &'static Axis>) -> Vec<String> {
    words(axes.map(|axis| (axis.option, config.show(axis.name))))
}

/// The first of the named devices, as many as the OSDs need; `None` for files.
fn devices(config: &Config, machine: &Machine) -> Result<Option<String>, String> {
    if machine.devices.is_empty() || config.text("store") != Some("blue") {
        return Ok(None);
    }
    let each = config.number("osds_per_device").unwrap_or(1).max(1);
    let need = config.number("osds").unwrap_or(1).div_ceil(each) as usize;
    let too_few = || format!("{need} devices are needed, --devs names {}", machine.devices.len());
    machine.devices.get(..need).map(|list| Some(list.join(","))).ok_or_else(too_few)
}

/// `--confine`, if the plan has the axis at all: options stay in force until others are given. Fails for a part of a CPU
/// that is not confined by time.
fn confinement(config: &Config) -> Result<Vec<String>, String> {
    let cpus = config.float("cpus");
    let confine = config.text("confine");
    if let Some(cpus) = cpus.filter(|cpus| cpus.fract() > 0.0 && confine != Some("quota")) {
        let how = confine.map_or_else(|| "nothing confines it".to_owned(), |how| format!("confine = {how}"));
        return Err(format!("cpus = {cpus}: a part of a CPU is CPU time, and {how}; take confine = quota"));
    }
    let cpus = cpus.filter(|_| confine != Some("none")).map_or("none".to_owned(), |cpus| cpus.to_string());
    Ok(words([("--confine", confine.map(str::to_owned)), ("--confine-cpus", confine.map(|_| cpus))]))
}

/// Options of a peer on the CPUs of `grid`; refuses settings that a peer can't have, so that it is not compared with a Carmine that
/// has them.
fn peer_options(config: &Config, grid: &Grid, devices: &Option<String>) -> Result<Vec<String>, String> {
    if config.text("confine") == Some("quota") && config.float("cpus").is_some() {
        return Err("confine = quota: a peer is confined to CPUs, not by time; take cpuset".to_owned());
    }
    if let Some(n) = config.number("osds_per_device").filter(|n| *n > 1) {
        return Err(format!("osds_per_device = {n}: a peer has a device or file for each OSD"));
    }
    // Devices are used whole; the CPUs are those that Carmine would have.
    let given = |axis: &&Axis| {
        !matches!(axis.name, "osd_cpus" | "client_cpus")
            && (axis.name != "osd_size_bytes" || devices.is_none())
    };
    let of_axes = options_of(config, peer_axes().filter(given));
    let settings = config.0.iter().filter_map(|(name, value)| {
        Some(("--opt", Some(format!("{}={}", name.strip_prefix("peer_opt.")?, value.as_str()?))))
    });
    let rest = [
        ("--devs", devices.clone()),
        ("--peer-build", config.show("peer_build")),
        ("--cpus", Some(grid.allocated_cpus().to_string())),
        ("--client-cpus", Some(grid.client_cpus().to_string())),
    ];
    let tuned = config.text("peer") == Some("ceph-tuned");
    let tuned = tuned.then(|| "--tuned".to_owned()).into_iter().collect();
    Ok([of_axes, words(rest.into_iter().chain(settings)), tuned].concat())
}

/// `up --precondition` with the size of the operations that will be tested.
pub fn precondition_options(config: &Config) -> Vec<String> {
    let bs = load_spec(config).bs_bytes;
    let bs = if bs.is_multiple_of(4096) && bs <= PRECONDITION_BS_MAX { bs } else { 4096 };
    ["--precondition", "--precondition-bs", &bs.to_string()].map(str::to_owned).to_vec()
}

/// Starts or stops the OSDs of a layout (a start ends when every PG is active), or removes it.
pub fn testbed_step(what: What, layout: &Path, config: &Config, options: &[String]) -> BoundedCommand {
    let (word, limit_s) = match what {
        What::Stop => ("down", STOP_S),
        What::Destroy => ("destroy", STOP_S),
        _ => ("up", START_S + files_bytes(config) as f64 / SLOW_FILE_BYTES_PER_S),
    };
    let command = if is_peer(config) { format!("peer {word}") } else { word.to_owned() };
    let is_long = options.iter().any(|word| word == "--precondition");
    let drives = config.number("osds").filter(|_| is_long).unwrap_or(0);
    let limit_s = limit_s + drives as f64 * PRECONDITION_LIMIT_S;
    BoundedCommand::new(what, &command, layout, options.to_vec(), limit_s)
}

/// Block files of all OSDs, bytes; none of a store in memory.
pub(crate) fn files_bytes(config: &Config) -> u64 {
    if !is_durable(config) {
        return 0;
    }
    config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES) * config.number("osds").unwrap_or(1)
}

/// True if the store keeps its data over a restart, as a peer's does.
pub fn is_durable(config: &Config) -> bool {
    is_peer(config) || config.text("store") == Some("blue")
}

/// The points for which a layout is made.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The largest load that any point spreads over, bytes.
    pub size_bytes: u64,
    /// Of the writes that age the store: the same for all layouts of a run.
    pub seed: u64,
    /// Options of `up`.
    pub start: &'a [String],
    /// Points whose load another client makes, or in other volumes: each names its objects its own way.
    pub others: &'a [Config],
}

/// Steps that make a layout.
pub fn prepare_steps(layout: &Path, config: &Config, prepare: &Prepare<'_>) -> Vec<BoundedCommand> {
    if !is_durable(config) {
        return Vec::new();
    }
    let count = |axis: &str| config.number(axis).filter(|n| *n > 0);
    let copies = count("pool_size").unwrap_or(1);
    let size = format!("--size {}", prepare.size_bytes);
    let filled = count("fill").map(|percent| format!("--fill {percent}"));
    // Bytes that are filled, and overwritten by a round of aging; not known on named devices.
    let filled_bytes = match count("fill") {
        Some(_) if prepare.start.iter().any(|word| word == "--devs") => None,
        Some(percent) => Some(files_bytes(config) * percent / 100),
        None => Some(prepare.size_bytes * copies),
    };
    let write = |config: &Config, words: &str, bytes: Option<u64>| {
        bench(layout, config, &format!("--rw read --runtime 1s --prefill {words}"), bytes)
    };
    let mut steps = vec![testbed_step(What::Prepare, layout, config, prepare.start)];
    steps.extend(filled.as_ref().map(|filled| write(config, &format!("always {filled}"), filled_bytes)));
    let rest = if filled.is_some() { "auto" } else { "always" };
    for config in std::iter::once(config).chain(prepare.others) {
        // rados bench reads objects with the points' names, which the points write themselves.
        if config.text("client") != Some("rados-bench") {
            steps.push(write(config, &format!("{rest} {size}"), Some(prepare.size_bytes * copies)));
        }
    }
    if let Some(rounds) = count("age") {
        let over = filled.unwrap_or(size);
        let words = format!("--age {rounds} --seed {} --prefill never {over}", prepare.seed);
        steps.push(bench(layout, config, &words, filled_bytes.map(|bytes| bytes.saturating_mul(rounds))));
    }
    steps.push(BoundedCommand { what: What::Prepare, ..testbed_step(What::Stop, layout, config, &[]) });
    steps
}

/// A load by the client that the points use: each names its objects its own way. `bytes` is what it writes, if that is known.
fn bench(layout: &Path, config: &Config, options: &str, bytes: Option<u64>) -> BoundedCommand {
    let limit_s = bytes.map_or(DEVICE_LIMIT_S, |bytes| AROUND_S + bytes as f64 / SLOW_BYTES_PER_S);
    let options = format!("--bs 64k --iodepth 16 {options}").split(' ').map(str::to_owned).collect();
    // A job for each image.
    let volumes = config.show("volumes").filter(|_| is_hosted(config));
    let volumes = words([("--volumes", volumes.clone()), ("--numjobs", volumes)]);
    let options = [options, object_size(config), volumes, client(config)].concat();
    BoundedCommand::new(What::Prepare, "bench", layout, options, limit_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::shell_line;

    #[test]
    fn whole_cores_or_both_threads_of_half_as_many() {
        let machine = Topology::from_short("2x2x2").unwrap();
        let threads_of = |list: &str| {
            let cpus = list.parse::<CpuList>().unwrap().to_vec();
            let mut cores: Vec<usize> = cpus.iter().map(|c| machine.cpu(*c).unwrap().core).collect();
            cores.sort_unstable();
            cores.dedup();
            (cpus.len(), cores.len())
        };
        assert_eq!(threads_of(&cpu_list(&machine, false, 4).unwrap()), (4, 4));
        assert_eq!(threads_of(&cpu_list(&machine, true, 4).unwrap()), (4, 2));
        assert_eq!(cpu_list(&machine, false, 5), None);
        assert_eq!(cpu_list(&machine, true, 8), None, "a client needs a CPU");
        assert_eq!(cpu_list(&Topology::from_short("1x4x1").unwrap(), true, 2), None);
    }

    #[test]
    fn parts_of_a_cpu_are_for_quotas() {
        let confined = |how: &str, cpus: f64| {
            let mut config = Config::default();
            config.set("cpus", cpus);
            config.set("confine", how);
            confinement(&config).map(|words| words.join(" "))
        };
        assert_eq!(confined("quota", 0.5), Ok("--confine quota --confine-cpus 0.5".into()));
        assert_eq!(confined("cpuset", 2.0), Ok("--confine cpuset --confine-cpus 2".into()));
        for how in ["cpuset", "none"] {
            let why = confined(how, 0.5).unwrap_err();
            assert!(why.contains("cpus = 0.5") && why.contains("take confine = quota"), "{why}");
        }
        let mut alone = Config::default();
        alone.set("cpus", 2);
        assert_eq!(confinement(&alone), Ok(Vec::new()), "reactors may follow from it");
        alone.set("cpus", 1.5);
        assert!(confinement(&alone).unwrap_err().contains("nothing confines it"));
        alone.set("cpus", "no-limit");
        alone.set("confine", "quota");
        assert_eq!(confinement(&alone).unwrap().last().map(String::as_str), Some("none"));
    }

    fn lines(axes: &[(&str, u64)], client: &str) -> Vec<String> {
        let mut config = Config::default();
        config.set("store", "blue");
        config.set("client", client);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        let mut other = Config::default();
        other.set("client", "fio-rados");
        let others = if client == "own" { vec![other] } else { Vec::new() };
        let prepare = Prepare { size_bytes: 1 << 26, seed: 7, start: &[], others: &others };
        let steps = prepare_steps(Path::new("/l"), &config, &prepare);
        steps.iter().map(|step| shell_line(&step.argv)).filter(|line| line.contains("bench ")).collect()
    }

    #[test]
    fn the_load_is_written_once_by_each_client() {
        let own = "carmine bench --dir /l --bs 64k --iodepth 16 --rw read --runtime 1s --prefill always";
        let wanted = [format!("{own} --size 67108864"), format!("{own} --size 67108864 --client fio-rados")];
        assert_eq!(lines(&[], "own"), wanted);
        assert!(lines(&[], "rados-bench").is_empty(), "its points have names of their own");
    }

    #[test]
    fn stores_are_filled_and_then_aged_by_the_same_writes() {
        let lines = lines(&[("fill", 70), ("age", 2)], "fio-rbd");
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("--prefill always --fill 70"), "{}", lines[0]);
        assert!(lines[1].contains("--prefill auto --size 67108864"), "{}", lines[1]);
        let aged = "carmine bench --dir /l --bs 64k --iodepth 16 --age 2 --seed 7 --prefill never --fill 70";
        assert!(lines[2].starts_with(aged) && lines[2].ends_with("--client fio-rbd"), "{}", lines[2]);
    }
}
