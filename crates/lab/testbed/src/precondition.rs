//! Writing a drive into the state in which it stays (`--precondition`): a fresh SSD is faster than one that has been full
//! for a while. First twice its capacity sequentially, then rounds of random writes until their rates are steady.

mod steady;
mod writes;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::Event;
use crate::error::{Result, failed};

/// Most rounds, as in SNIA's test specification: what is not steady by then never will be.
const ROUNDS_MAX: usize = 25;

/// How drives are preconditioned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PreconditionOptions {
    /// Bytes of a random write: the size that will be tested.
    pub bs_bytes: u64,
    /// Length of a round; SNIA's is a minute.
    pub round: Duration,
    /// Time for one drive, all in all; then it is left as it is.
    pub limit: Duration,
    /// Also on virtual disks, where it says nothing (tests use it).
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

/// What was done to one drive.
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
        let device = device.to_owned();
        Self {
            device,
            outcome: Outcome::Na,
            bs_bytes: options.bs_bytes,
            rounds_iops: Vec::new(),
            seconds: 0.0,
        }
    }
}

impl fmt::Display for Preconditioned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outcome = match self.outcome {
            Outcome::Na => {
                return write!(f, "{}: n/a: there is no drive of its own behind it", self.device.display());
            }
            Outcome::Steady => "steady",
            Outcome::Unsteady => "NOT steady",
        };
        write!(
            f,
            "{}: {outcome} after {} rounds of {} bytes at {:.0} IOPS, {:.0} s",
            self.device.display(),
            self.rounds_iops.len(),
            self.bs_bytes,
            self.rounds_iops.last().copied().unwrap_or(0.0),
            self.seconds
        )
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
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<Vec<Preconditioned>> {
    if devices.is_empty() {
        return Ok(vec![Preconditioned::na(Path::new("files"), options)]);
    }
    let mut done = Vec::with_capacity(devices.len());
    for device in devices {
        let result = if is_virtual(device) && !options.virtual_too {
            Preconditioned::na(device, options)
        } else {
            drive(device, wipe, options, cancel, events)?
        };
        done.push(result);
    }
    Ok(done)
}

/// True for disks behind which there need not be one drive: loop devices, mappers, RAM, and those of virtual machines.
fn is_virtual(device: &Path) -> bool {
    let name = device.canonicalize().ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let Some(name) = name else { return false };
    let sys = fs::canonicalize(Path::new("/sys/class/block").join(&name)).unwrap_or_default();
    sys.components().any(|part| {
        part.as_os_str() == "virtual"
            || part.as_os_str().to_str().is_some_and(|text| text.starts_with("virtio"))
    }) || name.starts_with("xvd")
}

fn drive(
    device: &Path,
    wipe: bool,
    options: &PreconditionOptions,
    cancel: &AtomicBool,
    events: &mut dyn FnMut(Event),
) -> Result<Preconditioned> {
    let started = Instant::now();
    let mut rounds_iops: Vec<f64> = Vec::new();
    let mut tell = |what: &str, done: u64, total: u64| {
        let device = device.display();
        events(Event::Precondition { what: format!("{device}: {what}"), done, total });
    };
    let outcome = writes::with_drive(device, wipe, async |drive| {
        let late = || started.elapsed() >= options.limit;
        let stop = || cancel.load(Ordering::Relaxed) || late();
        let total_bytes = 2 * drive.size_bytes();
        drive
            .sequential(total_bytes, &stop, &mut |done| tell("writing twice its capacity", done, total_bytes))
            .await?;
        while !late() && rounds_iops.len() < ROUNDS_MAX {
            if cancel.load(Ordering::Relaxed) {
                return Err(failed!("interrupted"));
            }
            tell("rounds of random writes", rounds_iops.len() as u64, ROUNDS_MAX as u64);
            rounds_iops.push(drive.random_round(options.bs_bytes, options.round, &stop).await?);
            if steady::is_steady(&rounds_iops) {
                return Ok(Outcome::Steady);
            }
        }
        Ok(Outcome::Unsteady)
    })?;
    if cancel.load(Ordering::Relaxed) {
        return Err(failed!("interrupted"));
    }
    let (device, bs_bytes) = (device.to_owned(), options.bs_bytes);
    Ok(Preconditioned { device, outcome, bs_bytes, rounds_iops, seconds: started.elapsed().as_secs_f64() })
}
