//! `carmine bench --client`: the tools that Ceph's users know load a Carmine testbed or a peer, and are measured as our own
//! generator is, from the prefill to the last answer.

mod process;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use carmine_load::hosted::{HostedFigures, Tool};
use carmine_load::profile::ProfileMode;
use carmine_load::window::{ProcessWindow, Window};
use carmine_load::{ClientClocks, LoadSpec, Rw};
use indicatif::ProgressBar;
use serde_json::json;

use super::setup::Setup;
use super::{Outcome, Seen, jobfile, room};
use crate::cluster::Reading;
use crate::profile::{Recording, length};
use crate::sample::series::Recorder;
use crate::sample::{Counters, Sampler};
use process::{Clients, ToolPrograms};

/// Time for `perf` to attach itself to the OSDs, and to write down its recording.
const PERF_STARTS_MS: u64 = 1_500;
/// How often processes and Ctrl-C are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Time between two looks, within a window, whether everything still runs. Their CPU counts as the machine's: every 20 ms it was 1 % of a CPU.
const WATCH: Duration = Duration::from_millis(200);
/// Time between readings of a window that the tool may end.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Time for a tool to connect, also on a busy machine.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);
/// Time for a tool to end after its window: `rados bench` removes what it wrote.
const END_LIMIT: Duration = Duration::from_secs(300);
/// Time for a prefill, and for a load that has a given number of bytes to move.
const PREFILL_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// Runs the whole load.
pub(super) fn run(setup: &Setup, cancel: &AtomicBool) -> Result<Outcome> {
    let (tool, mut spec) = (setup.args.client, setup.spec.clone());
    let programs = ToolPrograms::find(tool)?;
    let bar = ProgressBar::new_spinner();
    bar.enable_steady_tick(Duration::from_millis(100));
    let profile = setup.args.profile.filter(|_| setup.cannot_profile().is_none());
    if let Some(mode) = profile {
        // It is taken in the ramp, so that the cost of perf is in no figure.
        spec.ramp_ms += length(mode).as_millis() as u64 + PERF_STARTS_MS;
    }
    let mut run = Run { tool, spec, setup, programs, given: None, cancel, bar, profile };
    if let Some(file) = &setup.jobfile {
        run.given = Some(file.given(tool, &run.spec, &process::place(&run), &jobfile::folder()?));
        process::check_jobs(&run)?;
    }
    // If some of the data is there, all of it may be.
    let room = room::check(setup, |enough| Ok(if process::is_there(&run, false)? { enough } else { 0 }));
    let measured = room.and_then(|()| run.measure());
    run.bar.finish_and_clear();
    measured
}

/// Fails with what to install if programs of `tool` are missing.
///
/// # Errors
/// A program is missing.
pub fn require_tool(tool: Tool) -> Result<()> {
    ToolPrograms::find(tool).map(drop)
}

/// The tool times itself; its window and the kernel's should be the same one.
fn window_mark(figures: &HostedFigures, window: &Window) -> Option<String> {
    let (said, wall) = (figures.seconds, window.wall_ns as f64 / 1e9);
    let apart = (said / wall - 1.0).abs();
    (apart > 0.02)
        .then(|| format!("NOISY: the tool measured {said:.2} s, the kernel's accounting {wall:.2} s"))
}

/// The thread that was closest to having no time left: busy, or ready without a CPU.
fn hottest(processes: &[ProcessWindow], wall_ns: u64) -> ClientClocks {
    let threads = processes.iter().flat_map(|p| &p.threads);
    let Some(thread) = threads.max_by_key(|t| t.cpu_ns + t.wait_ns) else { return ClientClocks::default() };
    ClientClocks { wall_ns, busy_ns: thread.cpu_ns, wait_ns: thread.wait_ns }
}

/// Looks whether a phase of the tool is over.
///
/// # Errors
/// It will never be: a process has failed or ended.
type IsOver = fn(&mut Clients) -> Result<bool>;

/// A load by a hosted tool.
struct Run<'a> {
    tool: Tool,
    /// With a ramp that is long enough for the profile.
    spec: LoadSpec,
    setup: &'a Setup,
    programs: ToolPrograms,
    /// The job file that fio is given.
    given: Option<String>,
    cancel: &'a AtomicBool,
    bar: ProgressBar,
    /// A flamegraph is wanted, and there is a ramp in which it can be taken.
    profile: Option<ProfileMode>,
}

impl Run<'_> {
    /// Prefill, ramp and window.
    fn measure(&self) -> Result<Outcome> {
        self.say(&format!("prefilling with {}", self.tool));
        process::prefill(self)?;
        let idle_cores = self.setup.idle_cores()?;
        let with_samples = self.setup.args.samples.is_some();
        let mut counters = Counters::attach(&self.setup.osd_pids(), with_samples);
        let cannot_profile = self.setup.cannot_profile().map(|why| Err(why.to_owned()));
        let mut seen = Seen { profiled: cannot_profile, ..Seen::default() };
        if self.tool == Tool::RadosBench && self.spec.ramp_ms > 0 {
            // It cannot leave out a part of its run, so the ramp is a run of its own.
            self.say("ramp");
            let mut clients = Clients::start(self, Some(self.spec.ramp_ms))?;
            self.wait_for_begin(&mut clients)?;
            let recording = self.profile();
            self.wait_for_end(&mut clients, END_LIMIT)?;
            seen.profiled = recording.map(|recording| recording?.finish()).or(seen.profiled);
        }
        let mut clients = Clients::start(self, Some(self.spec.runtime_ms))?;
        self.say(&format!("{} connects", self.tool));
        // The tool's own clock runs from here: any time spent here on reading and writing is taken from the window.
        let mut begun = self.wait_for_begin(&mut clients)?;
        if self.tool != Tool::RadosBench {
            let recording = self.profile();
            begun += Duration::from_millis(self.spec.ramp_ms);
            self.run_until(&mut clients, begun)?;
            seen.profiled = recording.map(|recording| recording?.finish()).or(seen.profiled);
        }
        self.say("measuring");
        let sampler = self.setup.sampler.with_tools(clients.pids());
        let recorder = with_samples.then(|| self.setup.record(&sampler)).transpose()?;
        let begin = self.setup.read(&sampler)?;
        counters.start();
        let end = self.window_end(&mut clients, &sampler, begun)?;
        counters.stop();
        seen.samples = recorder.map(Recorder::finish).transpose()?;
        self.say(&format!("{} ends", self.tool));
        self.wait_for_end(&mut clients, END_LIMIT)?;
        let mut figures = clients.figures()?;
        let mut window = begin.window_to(&end, &sampler, idle_cores);
        window.counters = counters.read();
        window.instrument = seen.samples.as_ref().map(|samples| samples.instrument.clone());
        figures.result.client = hottest(&sampler.tools(&begin.kernel, &end.kernel), window.wall_ns);
        seen.marks.extend(window_mark(&figures, &window));
        seen.marks.extend(self.full_mark(figures.seconds));
        let (version, command) = (&self.programs.version, &clients.command);
        let mut client = json!({ "tool": self.tool, "version": version, "command": command });
        let args = &self.setup.args;
        if let (Some(path), Some(file), Some(given)) = (&args.jobfile, &self.setup.jobfile, &self.given) {
            client["jobfile"] = jobfile::about(path, file, given);
            client["jobs"] = figures.jobs.clone().unwrap_or_default();
        }
        Ok(Outcome {
            spec: self.spec.clone(),
            result: figures.result.clone(),
            measured: Ok(window),
            known_blocks: 0,
            seen,
            told: Some((figures, client)),
        })
    }

    /// A remark on a `rados bench` that wrote all that there was room for before its time was over.
    fn full_mark(&self, seconds: f64) -> Option<String> {
        let is_short = seconds < 0.9 * self.spec.runtime_ms as f64 / 1e3;
        (self.tool == Tool::RadosBench && self.spec.rw.writes() && is_short).then(|| {
            format!(
                "rados bench filled the pool in {seconds:.1} s and ended: a larger --osd-size gives a longer window"
            )
        })
    }

    fn profile(&self) -> Option<Result<Recording, String>> {
        self.profile.map(|mode| Recording::start(mode, &self.setup.osd_pids()))
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("{}: {what}", self.spec.summary()));
    }

    /// Reads at the window's end; a window that the tool ends by itself, because there is nothing more to read or
    /// no more room, ends there.
    fn window_end(&self, clients: &mut Clients, sampler: &Sampler, begun: Instant) -> Result<Reading> {
        let ends_early = self.tool == Tool::RadosBench && self.spec.rw != Rw::RandRead;
        let ends_by_itself = self.spec.ends_by_itself() || self.setup.runs_untimed_jobs();
        let time = match ends_by_itself {
            true => PREFILL_LIMIT,
            false => Duration::from_millis(self.spec.runtime_ms),
        };
        let end = begun + time;
        if !ends_by_itself && !ends_early {
            ensure!(
                begun.elapsed() <= time / 2,
                "half of the window of {time:?} was over before its first reading: take a longer --runtime"
            );
            self.run_until(clients, end)?;
            return self.setup.read(sampler);
        }
        let mut last = self.setup.read(sampler)?;
        while Instant::now() < end && !clients.have_ended()? {
            self.check_alive()?;
            std::thread::sleep(READ_EVERY.min(end.saturating_duration_since(Instant::now())));
            match self.setup.read(sampler) {
                Ok(reading) => last = reading,
                Err(_) if clients.has_one_ended()? => break,
                Err(e) => return Err(e),
            }
        }
        Ok(last)
    }

    /// Fails if an OSD has died, or at Ctrl-C.
    fn check_alive(&self) -> Result<()> {
        ensure!(!self.cancel.load(Ordering::Relaxed), "interrupted");
        self.setup.check_alive()
    }

    /// Waits until the load has begun; returns when that was.
    fn wait_for_begin(&self, clients: &mut Clients) -> Result<Instant> {
        let has_begun = |clients: &mut Clients| {
            if clients.have_begun() { Ok(true) } else { clients.check_running().map(|()| false) }
        };
        self.wait(clients, BEGIN_LIMIT, "begin", has_begun)?;
        Ok(Instant::now())
    }

    /// Waits until the tool has ended.
    fn wait_for_end(&self, clients: &mut Clients, limit: Duration) -> Result<()> {
        self.wait(clients, limit, "end", Clients::have_ended)
    }

    fn wait(&self, clients: &mut Clients, limit: Duration, what: &str, is_over: IsOver) -> Result<()> {
        let end = Instant::now() + limit;
        while !is_over(clients)? {
            self.check_alive()?;
            let (is_late, limit_s) = (Instant::now() > end, limit.as_secs());
            ensure!(!is_late, "{} did not {what} within {limit_s} s: {}", self.tool, clients.said());
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets the load run; a tool that ends too early is an error.
    fn run_until(&self, clients: &mut Clients, end: Instant) -> Result<()> {
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.check_alive()?;
            // In the last moments it may end before its window does by our clock.
            if left > Duration::from_millis(200) {
                clients.check_running()?;
            }
            std::thread::sleep(left.min(WATCH));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_load::window::ThreadWindow;

    #[test]
    fn waiting_for_a_cpu_counts_as_hot() {
        let thread = |cpu_ns, wait_ns| ThreadWindow { cpu_ns, wait_ns, ..ThreadWindow::default() };
        let process =
            ProcessWindow { threads: vec![thread(50, 0), thread(30, 40)], ..ProcessWindow::default() };
        let clocks = hottest(&[process], 100);
        assert_eq!((clocks.busy_ns, clocks.wait_ns), (30, 40));
        assert_eq!(hottest(&[], 100), ClientClocks::default());
    }
}
