//! The testbed of a point: `carmine up`, `peer up`, `down` and `destroy`, and what makes a layout.

use std::path::Path;

use carmine_testbed::spec::{Axis, peer_axes, place_axes, tuning_axes};
use carmine_topology::{CpuList, Grid};

use super::load::{AROUND_S, SLOW_BYTES_PER_S, bs_bytes, client, is_hosted, volumes};
use super::{BoundedCommand, What, is_peer};
use crate::archive::Config;
use crate::expand::{Machine, cpu_list};

/// Bytes per second that a slow disk takes while block files are written through.
const SLOW_FILE_BYTES_PER_S: f64 = 40e6;
/// Time in which processes start and every PG gets active.
const START_S: f64 = 60.0;
/// `up` has a time limit of its own; if it still runs this long after it, it hangs.
const GRACE_S: f64 = 30.0;
const STOP_S: f64 = 60.0;
/// `up` gives a drive up after 8 hours.
const PRECONDITION_LIMIT_S: f64 = 9.0 * 3600.0;
/// Largest write that `up --precondition` makes.
const PRECONDITION_BS_MAX: u64 = 1 << 20;
/// Block file of an OSD if the plan does not name it.
const OSD_SIZE_BYTES: u64 = 4 << 30;

/// The placement on CPUs, and the options of `carmine up` (for a peer `carmine peer up`) that lead to it, without the folder.
/// A peer gets the CPUs that Carmine would have. Fails if it does not fit the machine.
pub fn start_options(
    config: &Config,
    overprovisioned: bool,
    machine: &Machine,
) -> Result<(Grid, Vec<String>), String> {
    let own = own_options(config, overprovisioned, machine)?;
    let grid = machine.grid(&own)?;
    if !is_peer(config) {
        return Ok((grid, own));
    }
    check_peer(config)?;
    let options = peer_options(config, &grid, overprovisioned, devices(config, machine)?);
    Ok((grid, options))
}

fn own_options(config: &Config, overprovisioned: bool, machine: &Machine) -> Result<Vec<String>, String> {
    let devices = devices(config, machine)?;
    let blue = config.text("store").is_none_or(|store| store == "blue");
    // Devices are used whole; a store in memory has none.
    let given = place_axes().filter(|axis| axis.name != "osd_size_bytes" || devices.is_empty());
    let mut options = options_of(config, given.chain(tuning_axes().filter(|_| blue)));
    if let Some(smt) = config.text("smt") {
        let reactors = config.number("osds").unwrap_or(1) * config.number("reactors").unwrap_or(1);
        let list = cpu_list(&machine.topology, smt == "on", reactors as usize)
            .ok_or_else(|| format!("smt = {smt}: there are no {reactors} such CPUs beside the client's"))?;
        options.extend(["--cpus".to_owned(), list]);
    }
    options.extend(devices);
    options.extend(confinement(config)?);
    if overprovisioned {
        options.push("--overprovisioned".to_owned());
    }
    Ok(options)
}

/// The options of `up` for these settings, as far as the configuration has them.
fn options_of(config: &Config, axes: impl Iterator<Item = &'static Axis>) -> Vec<String> {
    let given = axes.filter_map(|axis| Some((axis.option, config.show(axis.name)?)));
    let words = given.map(|(option, value)| match option.ends_with('=') {
        true => vec![format!("{option}{value}")],
        false => vec![option.to_owned(), value],
    });
    words.flatten().collect()
}

/// `--devs`: the first of the named devices, as many as the OSDs need.
fn devices(config: &Config, machine: &Machine) -> Result<Vec<String>, String> {
    if machine.devices.is_empty() || config.text("store") != Some("blue") {
        return Ok(Vec::new());
    }
    let each = config.number("osds_per_device").unwrap_or(1).max(1);
    let need = config.number("osds").unwrap_or(1).div_ceil(each) as usize;
    match machine.devices.get(..need) {
        Some(list) => Ok(vec!["--devs".to_owned(), list.join(",")]),
        None => Err(format!("{need} devices are needed, --devs names {}", machine.devices.len())),
    }
}

/// `--confine`, where the plan has the axis at all: options stay in force until others are given. Fails for a part of a CPU
/// that is not confined by time.
fn confinement(config: &Config) -> Result<Vec<String>, String> {
    let cpus = config.float("cpus");
    let confine = config.text("confine");
    if let Some(cpus) = cpus.filter(|cpus| cpus.fract() > 0.0)
        && confine != Some("quota")
    {
        let how = confine.map_or_else(|| "nothing confines it".to_owned(), |how| format!("confine = {how}"));
        return Err(format!("cpus = {cpus}: a part of a CPU is CPU time, and {how}; take confine = quota"));
    }
    let Some(confine) = confine else { return Ok(Vec::new()) };
    let cpus = cpus.filter(|_| confine != "none").map_or_else(|| "none".to_owned(), |cpus| cpus.to_string());
    Ok(["--confine", confine, "--confine-cpus", &cpus].map(str::to_owned).to_vec())
}

/// `up --precondition` with the size of the operations that will be tested.
pub fn precondition_options(config: &Config) -> Vec<String> {
    let bs = bs_bytes(config);
    let bs = if bs.is_multiple_of(4096) && bs <= PRECONDITION_BS_MAX { bs } else { 4096 };
    ["--precondition", "--precondition-bs", &bs.to_string()].map(str::to_owned).to_vec()
}

/// Starts the OSDs of a layout; it ends when every PG is active.
pub fn start_step(layout: &Path, config: &Config, options: &[String]) -> BoundedCommand {
    up(What::Start, layout, config, options)
}

fn up(what: What, layout: &Path, config: &Config, options: &[String]) -> BoundedCommand {
    let mut argv = command("up", layout, config);
    argv.extend_from_slice(options);
    let bytes = files_bytes(config);
    let drives = if options.iter().any(|word| word == "--precondition") { devices_of(options) } else { 0 };
    let limit_s =
        START_S + GRACE_S + bytes as f64 / SLOW_FILE_BYTES_PER_S + drives as f64 * PRECONDITION_LIMIT_S;
    BoundedCommand::new(what, argv, limit_s)
}

/// Block files of all OSDs, bytes.
pub(crate) fn files_bytes(config: &Config) -> u64 {
    config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES) * config.number("osds").unwrap_or(1)
}

/// Devices that `--devs` names.
fn devices_of(options: &[String]) -> usize {
    let at = options.iter().position(|word| word == "--devs");
    at.and_then(|at| options.get(at + 1)).map_or(0, |list| list.split(',').count())
}

/// Stops the OSDs of a layout.
pub fn stop_step(layout: &Path, config: &Config) -> BoundedCommand {
    BoundedCommand::new(What::Stop, command("down", layout, config), STOP_S)
}

/// Removes a layout.
pub fn destroy_step(layout: &Path, config: &Config) -> BoundedCommand {
    BoundedCommand::new(What::Destroy, command("destroy", layout, config), STOP_S)
}

/// `carmine WORD --dir LAYOUT`, or the peer's.
fn command(word: &str, layout: &Path, config: &Config) -> Vec<String> {
    let layout = layout.display().to_string();
    let words: &[&str] = match is_peer(config) {
        true => &["carmine", "peer", word, "--dir", &layout],
        false => &["carmine", word, "--dir", &layout],
    };
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Refuses what a peer can't be given, so that it is not compared with a Carmine that has it.
fn check_peer(config: &Config) -> Result<(), String> {
    if config.text("confine") == Some("quota") && config.float("cpus").is_some() {
        return Err("confine = quota: a peer is confined to CPUs, not by time; take cpuset".to_owned());
    }
    match config.number("osds_per_device") {
        Some(n) if n > 1 => Err(format!("osds_per_device = {n}: a peer has a device or file for each OSD")),
        _ => Ok(()),
    }
}

/// Options of a peer on the CPUs of `grid`.
fn peer_options(config: &Config, grid: &Grid, overprovisioned: bool, devices: Vec<String>) -> Vec<String> {
    // Devices are used whole; the CPUs are those that Carmine would have.
    let given = |axis: &&Axis| {
        !matches!(axis.name, "osd_cpus" | "client_cpus")
            && (axis.name != "osd_size_bytes" || devices.is_empty())
    };
    let mut options = [devices.clone(), options_of(config, peer_axes().filter(given))].concat();
    if let Some(build) = config.show("peer_build") {
        options.extend(["--peer-build".to_owned(), build]);
    }
    for (name, value) in &config.0 {
        if let (Some(name), Some(value)) = (name.strip_prefix("peer_opt."), value.as_str()) {
            options.extend(["--opt".to_owned(), format!("{name}={value}")]);
        }
    }
    let mut put = |option: &str, cpus: CpuList| options.extend([option.to_owned(), cpus.to_string()]);
    put("--cpus", grid.allocated_cpus());
    put("--client-cpus", grid.client_cpus());
    if config.text("peer") == Some("ceph-tuned") {
        options.push("--tuned".to_owned());
    }
    if overprovisioned {
        options.push("--overprovisioned".to_owned());
    }
    options
}

/// Bound of a step on named devices, whose size is not known here.
const DEVICE_LIMIT_S: f64 = 86_400.0;

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
    let size = ["--size".to_owned(), prepare.size_bytes.to_string()];
    let filled = count("fill").map(|percent| ["--fill".to_owned(), percent.to_string()]);
    let bytes = filled_bytes(config, prepare);
    let copies = count("pool_size").unwrap_or(1);
    let once = |bytes: u64| bytes * copies;
    let write = ["--rw", "read", "--runtime", "1s", "--prefill"];
    let with = |word: &'static str| [&write[..], &[word]].concat();
    let mut steps = vec![up(What::Prepare, layout, config, prepare.start)];
    if let Some(filled) = &filled {
        steps.push(bench(layout, config, &with("always"), filled, bytes.map(once)));
    }
    let rest = if filled.is_some() { "auto" } else { "always" };
    for config in std::iter::once(config).chain(prepare.others) {
        // rados bench reads objects that have the points' names: the points write them themselves.
        if config.text("client") != Some("rados-bench") {
            steps.push(bench(layout, config, &with(rest), &size, Some(once(prepare.size_bytes))));
        }
    }
    if let Some(rounds) = count("age") {
        let (rounds_s, seed) = (rounds.to_string(), prepare.seed.to_string());
        let words = ["--age", &rounds_s, "--seed", &seed, "--prefill", "never"];
        let all = bytes.map(|bytes| once(bytes).saturating_mul(rounds));
        steps.push(bench(layout, config, &words, filled.as_ref().unwrap_or(&size), all));
    }
    steps.push(BoundedCommand { what: What::Prepare, ..stop_step(layout, config) });
    steps
}

/// Bytes that are filled, and overwritten by a round of aging; `None` on named devices.
fn filled_bytes(config: &Config, prepare: &Prepare<'_>) -> Option<u64> {
    let Some(percent) = config.number("fill").filter(|percent| *percent > 0) else {
        return Some(prepare.size_bytes);
    };
    let number = |axis: &str| config.number(axis).unwrap_or(1).max(1);
    let on_files = !prepare.start.iter().any(|word| word == "--devs");
    on_files.then(|| files_bytes(config) / number("pool_size") * percent / 100)
}

/// A load by the client that the points use: each names its objects its own way. `bytes` is what it writes, if that is known.
fn bench(
    layout: &Path,
    config: &Config,
    words: &[&str],
    size: &[String; 2],
    bytes: Option<u64>,
) -> BoundedCommand {
    let limit_s = bytes.map_or(DEVICE_LIMIT_S, |bytes| AROUND_S + bytes as f64 / SLOW_BYTES_PER_S);
    let layout = layout.display().to_string();
    let head = ["carmine", "bench", "--dir", &layout, "--bs", "64k", "--iodepth", "16"];
    let words = head.iter().chain(words).map(|word| (*word).to_owned());
    let mut argv: Vec<String> = words.chain(size.iter().cloned()).collect();
    if is_hosted(config) {
        argv.extend(volumes(config));
    }
    argv.extend(client(config));
    BoundedCommand::new(What::Prepare, argv, limit_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::shell_line;

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
