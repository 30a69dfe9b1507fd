//! `carmine thrash`: loads a testbed with verified data and harms its OSDs at random; then heals it and checks everything.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it runs outside the reactors: it deals in processes and wall-clock limits"
)]

mod faults;
mod pauses;

use std::collections::HashSet;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail, ensure};
use carmine_client::{Access, Client, Options};
use carmine_load::{JobResult, LoadSpec, Phase, Rw, VerifyState, parse_bytes, parse_millis};
use carmine_reactor::{Shard, block_on};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, note, print};
use carmine_testbed::spec::DirArgs;
use carmine_testbed::{BedKind, Layout, POOL_NAME, Testbed, access, refuse, status};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use carmine_bench::steering::{Jobs, Steering, controller};
use faults::{Faults, Kind};
use pauses::{Pauses, Probes, Told};

/// Time between two looks at the scrubs.
const LOOK: Duration = Duration::from_millis(200);

/// The text below the options.
const AFTER_HELP: &str = "\
The testbed must run and be clean. Its OSDs are killed (kill -9), stopped for a time (SIGSTOP), restarted with another number of
reactors, taken out and in, and the pool's size and min_size are lowered and restored. PGs are split and merged: the pool gets more
PGs, or fewer. All connections of an OSD are cut by `ss -K`, which takes root and a kernel with INET_DIAG_DESTROY. The files of an OSD
take no more data (RLIMIT_FSIZE) until it has ended by itself, which it must: not with a store in memory, nor on devices. The map
calls the drives full (ratios of next to nothing) for a few seconds, so that clients' writes and backfills wait. Real monitors
(`carmine up --mon ceph`) are killed, the leader first and one at a time, and so is the manager. With `carmine up --namespaces` an OSD
or one of three real monitors is cut off from all others for up to 30 s. As many OSDs as min_size asks for stay up; with a store in
memory an OSD is harmed only while all copies are complete.

Our own generator writes and reads verified blocks meanwhile, and a small write to each of up to 32 PGs every 50 ms shows how long each
fault kept writes from being acknowledged. At the end everything is healed: all PGs must be active+clean in time, every block is read
back, and a deep scrub compares all copies.

The same seed draws the same faults as long as the testbed answers at the same times. OSDs keep their last number of reactors
until the next `carmine up`.

Exit codes: 0 nothing was lost, and no client had an error; 1 otherwise, or it was interrupted; 2 it cannot be done as asked.";

/// Options of `carmine thrash`.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER_HELP)]
pub struct ThrashArgs {
    #[command(flatten)]
    dir: DirArgs,
    /// Time in which faults are made, such as 30s, 2m or 1h
    #[arg(long, value_name = "TIME", default_value = "2m", value_parser = parse_millis)]
    runtime: u64,
    /// Kinds of faults: kill, stop, restart, out, pool, split, merge, cut, file, full, mon, mgr, partition [default: all that are possible here]
    #[arg(long, value_name = "KIND,…", value_delimiter = ',')]
    faults: Vec<Kind>,
    /// Seed that draws the faults and the load [default: another one each time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Operations that the load keeps in flight
    #[arg(long, value_name = "N", default_value_t = 16)]
    iodepth: u32,
    /// Bytes that the load spreads over: the fewer, the more often each block is written
    #[arg(long, value_name = "SIZE", default_value = "32m", value_parser = parse_bytes)]
    size: u64,
    /// Seconds after the last fault until all PGs must be active and clean
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    heal_limit: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The result.
#[derive(Default, Serialize)]
struct Report {
    seed: u64,
    seconds: f64,
    faults: Vec<Told>,
    pauses: Vec<Pauses>,
    /// From the end of the faults until all PGs were active and clean.
    healed_s: Option<f64>,
    operations: u64,
    longest_pause_ms: f64,
    blocks_checked: u64,
    blocks_wrong: u64,
    pgs_scrubbed: usize,
    /// Everything that is wrong; empty: nothing was lost.
    problems: Vec<String>,
}

/// Thrashes a testbed; `cancel` ends it early, and heals it. The exit code is 0 if nothing was lost.
///
/// # Errors
/// The testbed does not run or is not clean, or the load cannot be made.
pub fn run(args: &ThrashArgs, cancel: &AtomicBool) -> Result<ExitCode> {
    let layout = Layout::new(&args.dir.dir)?;
    let before = status(BedKind::Testbed, &layout)?;
    if before.state != "running" {
        bail!("the testbed in {} is {}: {}", before.dir, before.state, before.problems.join("; "));
    }
    let bed = Testbed::open_existing(BedKind::Testbed, layout)?;
    bed.plan().refuse_part("thrash")?;
    let access = access(bed.layout(), bed.plan())?;
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let spec = args.spec(seed);
    spec.check().map_err(Usage)?;
    let grid = &bed.plan().grid;
    let (cpus, cpu) = (grid.client_cpus().to_vec(), grid.system_cpus().to_vec().last().copied());
    let kinds = args.kinds(&bed)?;
    note(&format!("seed {seed}"));
    let report = block_on(controller(cpu), async |shard: Shard| {
        let client = Client::connect(&shard, &access, Options::default());
        let client = client.await.context("cannot reach the testbed")?;
        let thrash = Thrash { args, kinds, cancel, spec, cpus, access, client, shard };
        thrash.run(bed, Report { seed, ..Report::default() }).await
    })
    .context("cannot start the controller")??;
    print(&if args.json { json_text(&report)? } else { report.table() })?;
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl ThrashArgs {
    /// The kinds of faults to draw from. One that is asked for and impossible is an error; of the others it is said which are left out.
    fn kinds(&self, bed: &Testbed) -> Result<Vec<Kind>> {
        let mut kinds = if self.faults.is_empty() { Kind::ALL.to_vec() } else { self.faults.clone() };
        for (kind, why) in kinds.clone().into_iter().filter_map(|kind| Some((kind, kind.why_not(bed)?))) {
            refuse!(self.faults.contains(&kind), "--faults {kind}: {why}");
            note(&format!("no fault of the kind {kind}: {why}"));
            kinds.retain(|other| *other != kind);
        }
        Ok(kinds)
    }

    fn spec(&self, seed: u64) -> LoadSpec {
        LoadSpec {
            rw: Rw::RandRw,
            rwmixread: 30,
            iodepth: self.iodepth,
            size_bytes: self.size,
            object_size_bytes: 256 << 10,
            runtime_ms: self.runtime,
            seed,
            verify: true,
            generation: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64),
            ..LoadSpec::default()
        }
    }
}

struct Thrash<'a> {
    args: &'a ThrashArgs,
    kinds: Vec<Kind>,
    cancel: &'a AtomicBool,
    spec: LoadSpec,
    cpus: Vec<usize>,
    access: Access,
    client: Rc<Client>,
    shard: Shard,
}

impl Thrash<'_> {
    /// Runs all of it; problems are in the report.
    async fn run(&self, bed: Testbed, mut report: Report) -> Result<Report> {
        let mut steering = self.load(&self.spec, VerifyState::new(&self.spec))?;
        let began = Instant::now();
        let healed = self.under_faults(&mut steering, bed, &mut report).await;
        report.seconds = began.elapsed().as_secs_f64();
        report.healed_s = healed.as_ref().ok().copied();
        report.note(&healed);
        let (load, state) = end(steering, healed.is_err()).await?;
        (report.operations, report.longest_pause_ms) = (load.ops(), load.longest_pause_ns as f64 / 1e6);
        report.add(&load);
        // A cluster that did not become clean cannot be read back.
        if let (Some(state), true) = (state, report.healed_s.is_some()) {
            let read = self.read_back(state).await.map(|read| report.add(&read));
            report.note(&read);
            let scrubbed = self.deep_scrub().await.map(|pgs| report.pgs_scrubbed = pgs);
            report.note(&scrubbed);
        }
        self.client.shutdown();
        Ok(report)
    }

    fn load(&self, spec: &LoadSpec, state: VerifyState) -> Result<Steering<'_>> {
        let jobs = Jobs::of_cluster(spec, Some(state), &self.cpus, &self.access, POOL_NAME)?;
        Ok(Steering::new(&self.shard, jobs, spec, self.cancel, Box::new(|_| Ok(()))))
    }

    /// The load with its faults until everything is healed; the seconds that healing took.
    async fn under_faults(
        &self,
        steering: &mut Steering<'_>,
        bed: Testbed,
        report: &mut Report,
    ) -> Result<f64> {
        steering.connect().await?;
        steering.prefill().await?;
        steering.jobs.set_phase(Phase::Measure).await?;
        let ((send, strikes), stop) = (channel(), Arc::new(AtomicBool::new(false)));
        let time = Duration::from_millis(self.args.runtime);
        let heal_limit = Duration::from_secs(self.args.heal_limit);
        let faults = Faults::new(bed, &self.kinds, report.seed, heal_limit, send, Arc::clone(&stop))?;
        let probes = Probes::start(&self.client.wait_pool(POOL_NAME).await?, strikes);
        steering.view.timed("faults", self.args.runtime);
        let thread = std::thread::Builder::new().name("faults".into()).spawn(move || faults.run(time))?;
        let (mut shown, mut went_on) = (0, Ok(()));
        while !thread.is_finished() {
            if went_on.is_ok() {
                went_on = steering.go_on().await;
            } else {
                stop.store(true, Ordering::Relaxed);
                self.shard.sleep(LOOK).await;
            }
            let lines = probes.lines(shown);
            lines.iter().for_each(|line| steering.view.line(line));
            shown += lines.len();
        }
        let healed = thread.join().map_err(|_| anyhow!("the thread of the faults panicked"))?;
        let probed = if healed.is_ok() { probes.finish(&self.shard).await } else { Ok(()) };
        (report.faults, report.pauses) = probes.found();
        went_on.and(healed).and_then(|seconds| probed.map(|()| seconds))
    }

    /// Reads every block that was ever acknowledged.
    async fn read_back(&self, state: VerifyState) -> Result<JobResult> {
        let spec = LoadSpec { verify_only: true, ..self.spec.clone() };
        let mut steering = self.load(&spec, state)?;
        let read = async {
            steering.connect().await?;
            steering.measure(&spec).await
        }
        .await;
        let (result, _) = end(steering, read.is_err()).await?;
        read.map(|()| result).context("reading every block back")
    }

    /// Compares all copies of all PGs; returns the number of PGs. An order is lost where another OSD becomes primary before it is
    /// carried out, as in Ceph: it is given when all PGs have the members that they are to keep.
    async fn deep_scrub(&self) -> Result<usize> {
        let end = Instant::now() + Duration::from_secs(self.args.heal_limit);
        let is_late = || Instant::now() > end || self.cancel.load(Ordering::Relaxed);
        let before = loop {
            let pgs = self.pgs().await?;
            // A manager that was just started knows nothing of a PG before its primary reports.
            let is_unready = |pg: &&Value| pg["up"] != pg["acting"] || pg["state"] == "unknown";
            let Some(pg) = pgs.iter().find(is_unready) else { break pgs };
            ensure!(!is_late(), "PG {} did not get its members in time", name(pg));
            self.shard.sleep(LOOK).await;
        };
        let order = json!({ "prefix": "osd deep-scrub", "who": "all" });
        self.client.mon_command(&order.to_string()).await?;
        let stamp = |pg: &Value| [pg["pgid"].clone(), pg["last_deep_scrub_stamp"].clone()];
        let before: HashSet<_> = before.iter().map(stamp).collect();
        loop {
            let now = self.pgs().await?;
            let Some(pg) = now.iter().find(|pg| before.contains(&stamp(pg))) else {
                let wrong = now.iter().filter(|pg| pg["stat_sum"]["num_scrub_errors"] != 0);
                let wrong: Vec<String> = wrong.map(name).collect();
                ensure!(wrong.is_empty(), "copies differ in PG {}", wrong.join(", "));
                return Ok(now.len());
            };
            ensure!(!is_late(), "PG {} was not deep-scrubbed in time", name(pg));
            self.shard.sleep(LOOK).await;
        }
    }

    async fn pgs(&self) -> Result<Vec<Value>> {
        let dump = json!({ "prefix": "pg dump", "dumpcontents": ["pgs"], "format": "json" });
        let reply = self.client.mon_command(&dump.to_string()).await?;
        let mut told: Value = serde_json::from_slice(&reply.data).context("`pg dump` is not JSON")?;
        serde_json::from_value(told["pg_stats"].take()).context("`pg dump` has no `pg_stats`")
    }
}

/// A PG and its state.
fn name(pg: &Value) -> String {
    let word = |field: &str| pg[field].as_str().unwrap_or_default().to_owned();
    format!("{} ({})", word("pgid"), word("state"))
}

/// Ends a load; returns its result, and the blocks that it knows.
async fn end(mut steering: Steering<'_>, has_failed: bool) -> Result<(JobResult, Option<VerifyState>)> {
    let status = steering.results(has_failed).await;
    steering.view.finish();
    let state = steering.jobs.state().cloned();
    steering.jobs.join().context("a thread of the generator failed")?;
    Ok((JobResult::merged(&status?.results), state))
}

impl Report {
    fn note<T>(&mut self, step: &Result<T>) {
        self.problems.extend(step.as_ref().err().map(|error| format!("{error:#}")));
    }

    /// Adds a load's counts of blocks, and its errors.
    fn add(&mut self, load: &JobResult) {
        self.blocks_checked += load.verify.checked;
        self.blocks_wrong += load.verify.mismatches;
        self.problems.extend(load.first_error.iter().map(|error| format!("a client had an error: {error}")));
        self.problems.extend(load.verify.details.iter().map(|detail| format!("a wrong block: {detail}")));
        if load.abandoned > 0 {
            self.problems.push(format!("{} operations had no answer at the end", load.abandoned));
        }
    }

    fn table(&self) -> String {
        let Report { seed, seconds, operations, blocks_checked, blocks_wrong, pgs_scrubbed, .. } = self;
        let (faults, pause) = (self.faults.len(), self.longest_pause_ms);
        let healed = match self.healed_s {
            Some(seconds) => format!("clean {seconds:.1} s after the last"),
            None => "not healed".to_owned(),
        };
        let mut text = format!(
            "seed {seed}: {faults} faults and ends of faults in {seconds:.1} s, {healed}\n\
            to the next write                 times    PGs  median ms     p99 ms     max ms  longest\n"
        );
        for row in &self.pauses {
            text += &row.line();
        }
        if self.pauses.iter().any(|row| row.overlapped) {
            text += "overlapped: an OSD or a monitor was lost, or lost again, before the PG had gone on\n";
        }
        text += &format!(
            "load      {operations} operations; {pause:.0} ms at most without an acknowledged one\n\
            verify    {blocks_checked} blocks checked, {blocks_wrong} wrong\n\
            scrub     {pgs_scrubbed} PGs deep-scrubbed\n"
        );
        text.extend(self.problems.iter().map(|problem| format!("FAILED    {problem}\n")));
        if self.problems.is_empty() {
            text.push_str("nothing was lost\n");
        }
        text
    }
}
