//! Power cuts of the whole machine in the middle of a load: what was acknowledged is there, although the drives lose what was not flushed.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // starts processes and reads files

use std::time::Duration;

use carmine_tests::Background;
use carmine_tests::power::Machine;
use carmine_tests::verified::{check_replicas, dies_with_its_osds, let_write, load, read_back, state_file};
use fastrand::Rng;

const OSDS: usize = 3;
const DATA_BYTES: u64 = 3 * (256 << 20);

/// A machine with three OSDs, which share its second drive.
fn machine() -> Option<Machine> {
    let machine = Machine::new(DATA_BYTES)?;
    let drive = ["--devs", machine.device(), "--osds-per-device", "3", "--osds", "3", "--size", "3"];
    let rest = ["--store", "blue", "--reactors", "1", "--pgs", "32", "--overprovisioned"];
    machine.bed().ok("up", &[&drive[..], &rest].concat());
    Some(machine)
}

/// Cuts the power under load and starts everything again.
///
/// # Errors
/// Something that was acknowledged is lost, or an OSD finds too little to start with.
fn survives_a_cut(machine: &Machine, rng: &mut Rng) -> Result<(), String> {
    let state = state_file(machine.bed());
    let state = state.to_str().expect("UTF-8");
    let bench = Background::start(machine.bed(), "bench", &load(state, "60"));
    let_write(machine.bed(), Duration::from_millis(rng.u64(500..3000)));
    let [data, system] = machine.cut_power(rng);
    println!("the drives lost {data} and {system} sectors");
    dies_with_its_osds(bench);
    machine.power_on();
    let up =
        machine.bed().run("up", &["--reactors", if rng.bool() { "2" } else { "1" }, "--overprovisioned"]);
    if !up.status.success() {
        return Err(String::from_utf8_lossy(&up.stderr).into_owned());
    }
    read_back(machine.bed(), state)?;
    check_replicas(machine.bed(), OSDS);
    Ok(())
}

fn survives_cuts(times: u64) {
    let Some(machine) = machine() else { return };
    for cut in 0..times {
        let survived = survives_a_cut(&machine, &mut Rng::with_seed(cut));
        assert!(survived.is_ok(), "power cut {cut}: {}", survived.unwrap_err());
    }
}

/// About 30 s.
#[test]
fn power_cuts_lose_nothing_acknowledged() {
    survives_cuts(3);
}

/// `scripts/test -p carmine-tests --test power_cut -- --ignored twenty`: about 4 minutes.
#[test]
#[ignore = "minutes"]
fn twenty_power_cuts_lose_nothing_acknowledged() {
    survives_cuts(20);
}

/// The control: the test above finds a drive that lies about flushes. About 20 s.
#[test]
fn a_drive_that_ignores_flushes_is_found_out() {
    let Some(machine) = machine() else { return };
    machine.ignore_flushes();
    let lost = (0..3).find_map(|cut| survives_a_cut(&machine, &mut Rng::with_seed(cut)).err());
    let lost = lost.expect("three power cuts of a drive that flushes nothing lost nothing");
    println!("{lost}");
}
