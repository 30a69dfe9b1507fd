//! One load by a hosted tool, from the prefill to the last answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::profile::{Recorded, Recording};
use crate::sample::Counters;
use crate::sample::series::{Recorder, SampleOptions, Samples};
use anyhow::bail;
use carmine_load::hosted::{HostedFigures, Tool};
use carmine_load::profile::ProfileMode;
use carmine_load::window::InstrumentWindow;
use carmine_load::{LoadSpec, Rw};
use indicatif::ProgressBar;

use super::meter::{Meter, Metered, Readings};
use super::prefill;
use super::process::{Clients, ToolPrograms};
use crate::bench::bed::Bed;

/// How often processes and Ctrl-C are looked at.
pub(super) const LOOK: Duration = Duration::from_millis(2);
/// Time between readings of a window that the tool may end.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Time for a tool to connect, also on a busy machine.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);
/// Time for a tool to end after its window: `rados bench` removes what it wrote.
const END_LIMIT: Duration = Duration::from_secs(300);
/// Time for a prefill, and for a load that has so many bytes to move.
const PREFILL_LIMIT: Duration = Duration::from_secs(24 * 3600);

/// A load by a hosted tool.
pub(super) struct Run<'a> {
    pub(super) tool: Tool,
    pub(super) spec: LoadSpec,
    pub(super) bed: Bed,
    pub(super) programs: ToolPrograms,
    pub(super) pool: &'a str,
    pub(super) cancel: &'a AtomicBool,
    pub(super) bar: ProgressBar,
    /// A flamegraph is wanted, and there is a ramp in which it can be taken.
    pub(super) profile: Option<ProfileMode>,
}

/// What a load gave.
pub(super) struct Outcome {
    pub(super) figures: HostedFigures,
    pub(super) metered: Metered,
    /// The tool's command line.
    pub(super) command: Vec<String>,
    pub(super) samples: Option<Samples>,
    /// What `perf` recorded, or why it did not; `None` if nobody asked.
    pub(super) profiled: Option<Result<Recorded, String>>,
}

impl Run<'_> {
    /// Prefill, ramp and window.
    pub(super) fn measure(&self, with_samples: bool) -> anyhow::Result<Outcome> {
        self.say(&format!("prefilling with {}", self.tool));
        prefill::run(self)?;
        let meter = Meter::new(&self.bed)?;
        let osds = self.bed.osd_pids();
        let mut counters = Counters::attach(&osds, with_samples);
        let mut profiled = None;
        if self.tool == Tool::RadosBench && self.spec.ramp_ms > 0 {
            // It cannot leave a part of its run out: the ramp is a run of its own.
            self.say("ramp");
            let mut clients = self.start(self.spec.ramp_ms)?;
            self.wait_for_begin(&mut clients)?;
            let recording = self.record(&osds);
            self.finish(clients, END_LIMIT)?;
            profiled = recording.map(|recording| recording?.finish());
        }
        let mut clients = self.start(self.spec.runtime_ms)?;
        self.say(&format!("{} connects", self.tool));
        // The tool's own clock runs from here: what is read or written down meanwhile comes out of the window.
        let mut begun = self.wait_for_begin(&mut clients)?;
        if self.tool != Tool::RadosBench {
            let recording = self.record(&osds);
            begun += Duration::from_millis(self.spec.ramp_ms);
            self.run_until(&mut clients, begun)?;
            profiled = recording.map(|recording| recording?.finish());
        }
        self.say("measuring");
        let generator_pids = clients.pids().collect();
        let sampled = SampleOptions { generator_pids, ..self.bed.sample_options() };
        let recorder = with_samples.then(|| Recorder::start(sampled)).transpose()?;
        let begin = meter.read(&clients)?;
        counters.start();
        let end = self.window_end(&mut clients, &meter, begun)?;
        counters.stop();
        let samples = recorder.map(Recorder::finish).transpose()?;
        self.say(&format!("{} ends", self.tool));
        let command = clients.command().to_vec();
        let mut figures = self.finish(clients, END_LIMIT)?;
        let mut metered = meter.metered(&begin, &end);
        metered.window.counters = counters.read();
        metered.window.instrument = samples
            .as_ref()
            .map(|s| InstrumentWindow { cores: s.instrument.cores, apart: !s.instrument.cpus.is_empty() });
        figures.result.client = metered.client;
        Ok(Outcome { figures, metered, command, samples, profiled })
    }

    fn record(&self, osds: &[u32]) -> Option<Result<Recording, String>> {
        self.profile.map(|mode| Recording::start(mode, osds))
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("{}: {what}", self.spec.summary()));
    }

    /// Reads at the window's end; one that the tool ends by itself, for there is nothing more to read, ends there.
    fn window_end(
        &self,
        clients: &mut Clients,
        meter: &Meter<'_>,
        begun: Instant,
    ) -> anyhow::Result<Readings> {
        let reads_once = self.tool == Tool::RadosBench && self.spec.rw == Rw::Read;
        let time = match self.spec.ends_by_itself() {
            true => PREFILL_LIMIT,
            false => Duration::from_millis(self.spec.runtime_ms),
        };
        if !self.spec.ends_by_itself() && !reads_once {
            if begun.elapsed() > time / 2 {
                bail!(
                    "half of the window of {time:?} was over before it was looked at: take a longer --runtime"
                );
            }
            self.run_until(clients, begun + time)?;
            return meter.read(clients);
        }
        let end = begun + time;
        let mut last = meter.read(clients)?;
        while Instant::now() < end && !clients.have_ended()? {
            self.check_alive()?;
            std::thread::sleep(READ_EVERY.min(end.saturating_duration_since(Instant::now())));
            match meter.read(clients) {
                Ok(reading) => last = reading,
                Err(_) if clients.has_one_ended()? => break,
                Err(e) => return Err(e),
            }
        }
        Ok(last)
    }

    fn start(&self, millis: u64) -> anyhow::Result<Clients> {
        Clients::start(self.tool, &self.spec, &self.programs, &self.bed, self.pool, millis)
    }

    /// Fails if an OSD has died, or at Ctrl-C.
    pub(super) fn check_alive(&self) -> anyhow::Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        self.bed.check_alive()
    }

    /// Waits until the load has begun; returns when that was.
    fn wait_for_begin(&self, clients: &mut Clients) -> anyhow::Result<Instant> {
        let end = Instant::now() + BEGIN_LIMIT;
        while !clients.have_begun() {
            self.check_alive()?;
            clients.check_running()?;
            if Instant::now() > end {
                bail!("{} did not begin within {} s: {}", self.tool, BEGIN_LIMIT.as_secs(), clients.said());
            }
            std::thread::sleep(LOOK);
        }
        Ok(Instant::now())
    }

    /// Lets the load run; a tool that ends before is an error.
    fn run_until(&self, clients: &mut Clients, end: Instant) -> anyhow::Result<()> {
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
            std::thread::sleep(left.min(LOOK * 10));
        }
    }

    /// Waits for the tool's own end, and reads what it says.
    fn finish(&self, mut clients: Clients, limit: Duration) -> anyhow::Result<HostedFigures> {
        self.wait_for_end(&mut clients, limit)?;
        clients.figures()
    }

    /// Waits for the end of what writes the data.
    pub(super) fn finish_prefill(&self, mut clients: Clients) -> anyhow::Result<()> {
        self.wait_for_end(&mut clients, PREFILL_LIMIT)
    }

    fn wait_for_end(&self, clients: &mut Clients, limit: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + limit;
        while !clients.have_ended()? {
            self.check_alive()?;
            if Instant::now() > end {
                bail!("{} did not end: {}", self.tool, clients.said());
            }
            std::thread::sleep(LOOK * 5);
        }
        Ok(())
    }
}
