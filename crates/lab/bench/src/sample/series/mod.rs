//! Samples of a window, taken every second by a thread of this process on CPUs that no OSD uses.

mod burst;
mod cpus;
mod hardware;
mod reading;
pub(super) mod threads;

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failed;
use crate::sample::smart::{Logs, Smart};
use burst::Burst;
pub use carmine_load::samples::{CoresUsed, CpuSamples, Instrument, NvmeSamples, Samples, ThreadSamples};
use carmine_testbed::{Result, TestbedError};
use reading::{Reading, Sources};

/// Name of the sampler's thread.
const SAMPLER: &str = "sampler";
/// Time between two samples.
const INTERVAL: Duration = Duration::from_millis(1_000);
/// Length of a window of cores used.
const BURST: Duration = Duration::from_millis(10);

/// What is sampled.
#[derive(Clone, Debug, Default)]
pub struct SampleOptions {
    /// (OSD, pid)
    pub osds: Vec<(u32, u32)>,
    /// Block devices, named as in `/proc/diskstats`.
    pub devices: Vec<String>,
    /// CPUs of reactors and aliens: the sampler keeps off them.
    pub osd_cpus: Vec<usize>,
    /// CPUs of the generator and of a neighbour: the sampler keeps off them if there are others.
    pub client_cpus: Vec<usize>,
    /// Processes of the generator if it is another program; empty: this process is it.
    pub generator_pids: Vec<u32>,
}

/// A sampler at work.
#[derive(Debug)]
pub struct Recorder {
    stop: Sender<()>,
    thread: JoinHandle<Samples>,
}

impl Recorder {
    /// Starts the sampler and returns when its first reading is made: the window begins now.
    ///
    /// # Errors
    /// When there can be no thread.
    pub fn start(options: SampleOptions) -> Result<Recorder> {
        let (stop, stopped) = channel();
        let (ready, is_ready) = channel();
        let thread = std::thread::Builder::new()
            .name(SAMPLER.into())
            .spawn(move || {
                let cpus = keep_off(&options);
                let sampling = Sampling::begin(&options, cpus);
                // The other end waits for it, or is gone.
                let _ = ready.send(());
                sampling.run(&stopped)
            })
            .map_err(TestbedError::io("start the sampler's thread for", Path::new("--samples")))?;
        is_ready.recv().map_err(|_| failed!("the sampler ended before its first reading"))?;
        Ok(Recorder { stop, thread })
    }

    /// Ends the window. What was left of the last interval is not a sample.
    ///
    /// # Errors
    /// When the sampler panicked.
    pub fn finish(self) -> Result<Samples> {
        // A sampler that ended early is noticed by the join.
        let _ = self.stop.send(());
        self.thread.join().map_err(|_| failed!("the sampler's thread panicked"))
    }
}

/// Pins the calling thread to CPUs that no OSD has, if there are any; returns them.
fn keep_off(options: &SampleOptions) -> Vec<usize> {
    let Ok(allowed) = sched_getaffinity(None) else { return Vec::new() };
    let all = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let off_osds: Vec<usize> = all.filter(|cpu| !options.osd_cpus.contains(cpu)).collect();
    let quiet: Vec<usize> =
        off_osds.iter().copied().filter(|cpu| !options.client_cpus.contains(cpu)).collect();
    let cpus = if quiet.is_empty() { off_osds } else { quiet };
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    if !cpus.is_empty() && sched_setaffinity(None, &set).is_ok() { cpus } else { Vec::new() }
}

/// The sampler's state.
struct Sampling {
    sources: Sources,
    burst: Burst,
    samples: Samples,
    smart: Smart,
    /// Of the drives, before the first reading.
    smart_before: Logs,
    first: Reading,
    /// The sample before; `None`: the first reading.
    last: Option<Reading>,
    own_ns: u64,
}

impl Sampling {
    fn begin(options: &SampleOptions, cpus: Vec<usize>) -> Sampling {
        let (proc, sys) = (Path::new("/proc"), Path::new("/sys"));
        let sources = reading::sources(proc, sys, options);
        let mut burst = Burst::new(proc, options.osds.iter().map(|(_, pid)| *pid).collect());
        let samples = Samples {
            interval_ms: INTERVAL.as_millis() as u64,
            instrument: Instrument { cores: 0.0, cpus },
            ..Samples::default()
        };
        // Programs that read drives are started outside of the window, on these CPUs.
        let smart = Smart::find(&options.devices);
        let smart_before = smart.read();
        burst.sample();
        Sampling {
            smart,
            smart_before,
            first: sources.read(),
            last: None,
            sources,
            burst,
            samples,
            own_ns: own_ns(),
        }
    }

    fn run(mut self, stopped: &Receiver<()>) -> Samples {
        let began = self.first.at;
        let (mut next_burst, mut next_sample) = (began + BURST, began + INTERVAL);
        while wait_until(next_burst, stopped) {
            self.burst.sample();
            // What could not be kept is left out, not made up for in a rush.
            next_burst = (next_burst + BURST).max(Instant::now());
            if Instant::now() >= next_sample {
                next_sample += INTERVAL;
                self.burst.find_threads();
                self.sample();
            }
        }
        self.end()
    }

    fn sample(&mut self) {
        let now = self.sources.read();
        let before = self.last.as_ref().unwrap_or(&self.first);
        let t_ms = now.at.duration_since(self.first.at).as_secs_f64() * 1e3;
        self.samples.push(t_ms, now.since(before));
        cpus::push(&mut self.samples.cpus, &before.cpus, &now.cpus);
        self.last = Some(now);
    }

    fn end(mut self) -> Samples {
        let end = self.sources.read();
        for (at, (osd, _)) in self.sources.osds.iter().enumerate() {
            if let (Some(before), Some(now)) = (self.first.threads.get(at), end.threads.get(at)) {
                self.samples.threads.extend(threads::samples(*osd, before, now));
            }
        }
        let seconds = end.at.duration_since(self.first.at).as_secs_f64().max(1e-9);
        self.samples.cores_used_10ms = self.burst.cores_used();
        self.samples.instrument.cores = own_ns().saturating_sub(self.own_ns) as f64 / 1e9 / seconds;
        let smart_after = self.smart.read();
        self.samples.nvme = self.smart.samples(self.smart_before, smart_after);
        self.samples
    }
}

/// False once the window has ended.
fn wait_until(deadline: Instant, stopped: &Receiver<()>) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    matches!(stopped.recv_timeout(left), Err(RecvTimeoutError::Timeout))
}

/// CPU time of the calling thread.
fn own_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_ascii_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_off_the_osds() {
        let pinned = |osd_cpus: Vec<usize>, client_cpus: Vec<usize>| {
            let options = SampleOptions { osd_cpus, client_cpus, ..SampleOptions::default() };
            std::thread::spawn(move || keep_off(&options)).join().unwrap()
        };
        let all = pinned(vec![], vec![]);
        assert!(pinned(all.clone(), vec![]).is_empty());
        if let [first, rest @ ..] = all.as_slice()
            && !rest.is_empty()
        {
            assert_eq!(pinned(vec![*first], vec![]), rest);
            assert_eq!(pinned(vec![*first], rest.to_vec()), rest);
            assert_eq!(pinned(rest.to_vec(), vec![]), [*first]);
        }
    }
}
