//! The controller of a load: moves it through its phases, and reads the kernel's accounting at both ends of the window.
//! It sleeps on a CPU of the system or of the clients; what it uses itself is counted as the generator's.

mod settle;

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::profile::{Recorded, Recording, length};
use crate::sample::Counters;
use crate::sample::series::{Recorder, Samples};
use anyhow::{Context, bail};
use carmine_client::{Client, Options};
use carmine_load::window::{DrainWindow, InstrumentWindow, Window};
use carmine_load::{BenchStatus, JobResult, LoadSpec, Phase, VerifyState};
use carmine_reactor::{Config, PollPolicy, Shard, block_on};
use carmine_testbed::write_whole;
use carmine_types::{OsdId, counted};
use serde_json::Value;

use super::bed::Reading;
use super::generators::{Generators, effective_spec};
use super::osd_dump::{OsdDump, QUESTIONS};
use super::setup::Setup;
use crate::view::View;
use carmine_testbed::TestbedError::Usage;

/// How often the controller looks at its jobs.
const LOOK: Duration = Duration::from_millis(20);
/// The same for jobs inside an OSD, which has to answer.
const LOOK_FAR: Duration = Duration::from_millis(100);
/// Time for all jobs to connect.
const READY_LIMIT: Duration = Duration::from_secs(40);
/// Time that a prefill may go without writing anything.
const PREFILL_LIMIT: Duration = Duration::from_secs(60);
/// Time that the machine's idle baseline is measured for.
const BASELINE: Duration = Duration::from_millis(400);
/// Time for the last answers and results, a little more than jobs wait themselves.
const END_LIMIT: Duration = Duration::from_secs(15);
/// Time between copies of the verify state to its file.
const STATE_EVERY: Duration = Duration::from_secs(1);

/// A load's end.
pub(crate) struct Outcome {
    /// The load as it was made.
    pub(crate) spec: LoadSpec,
    pub(crate) result: JobResult,
    /// The window, or why there is none.
    pub(crate) measured: anyhow::Result<Window>,
    /// Blocks that the verify state knows.
    pub(crate) known_blocks: u64,
    pub(crate) marks: Vec<String>,
    /// The OSDs' background work between the prefill and the ramp.
    pub(crate) settled: Option<DrainWindow>,
    pub(crate) samples: Option<Samples>,
    /// What `perf` recorded, or why it did not; `None` if nobody asked.
    pub(crate) profiled: Option<Result<Recorded, String>>,
}

/// Runs the whole load on the calling thread's reactor.
pub(crate) fn run(setup: &Setup, cancel: &AtomicBool) -> anyhow::Result<Outcome> {
    let config = Config {
        name: "bench".into(),
        cpus: vec![setup.bed.plan.grid.system_cpus().to_vec().last().copied()],
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        ..Config::default()
    };
    block_on(config, async |shard: Shard| control(&shard, setup, cancel).await)
        .context("cannot start the controller")?
}

async fn control(shard: &Shard, setup: &Setup, cancel: &AtomicBool) -> anyhow::Result<Outcome> {
    let client = Client::connect(shard, setup.bed.mon, Options::default())
        .await
        .context("cannot reach the testbed")?;
    let drive = Generators::start(setup, &client).await?;
    let view = View::new(&setup.spec);
    let mut controller = Controller {
        shard: shard.clone(),
        setup,
        cancel,
        client,
        drive,
        view,
        marks: Vec::new(),
        state_written: Instant::now(),
        settled: None,
        samples: None,
        profiled: None,
    };
    let measured = controller.phases().await;
    controller.finish(measured).await
}

struct Controller<'a> {
    shard: Shard,
    setup: &'a Setup,
    cancel: &'a AtomicBool,
    client: Rc<Client>,
    drive: Generators,
    view: View,
    marks: Vec<String>,
    state_written: Instant,
    /// The OSDs' background work before the ramp.
    settled: Option<DrainWindow>,
    samples: Option<Samples>,
    profiled: Option<Result<Recorded, String>>,
}

impl Controller<'_> {
    /// Setup, prefill, ramp and the window; returns at its end with the load still running.
    async fn phases(&mut self) -> anyhow::Result<Window> {
        self.view.phase("connecting");
        self.until("the jobs to connect", READY_LIMIT, |status| status.progress.ready).await?;
        let baseline_cores = self.baseline().await?;
        let served = self.read().await?.client_ops();
        if self.setup.wants_cold() && served > 0 {
            bail!(Usage(format!(
                "--cache cold: the OSDs have answered {} since their start; restart them (`carmine down`, `carmine up`)",
                counted(served as usize, "operation")
            )));
        }
        self.drive.set_phase(Phase::Prefill).await?;
        self.view.phase("prefilling");
        self.until("the prefill to go on", PREFILL_LIMIT, |status| status.progress.prefilled).await?;
        if self.setup.defers_work() {
            self.view.phase("waiting for the OSDs' background work");
            let idle = self.read().await?;
            self.settled = Some(self.drain(&idle).await?);
        }
        let sampled = self.setup.sample_options();
        let mut counters = Counters::attach(&self.setup.bed.osd_pids(), sampled.is_some());
        if self.setup.spec.ramp_ms > 0 {
            self.drive.set_phase(Phase::Ramp).await?;
            self.view.timed("ramp", self.setup.spec.ramp_ms);
            self.run_for(Duration::from_millis(self.setup.spec.ramp_ms)).await?;
        }
        self.profile().await?;
        let recorder = sampled.map(Recorder::start).transpose()?;
        let start = self.read().await?;
        counters.start();
        self.drive.set_phase(Phase::Measure).await?;
        self.view.timed("measuring", self.setup.spec.runtime_ms);
        let time = if self.setup.spec.ends_by_itself() {
            Duration::MAX
        } else {
            Duration::from_millis(self.setup.spec.runtime_ms)
        };
        self.run_for(time).await?;
        counters.stop();
        let end = self.read().await?;
        self.samples = recorder.map(Recorder::finish).transpose()?;
        self.drive.set_phase(Phase::Stop).await?;
        let mut window = self.setup.bed.window(&start, &end, baseline_cores);
        window.counters = counters.read();
        if self.setup.defers_work() {
            self.view.phase("waiting for the OSDs' background work");
            window.drain = Some(self.drain(&end).await?);
        }
        window.instrument = self
            .samples
            .as_ref()
            .map(|s| InstrumentWindow { cores: s.instrument.cores, apart: !s.instrument.cpus.is_empty() });
        Ok(window)
    }

    /// Records the OSDs under the load if that was asked for, before the window, so that what `perf` costs is in no figure. Where
    /// it cannot be done the load goes on.
    async fn profile(&mut self) -> anyhow::Result<()> {
        let Some(mode) = self.setup.profile else { return Ok(()) };
        if let Some(why) = self.setup.cannot_profile() {
            self.profiled = Some(Err(why.to_owned()));
            return Ok(());
        }
        self.drive.set_phase(Phase::Ramp).await?;
        self.view.timed("profiling", length(mode).as_millis() as u64);
        let mut recording = match Recording::start(mode, &self.setup.bed.osd_pids()) {
            Ok(recording) => recording,
            Err(why) => {
                self.profiled = Some(Err(why));
                return Ok(());
            }
        };
        while !recording.has_ended() {
            let pause = self.pause();
            self.shard.sleep(pause).await;
            self.look().await?;
        }
        self.profiled = Some(recording.finish());
        Ok(())
    }

    /// The OSDs' clocks first and then the kernel's, at both ends of the window alike: both windows are equally long.
    async fn read(&mut self) -> anyhow::Result<Reading> {
        let mut osds = Vec::new();
        // A peer's OSDs know no such questions.
        for (id, _) in self.setup.bed.osds.iter().filter(|_| self.setup.bed.peer.is_none()) {
            osds.push(dump(&self.client, *id).await.unwrap_or_else(|error| {
                self.marks.push(format!("{id} did not tell its metrics: {error:#}"));
                OsdDump::default()
            }));
        }
        Ok(Reading { osds, kernel: self.setup.bed.sampler.sample()? })
    }

    /// Waits for `done`, for at most `limit` without any progress; the load's own failure ends the wait, too.
    async fn until(
        &mut self,
        what: &str,
        limit: Duration,
        done: fn(&BenchStatus) -> bool,
    ) -> anyhow::Result<()> {
        let (mut moved, mut bytes) = (Instant::now(), 0);
        loop {
            let status = self.look().await?;
            if done(&status) {
                return Ok(());
            }
            if status.progress.prefill_bytes_done != bytes {
                (moved, bytes) = (Instant::now(), status.progress.prefill_bytes_done);
            }
            if moved.elapsed() > limit {
                bail!("gave up after waiting {} s for {what} (see `carmine status`)", limit.as_secs());
            }
            self.shard.sleep(self.pause()).await;
        }
    }

    fn pause(&self) -> Duration {
        if self.setup.in_process.is_some() { LOOK_FAR } else { LOOK }
    }

    /// Lets the load run for `time`, or until all jobs have nothing more to do.
    async fn run_for(&mut self, time: Duration) -> anyhow::Result<()> {
        let started = Instant::now();
        loop {
            let left = time.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            // The window's end is not rounded up to the next look.
            let pause = self.pause();
            self.shard.sleep(left.min(pause)).await;
            if left <= pause {
                return Ok(());
            }
            if self.look().await?.progress.finished {
                return Ok(());
            }
        }
    }

    /// Looks at the jobs, the OSDs and Ctrl-C, and shows how far all is.
    async fn look(&mut self) -> anyhow::Result<BenchStatus> {
        if self.cancel.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        let status = self.drive.status().await?;
        self.view.show(&status);
        self.setup.bed.check_alive()?;
        if status.progress.failed {
            bail!("a job failed");
        }
        self.write_state(false)?;
        Ok(status)
    }

    async fn baseline(&mut self) -> anyhow::Result<f64> {
        self.view.phase("idle baseline");
        let before = self.setup.bed.sampler.sample()?;
        self.shard.sleep(BASELINE).await;
        let after = self.setup.bed.sampler.sample()?;
        Ok(self.setup.bed.sampler.baseline_cores(&before, &after))
    }

    /// Ends the load whatever happened before, keeps what is known of its blocks, and gathers the results.
    async fn finish(mut self, measured: anyhow::Result<Window>) -> anyhow::Result<Outcome> {
        self.view.phase("waiting for the last answers");
        if measured.is_err() {
            self.drive.give_up();
        }
        let (mut measured, status) = match self.results().await {
            Ok(status) => (measured, Some(status)),
            // The first error is the cause.
            Err(error) => (measured.and(Err(error)), None),
        };
        let written = self.write_state(true);
        if let Err(error) = written {
            measured = measured.and(Err(error));
        }
        self.view.finish();
        let known_blocks = self.drive.session().and_then(|s| s.state()).map_or(0, VerifyState::known);
        self.client.shutdown();
        let joined = self.drive.join().context("a thread of the generator failed");
        let spec =
            status.as_ref().map_or_else(|| self.setup.spec.clone(), |s| effective_spec(&self.setup.spec, s));
        let results = status.map(|s| s.results).unwrap_or_default();
        Ok(Outcome {
            spec,
            result: JobResult::merged(&results),
            measured: joined.and(measured),
            known_blocks,
            marks: self.marks,
            settled: self.settled,
            samples: self.samples,
            profiled: self.profiled,
        })
    }

    async fn results(&mut self) -> anyhow::Result<BenchStatus> {
        self.drive.set_phase(Phase::Stop).await?;
        let started = Instant::now();
        loop {
            let status = self.drive.status().await?;
            if status.done {
                return Ok(status);
            }
            if started.elapsed() > END_LIMIT {
                bail!("jobs did not end within {} s", END_LIMIT.as_secs());
            }
            self.shard.sleep(LOOK).await;
        }
    }

    /// Keeps the verify state in its file: now and then, and at the end.
    fn write_state(&mut self, end: bool) -> anyhow::Result<()> {
        let (Some(path), Some(state)) =
            (&self.setup.state_path, self.drive.session().and_then(|s| s.state()))
        else {
            return Ok(());
        };
        if self.setup.spec.verify_only || !end && self.state_written.elapsed() < STATE_EVERY {
            return Ok(());
        }
        write_whole(path, &state.encode(end))?;
        self.state_written = Instant::now();
        Ok(())
    }
}

async fn dump(client: &Client, id: OsdId) -> anyhow::Result<OsdDump> {
    let ask = async |question| -> anyhow::Result<Value> {
        serde_json::from_str(&client.admin(id, question).await?).context("the answer is no JSON")
    };
    let [metrics, status] = QUESTIONS;
    Ok(OsdDump::new([ask(metrics).await?, ask(status).await?]))
}
