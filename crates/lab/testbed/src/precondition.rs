//! Writing a drive into the state in which it stays (`--precondition`): a fresh SSD is faster than one that has been full
//! for a while. First twice its capacity sequentially, then rounds of random writes until their rates are steady.

use std::fmt;
use std::io::{self, Seek as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use carmine_load::{parse_bytes, parse_millis};
use carmine_types::counted;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{self as fs, File, OpenOptions};
use nix::libc;
use serde::{Deserialize, Serialize};

use crate::drive::own_name;
use crate::error::{Result, fail_if, failed, refuse};
use crate::plan::real;
use crate::slice::open_alone;
use crate::testbed::{Event, StartOptions};

/// Bytes of a sequential write, and of a piece of random bytes.
const PIECE_BYTES: u64 = 1 << 20;
/// Pieces of random bytes, so that a drive that looks for equal data finds little.
const PIECES: u64 = 16;
/// Sequential writes in flight.
const SEQUENTIAL_DEPTH: usize = 8;
/// Random writes in flight.
const RANDOM_DEPTH: usize = 32;
/// A write past the page cache begins in memory at a multiple of this.
const ALIGN_BYTES: usize = 4096;
/// Time between two reports of progress.
const LOOK: Duration = Duration::from_millis(50);
/// Most rounds, as in SNIA's test specification: a drive that is not steady by then never will be.
const ROUNDS_MAX: usize = 25;
/// Rounds that are looked at.
const WINDOW: usize = 5;
/// Largest less smallest rate, as a part of the mean.
const RANGE_MAX: f64 = 0.20;
/// Rise or fall of the fitted line over the window, as a part of the mean.
const RISE_MAX: f64 = 0.10;

/// How drives are preconditioned: options of `up`.
#[derive(clap::Args, Clone, PartialEq, Eq, Debug)]
pub struct PreconditionOptions {
    /// Write the drives of --devs into their steady state before the stores are made: twice their capacity sequentially,
    /// then rounds of random writes until five rounds differ by at most 20 % and drift by at most 10 % (SNIA's definition).
    /// Takes hours; files and virtual disks are left alone
    #[arg(long, help_heading = "Storage")]
    pub precondition: bool,
    /// Size of the random writes: the one that will be tested
    #[arg(id = "precondition_bs", long = "precondition-bs", value_name = "SIZE", default_value = "4k", value_parser = parse_bytes, help_heading = "Storage")]
    pub bs_bytes: u64,
    /// Go on with a drive that is not steady after this time
    #[arg(id = "precondition_limit", long = "precondition-limit", value_name = "TIME", default_value = "8h", value_parser = parse_millis, help_heading = "Storage")]
    pub limit_ms: u64,
    /// Length of a round; SNIA's is a minute
    #[arg(id = "precondition_round", long = "precondition-round", value_name = "TIME", default_value = "60", value_parser = parse_millis, hide = true)]
    pub round_ms: u64,
    /// Also on virtual disks, where it means nothing (tests use it)
    #[arg(id = "precondition_virtual", long = "precondition-virtual", hide = true)]
    pub virtual_too: bool,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// The rates of the last rounds are steady.
    Steady,
    /// The time or the number of rounds ran out before.
    Unsteady,
    /// A file or a virtual disk: there is no drive whose state would show.
    Na,
}

/// The preconditioning of one drive.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Preconditioned {
    /// The drive; `files` for testbeds without named devices.
    pub device: PathBuf,
    /// How it ended.
    pub outcome: Outcome,
    /// Bytes of a random write.
    pub bs_bytes: u64,
    /// IOPS of each round.
    pub rounds_iops: Vec<f64>,
    /// How long it took, seconds.
    pub seconds: f64,
}

impl Preconditioned {
    /// One that has no state to bring about.
    fn na(device: &Path, options: &PreconditionOptions) -> Self {
        let (device, bs_bytes) = (device.to_owned(), options.bs_bytes);
        Self { device, outcome: Outcome::Na, bs_bytes, rounds_iops: Vec::new(), seconds: 0.0 }
    }
}

impl fmt::Display for Preconditioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.device.display();
        let outcome = match self.outcome {
            Outcome::Na => return write!(f, "{device}: n/a: there is no drive of its own behind it"),
            Outcome::Steady => "steady",
            Outcome::Unsteady => "NOT steady",
        };
        let rounds = counted(self.rounds_iops.len(), "round");
        let iops = self.rounds_iops.last().copied().unwrap_or(0.0);
        let (bs_bytes, seconds) = (self.bs_bytes, self.seconds);
        write!(f, "{device}: {outcome} after {rounds} of {bs_bytes} bytes at {iops:.0} IOPS, {seconds:.0} s")
    }
}

/// Preconditions every named drive, one after the other; virtual disks and files are named and left alone.
///
/// # Errors
/// A drive that is in use, or not blank without `wipe`; I/O errors; an interruption.
pub fn run(
    devices: &[PathBuf],
    wipe: bool,
    options: &PreconditionOptions,
    start: &mut StartOptions<'_>,
) -> Result<Vec<Preconditioned>> {
    let bs_bytes = options.bs_bytes;
    let is_size = bs_bytes.is_multiple_of(ALIGN_BYTES as u64) && (1..=PIECE_BYTES).contains(&bs_bytes);
    refuse!(!is_size, "--precondition-bs {bs_bytes}: take a multiple of 4096 up to 1m");
    if devices.is_empty() {
        return Ok(vec![Preconditioned::na(Path::new("files"), options)]);
    }
    let one = |device: &PathBuf| match is_virtual(device) && !options.virtual_too {
        true => Ok(Preconditioned::na(device, options)),
        false => drive(device, wipe, options, start),
    };
    devices.iter().map(one).collect()
}

/// True for disks behind which there need not be one drive: loop devices, mappers, RAM, and those of virtual machines.
fn is_virtual(device: &Path) -> bool {
    let name = own_name(&real(device));
    let sys = fs::canonicalize(Path::new("/sys/class/block").join(&name)).unwrap_or_default();
    let mut parts = sys.iter().filter_map(|part| part.to_str());
    parts.any(|part| part == "virtual" || part.starts_with("virtio")) || name.starts_with("xvd")
}

fn drive(
    device: &Path,
    wipe: bool,
    options: &PreconditionOptions,
    start: &mut StartOptions<'_>,
) -> Result<Preconditioned> {
    let (begin, bs_bytes, cancel) = (Instant::now(), options.bs_bytes, start.cancel);
    let stop = || cancel.load(Relaxed) || begin.elapsed() >= Duration::from_millis(options.limit_ms);
    let mut tell = |what: &str, done: u64, total: u64| {
        let what = format!("{}: {what}", device.display());
        (start.events)(Event::Progress { what, done, total, is_bytes: false });
    };
    let drive = Drive::open(device, wipe)?;
    let (pieces, blocks) = (drive.bytes / PIECE_BYTES, (drive.bytes / bs_bytes).max(1));
    let in_order = |number: u64| (number < 2 * pieces && !stop()).then(|| number % pieces);
    drive.write(SEQUENTIAL_DEPTH, PIECE_BYTES, &in_order, &mut |done| {
        tell("writing twice its capacity", done * PIECE_BYTES, 2 * drive.bytes);
    })?;
    let mut rounds_iops = Vec::new();
    while !is_steady(&rounds_iops) && rounds_iops.len() < ROUNDS_MAX && !stop() {
        tell("rounds of random writes", rounds_iops.len() as u64, ROUNDS_MAX as u64);
        let round = Instant::now();
        let over = || round.elapsed() >= Duration::from_millis(options.round_ms) || stop();
        let anywhere = |_| (!over()).then(|| fastrand::u64(..blocks));
        let done = drive.write(RANDOM_DEPTH, bs_bytes, &anywhere, &mut |_| ())?;
        rounds_iops.push(done as f64 / round.elapsed().as_secs_f64());
    }
    fail_if!(cancel.load(Relaxed), "interrupted");
    let outcome = if is_steady(&rounds_iops) { Outcome::Steady } else { Outcome::Unsteady };
    let (device, seconds) = (device.to_owned(), begin.elapsed().as_secs_f64());
    Ok(Preconditioned { device, outcome, bs_bytes, rounds_iops, seconds })
}

/// A drive that nobody else uses.
struct Drive {
    /// Past the page cache.
    file: File,
    _own: File,
    bytes: u64,
    /// Incompressible data.
    data: Vec<u8>,
}

impl Drive {
    fn open(name: &Path, wipe: bool) -> Result<Self> {
        let mut own = open_alone(name, wipe)?;
        let file = OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(name)?;
        let mut data = vec![0; (PIECES * PIECE_BYTES) as usize + ALIGN_BYTES];
        fastrand::fill(&mut data);
        Ok(Self { file, bytes: own.seek(io::SeekFrom::End(0))?, _own: own, data })
    }

    /// Makes writes of `bytes`, `depth` at a time, at the places that `place_of` gives for 0, 1, … in units of their size, until it
    /// gives none. Tells `progress` the writes done, and returns their number when the drive has them all.
    fn write(
        &self,
        depth: usize,
        bytes: u64,
        place_of: &(dyn Fn(u64) -> Option<u64> + Sync),
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64> {
        let (next, done, broken) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        let data = &self.data[self.data.as_ptr().align_offset(ALIGN_BYTES)..];
        let writer = || -> io::Result<()> {
            loop {
                let number = next.fetch_add(1, Relaxed);
                let place = place_of(number).filter(|_| !broken.load(Relaxed));
                let Some(place) = place else { return Ok(()) };
                let piece = &data[(number % PIECES * PIECE_BYTES) as usize..][..bytes as usize];
                let written = self.file.file().write_all_at(piece, place * bytes);
                written.inspect_err(|_| broken.store(true, Relaxed))?;
                done.fetch_add(1, Relaxed);
            }
        };
        let written = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..depth).map(|_| scope.spawn(writer)).collect();
            while !writers.iter().all(|writer| writer.is_finished()) {
                std::thread::sleep(LOOK);
                progress(done.load(Relaxed));
            }
            writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Ok(())))
        });
        written.map_err(|e| failed!("cannot write to {}: {e}", self.file.path().display()))?;
        self.file.sync_data()?;
        Ok(done.into_inner())
    }
}

/// True if the last [`WINDOW`] rates are steady. The definition is SNIA's (Solid State Storage Performance Test Specification,
/// "Steady State"): over a window of five rounds the rates differ by at most 20 % of their mean, and the line fitted to them by
/// least squares rises or falls by at most 10 % of it. fio's `steadystate=iops` and `iops_slope` test the same two things.
fn is_steady(rates: &[f64]) -> bool {
    let Some(window) = rates.last_chunk::<WINDOW>() else { return false };
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    let (most, least) =
        window.iter().fold((f64::MIN, f64::MAX), |(most, least), x| (most.max(*x), least.min(*x)));
    // The slope of the least-squares line through the rates, times the length of the window.
    let places = || (0..WINDOW).map(|x| x as f64 - (WINDOW - 1) as f64 / 2.0);
    let slope = places().zip(window).map(|(x, y)| x * y).sum::<f64>() / places().map(|x| x * x).sum::<f64>();
    let rise = slope * (WINDOW - 1) as f64;
    mean > 0.0 && most - least <= RANGE_MAX * mean && rise.abs() <= RISE_MAX * mean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flat_rates_are_steady_and_others_are_not() {
        for (rates, steady) in [
            (&[100.0, 100.0, 100.0, 100.0, 100.0][..], true),
            (&[900.0, 500.0, 101.0, 99.0, 102.0, 100.0, 98.0], true),
            // Too few rounds.
            (&[100.0, 100.0, 100.0, 100.0], false),
            // A range of 21 %.
            (&[100.0, 123.0, 100.0, 123.0, 100.0], false),
            // A fall of 11 % in a range of less than 20 %.
            (&[106.0, 103.0, 100.0, 97.5, 94.5], false),
            // A fall of 8 %.
            (&[104.0, 102.0, 100.0, 98.0, 96.0], true),
            (&[0.0, 0.0, 0.0, 0.0, 0.0], false),
        ] {
            assert_eq!(is_steady(rates), steady, "{rates:?}");
        }
    }
}
