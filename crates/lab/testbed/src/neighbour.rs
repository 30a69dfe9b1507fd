//! A neighbour (`--neighbour-cpus`): a process that keeps its CPUs busy while a point is measured, as virtual machines beside
//! the OSDs would.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use carmine_topology::CpuList;
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Result, failed};
use crate::process::{Owned, restrict_to, spawn};

/// The hidden command of `carmine` that is the neighbour.
pub const NEIGHBOUR_COMMAND: &str = "neighbour";

/// A neighbour that runs; it ends when this is dropped, and by itself when this process has ended.
#[derive(Debug)]
pub struct Neighbour {
    child: Owned,
    cpus: CpuList,
}

/// A neighbour in a result.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NeighbourReport {
    /// CPUs that it kept busy.
    pub cpus: CpuList,
    /// Its process.
    pub pid: u32,
    /// CPU time that it has used so far, seconds; absent if it has ended.
    pub cpu_seconds: Option<f64>,
}

impl Neighbour {
    /// Starts one on `cpus` from `program`, which is `carmine`; none for an empty list.
    ///
    /// # Errors
    /// The program does not start.
    pub fn start(program: &Path, cpus: &CpuList) -> Result<Option<Self>> {
        if cpus.is_empty() {
            return Ok(None);
        }
        let mut command = Command::new(program);
        command.args([NEIGHBOUR_COMMAND, "--cpus", &cpus.to_string()]);
        let child = Owned(spawn(command.stdin(Stdio::null()).stdout(Stdio::null()))?);
        Ok(Some(Self { child, cpus: cpus.clone() }))
    }

    /// Its CPUs, its process, and the CPU time that it has used so far.
    #[must_use]
    pub fn report(&self) -> NeighbourReport {
        let pid = self.child.0.id();
        NeighbourReport { cpus: self.cpus.clone(), pid, cpu_seconds: cpu_seconds(pid) }
    }
}

/// CPU time of a process with all its threads.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let clock = clock_getcpuclockid(Pid::from_raw(pid as i32)).ok()?;
    Some(Duration::from(clock.now().ok()?).as_secs_f64())
}

/// Keeps `cpus` busy until this process is ended, which it also is when the process that started it ends.
///
/// # Errors
/// A CPU may not be used.
pub fn be_busy(cpus: &CpuList) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))
        .map_err(|e| failed!("cannot bind this process to its parent: {e}"))?;
    std::thread::scope(|scope| {
        let busy = |cpu| {
            scope.spawn(move || -> Result<()> {
                restrict_to(&[cpu])?;
                loop {
                    std::hint::spin_loop();
                }
            })
        };
        let threads: Vec<_> = cpus.iter().map(busy).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })
}
