//! `carmine up`, `down` and `destroy`.

use std::path::Path;

use carmine_testbed::spec::{place_axes, tuning_axes};
use carmine_topology::Grid;

use super::load::bs_bytes;
use super::step::{Step, What};
use super::{is_peer, peer};
use crate::archive::Config;
use crate::expand::{Machine, cpu_list};

/// Bytes per second that a slow disk takes while block files are written through.
const SLOW_BYTES_PER_S: f64 = 40e6;
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

/// Who would sit where, and the options of `carmine up` (of `carmine peer up` for a peer) for that, without the folder. A
/// peer gets the CPUs that Carmine would have. Fails if it does not fit the machine.
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
    peer::check(config)?;
    let options = peer::options(config, &grid, overprovisioned, devices(config, machine)?);
    Ok((grid, options))
}

fn own_options(config: &Config, overprovisioned: bool, machine: &Machine) -> Result<Vec<String>, String> {
    let mut options = Vec::new();
    let devices = devices(config, machine)?;
    let blue = config.text("store").is_none_or(|store| store == "blue");
    // Devices are used whole; a store in memory has none.
    let given = place_axes().filter(|axis| axis.name != "osd_size_bytes" || devices.is_empty());
    for axis in given.chain(tuning_axes().filter(|_| blue)) {
        let Some(value) = config.show(axis.name) else { continue };
        match axis.option.ends_with('=') {
            true => options.push(format!("{}{value}", axis.option)),
            false => options.extend([axis.option.to_owned(), value]),
        }
    }
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
pub fn start_step(layout: &Path, config: &Config, options: &[String]) -> Step {
    up(What::Start, layout, config, options)
}

pub(super) fn up(what: What, layout: &Path, config: &Config, options: &[String]) -> Step {
    let mut argv = command("up", layout, config);
    argv.extend_from_slice(options);
    let bytes =
        config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES) * config.number("osds").unwrap_or(1);
    let drives = if options.iter().any(|word| word == "--precondition") { devices_of(options) } else { 0 };
    let limit_s = START_S + GRACE_S + bytes as f64 / SLOW_BYTES_PER_S + drives as f64 * PRECONDITION_LIMIT_S;
    Step::new(what, argv, limit_s)
}

/// Devices that `--devs` names.
fn devices_of(options: &[String]) -> usize {
    let at = options.iter().position(|word| word == "--devs");
    at.and_then(|at| options.get(at + 1)).map_or(0, |list| list.split(',').count())
}

/// Stops the OSDs of a layout.
pub fn stop_step(layout: &Path, config: &Config) -> Step {
    Step::new(What::Stop, command("down", layout, config), STOP_S)
}

/// Removes a layout.
pub fn destroy_step(layout: &Path, config: &Config) -> Step {
    Step::new(What::Destroy, command("destroy", layout, config), STOP_S)
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
