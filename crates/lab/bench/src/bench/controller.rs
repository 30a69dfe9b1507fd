//! The controller of our own generator's load: moves it through its phases, and reads the kernel's accounting at both ends of
//! the window. It sleeps on a CPU of the system or of the clients; its own CPU time is counted as the generator's.

use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use carmine_client::{Client, Options};
use carmine_load::window::{DrainWindow, Window};
use carmine_load::{JobResult, LoadSpec, Phase, VerifyState};
use carmine_reactor::{Shard, block_on};
use carmine_testbed::{refuse, write_whole};
use carmine_types::{OsdId, counted};

use super::recovering::Recovering;
use super::setup::Setup;
use super::{Outcome, Seen};
use crate::cluster::Reading;
use crate::load_hosts::Hosts;
use crate::profile::{Recording, length};
use crate::sample::series::Recorder;
use crate::sample::{Counters, OsdDump, QUESTIONS, add_dumps};
use crate::steering::{Jobs, Steering, controller};

/// Time between copies of the verify state to its file.
const STATE_EVERY: Duration = Duration::from_secs(1);
/// A load without a single running OSD waits this long for one to be started.
const NONE_LIMIT: Duration = Duration::from_secs(10);
/// Time between two looks at the OSDs' threads for work that a store has put off.
const DRAIN_LOOK: Duration = Duration::from_millis(100);
/// An OSD is quiet while its threads that are not reactors are on a CPU (or ready for one) for less than this part of the
/// time …
const QUIET: f64 = 0.05;
/// … for this many looks in a row.
const QUIET_LOOKS: u32 = 3;
/// After this the work is left undone, and the result says so.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);

/// Runs the whole load on the calling thread's reactor.
pub(super) fn run(setup: &Setup, cancel: &AtomicBool) -> Result<Outcome> {
    let cpu = setup.plan.grid.system_cpus().to_vec().last().copied();
    block_on(controller(cpu), async |shard: Shard| {
        let client = Client::connect(&shard, &setup.access, Options::default());
        let client = client.await.context("cannot reach the testbed")?;
        let (hosts, access, pool) = (&setup.args.load_hosts, &setup.access, &setup.args.pool);
        let jobs = match setup.in_process() {
            None if !hosts.is_empty() => {
                Jobs::Hosts(Hosts::start(hosts, &setup.spec, &access.mons, pool, setup.git_hash)?)
            }
            Some(osd) => Jobs::far(&client, osd, &setup.spec, pool).await?,
            None => {
                let (state, cpus) = (setup.state.clone(), setup.client_cpus());
                Jobs::of_cluster(&setup.spec, state, &cpus, access, pool)?
            }
        };
        let (mut written, mut last_ran) = (Instant::now(), Instant::now());
        let on_look = Box::new(move |jobs: &Jobs| {
            match setup.check_one_runs() {
                Ok(()) => last_ran = Instant::now(),
                Err(_) if last_ran.elapsed() < NONE_LIMIT && !setup.mons_are_dead() => {}
                Err(error) => return Err(error),
            }
            if written.elapsed() >= STATE_EVERY {
                write_state(setup, jobs, false)?;
                written = Instant::now();
            }
            Ok(())
        });
        let steering = Steering::new(&shard, jobs, &setup.spec, cancel, on_look);
        let mut controller = Controller { setup, client, steering, seen: Seen::default(), recovering: None };
        let measured = controller.phases().await;
        let back = controller.take_in(measured.is_ok()).await;
        controller.finish(measured.and_then(|window| back.map(|()| window))).await
    })
    .context("cannot start the controller")?
}

/// Keeps the verify state in its file.
fn write_state(setup: &Setup, jobs: &Jobs, end: bool) -> Result<()> {
    if let (Some(path), Some(state)) = (&setup.args.verify_state, jobs.state())
        && !setup.spec.verify_only
    {
        write_whole(path, &state.encode(end))?;
    }
    Ok(())
}

struct Controller<'a> {
    setup: &'a Setup,
    client: Rc<Client>,
    steering: Steering<'a>,
    seen: Seen,
    /// The OSD that is out.
    recovering: Option<Recovering>,
}

impl Controller<'_> {
    /// Setup, prefill, ramp and the window; returns at its end with the load still running.
    async fn phases(&mut self) -> Result<Window> {
        let setup = self.setup;
        self.steering.connect().await?;
        self.steering.view.phase("idle baseline");
        let idle_cores = setup.idle_cores()?;
        let served = self.read().await?.client_ops();
        refuse!(
            setup.wants_cold() && served > 0,
            "--cache cold: the OSDs have answered {} since their start; restart them (`carmine down`, `carmine up`)",
            counted(served as usize, "operation")
        );
        self.steering.prefill().await?;
        if setup.defers_work() {
            let idle = self.read().await?;
            self.seen.settled = Some(self.drain(&idle).await?);
        }
        let mut counters = Counters::attach(&setup.osd_pids(), setup.args.samples.is_some());
        self.steering.ramp(setup.spec.ramp_ms).await?;
        self.profile().await?;
        let recorder = setup.args.samples.as_ref().map(|_| setup.record(&setup.sampler)).transpose()?;
        self.steering.agree(&setup.spec).await?;
        let start = self.read().await?;
        counters.start();
        self.take_out().await?;
        self.steering.measure(&setup.spec).await?;
        counters.stop();
        setup.check_one_runs()?;
        let end = self.read().await?;
        self.seen.marks.extend(setup.died_mark());
        self.seen.samples = recorder.map(Recorder::finish).transpose()?;
        self.seen.recovered = self.recovering.as_ref().map(Recovering::seen);
        self.steering.jobs.set_phase(Phase::Stop).await?;
        let mut window = start.window_to(&end, &setup.sampler, idle_cores);
        window.counters = counters.read();
        if setup.defers_work() {
            window.drain = Some(self.drain(&end).await?);
        }
        window.instrument = self.seen.samples.as_ref().map(|samples| samples.instrument.clone());
        Ok(window)
    }

    /// Takes the OSD out whose data others are to get, if that was asked for.
    async fn take_out(&mut self) -> Result<()> {
        let Some(osd) = self.setup.args.osd_out.map(OsdId) else { return Ok(()) };
        let osds = self.setup.osds.iter().map(|(id, _)| *id).collect();
        self.recovering = Some(Recovering::begin(&self.client, osds, osd).await?);
        Ok(())
    }

    /// Takes it in again, whatever became of the window; its data is back after a good one.
    async fn take_in(&mut self, waits: bool) -> Result<()> {
        let Some(recovering) = self.recovering.take() else { return Ok(()) };
        self.steering.view.phase("waiting until the OSD that was out has its data again");
        recovering.end(waits).await
    }

    /// Records the OSDs under the load if that was asked for, before the window, so that no figure includes the cost of `perf`. Where
    /// it cannot be done the load goes on.
    async fn profile(&mut self) -> Result<()> {
        let Some(mode) = self.setup.args.profile else { return Ok(()) };
        let recording = match self.setup.cannot_profile() {
            Some(why) => Err(why.to_owned()),
            None => {
                self.steering.jobs.set_phase(Phase::Ramp).await?;
                self.steering.view.timed("profiling", length(mode).as_millis() as u64);
                Recording::start(mode, &self.setup.osd_pids())
            }
        };
        self.seen.profiled = Some(match recording {
            Ok(mut recording) => {
                while !recording.has_ended() {
                    self.steering.go_on().await?;
                }
                recording.finish()
            }
            Err(why) => Err(why),
        });
        Ok(())
    }

    /// Reads the OSDs' clocks first and then the kernel's, at both ends of the window alike: both windows are equally long.
    async fn read(&mut self) -> Result<Reading> {
        let mut osds = Vec::new();
        // A peer's OSDs do not know these questions; one that was started again counts from zero.
        for (id, process) in self.setup.osds.iter().filter(|_| self.setup.plan.peer.is_none()) {
            let told = if process.alive() { dump(&self.client, *id).await } else { Ok(OsdDump::default()) };
            osds.push(told.unwrap_or_else(|error| {
                self.seen.marks.push(format!("{id} did not give its metrics: {error:#}"));
                OsdDump::default()
            }));
        }
        Ok(Reading { osds, kernel: self.setup.sampler.sample()? })
    }

    /// Waits for work that a store puts off (RocksDB's memtables and compaction), and returns its cost since `start`: before the
    /// load, so that it pays for no earlier load; after it, so that the CPU time is charged to the operations that caused it.
    async fn drain(&mut self, start: &Reading) -> Result<DrainWindow> {
        self.steering.view.phase("waiting for the OSDs' background work");
        let sampler = &self.setup.sampler;
        let began = Instant::now();
        let (mut last, mut last_ns, mut quiet) = (began, 0, 0);
        loop {
            self.steering.shard.sleep(DRAIN_LOOK).await;
            let mut window = sampler.window(&start.kernel, &sampler.sample()?, 0.0);
            // The OSDs' answers serve one purpose only: they say which threads are reactors.
            add_dumps(&mut window, &start.osds, &start.osds);
            let occupied_ns: u64 = window.osds.iter().map(|o| o.alien_occupied_ns()).sum();
            let osds = window.osds.len().max(1) as f64;
            let part = occupied_ns.saturating_sub(last_ns) as f64 / (last.elapsed().as_nanos() as f64 * osds);
            (last_ns, last) = (occupied_ns, Instant::now());
            quiet = if part < QUIET { quiet + 1 } else { 0 };
            let finished = quiet >= QUIET_LOOKS;
            if finished || began.elapsed() > DRAIN_LIMIT {
                let cpu_ns = window.osds.iter().map(|o| o.alien_ns()).sum();
                return Ok(DrainWindow { wall_ns: window.wall_ns, cpu_ns, finished });
            }
            self.steering.look().await?;
        }
    }

    /// Ends the load whatever happened before, keeps the state of its blocks, and gathers the results.
    async fn finish(mut self, mut measured: Result<Window>) -> Result<Outcome> {
        let status = self.steering.results(measured.is_err()).await;
        let written = write_state(self.setup, &self.steering.jobs, true);
        self.steering.view.finish();
        let known_blocks = self.steering.jobs.state().map_or(0, VerifyState::known);
        if let Jobs::Hosts(hosts) = &self.steering.jobs {
            let (load_hosts, here_ns) = hosts.outcome();
            self.seen.load_hosts = load_hosts;
            // Generators on this machine are no work of others.
            measured.iter_mut().for_each(|window| window.machine.generator_ns += here_ns);
        }
        self.client.shutdown();
        let joined = self.steering.jobs.join().context("a thread of the generator failed");
        // In-process, each reactor is a job.
        let numjobs = status.as_ref().map_or(self.setup.spec.numjobs, |status| status.jobs);
        let result = status.as_ref().map(|status| JobResult::merged(&status.results)).unwrap_or_default();
        Ok(Outcome {
            spec: LoadSpec { numjobs, ..self.setup.spec.clone() },
            result,
            // The first error is the cause.
            measured: joined.and(measured).and_then(|window| status.and(written).map(|()| window)),
            known_blocks,
            seen: self.seen,
            told: None,
        })
    }
}

async fn dump(client: &Client, id: OsdId) -> Result<OsdDump> {
    let [metrics, status] = QUESTIONS;
    OsdDump::parse([&client.admin(id, metrics).await?, &client.admin(id, status).await?])
}
