//! Writing a drive into the state in which it stays (`--precondition`): a fresh SSD is faster than one that has been full
//! for a while. First twice its capacity sequentially, then rounds of random writes until their rates are steady.

mod writes;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carmine_load::{parse_bytes, parse_millis};
use carmine_types::counted;
use serde::{Deserialize, Serialize};

use crate::Event;
use crate::error::{Result, failed};

/// Most rounds, as in SNIA's test specification: what is not steady by then never will be.
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
    /// Size of the random writes: the one that will be tested
    #[arg(id = "precondition_bs", long = "precondition-bs", value_name = "SIZE", default_value = "4k", value_parser = parse_bytes, help_heading = "Storage")]
    pub bs_bytes: u64,
    /// Go on with a drive that is not steady after this time
    #[arg(id = "precondition_limit", long = "precondition-limit", value_name = "TIME", default_value = "8h", value_parser = parse_millis, help_heading = "Storage")]
    pub limit_ms: u64,
    /// Length of a round; SNIA's is a minute
    #[arg(id = "precondition_round", long = "precondition-round", value_name = "TIME", default_value = "60", value_parser = parse_millis, hide = true)]
    pub round_ms: u64,
    /// Also on virtual disks, where it says nothing (tests use it)
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
            "{}: {outcome} after {} of {} bytes at {:.0} IOPS, {:.0} s",
            self.device.display(),
            counted(self.rounds_iops.len(), "round"),
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
        let late = || started.elapsed() >= Duration::from_millis(options.limit_ms);
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
            rounds_iops.push(
                drive.random_round(options.bs_bytes, Duration::from_millis(options.round_ms), &stop).await?,
            );
            if is_steady(&rounds_iops) {
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

/// True if the last [`WINDOW`] rates are steady. The definition is SNIA's (Solid State Storage Performance Test Specification,
/// "Steady State"): over a window of five rounds the rates differ by at most 20 % of their mean, and the line fitted to them by
/// least squares rises or falls by at most 10 % of it. fio's `steadystate=iops` and `iops_slope` test the same two things.
fn is_steady(rates: &[f64]) -> bool {
    let Some(first) = rates.len().checked_sub(WINDOW) else { return false };
    let window = &rates[first..];
    let mean = window.iter().sum::<f64>() / WINDOW as f64;
    if mean <= 0.0 {
        return false;
    }
    let most = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    let rise = slope(window) * (WINDOW - 1) as f64;
    most - least <= RANGE_MAX * mean && rise.abs() <= RISE_MAX * mean
}

/// Slope of the least-squares line through the rates at 0, 1, 2, …
fn slope(rates: &[f64]) -> f64 {
    let n = rates.len() as f64;
    let middle = (n - 1.0) / 2.0;
    let mean = rates.iter().sum::<f64>() / n;
    let points = || rates.iter().enumerate().map(|(x, y)| (x as f64 - middle, y - mean));
    let covariance: f64 = points().map(|(x, y)| x * y).sum();
    let spread: f64 = points().map(|(x, _)| x * x).sum();
    covariance / spread
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

    #[test]
    fn the_slope_is_that_of_the_line() {
        assert!((slope(&[1.0, 3.0, 5.0, 7.0, 9.0]) - 2.0).abs() < 1e-12);
        assert!(slope(&[4.0, 4.0, 4.0, 4.0, 4.0]).abs() < 1e-12);
    }
}
