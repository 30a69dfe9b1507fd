//! `carmine bench --client`: the tools that Ceph's users know load a Carmine testbed or a peer, and are measured as our own
//! generator is, from the prefill to the last answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use carmine_load::hosted::{ClusterAccess, HostedFigures, Tool, fio, rados};
use carmine_load::profile::ProfileMode;
use carmine_load::window::{ProcessWindow, Window};
use carmine_load::{ClientClocks, LoadSpec, Prefill, Rw};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::process::spawn_on;
use indicatif::ProgressBar;
use serde_json::json;
use tempfile::TempDir;

use super::setup::{Reading, Setup, instrument};
use super::{Outcome, Seen, Told, room};
use crate::child::Owned;
use crate::profile::{Recording, length};
use crate::sample::series::Recorder;
use crate::sample::{Counters, Sampler};

/// Time for `perf` to attach itself to the OSDs, and to write down its recording.
const PERF_STARTS_MS: u64 = 1_500;
/// How often processes and Ctrl-C are looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Time between readings of a window that the tool may end.
const READ_EVERY: Duration = Duration::from_millis(100);
/// Time for a tool to connect, also on a busy machine.
const BEGIN_LIMIT: Duration = Duration::from_secs(60);
/// Time for a tool to end after its window: `rados bench` removes what it wrote.
const END_LIMIT: Duration = Duration::from_secs(300);
/// Time for a prefill, and for a load that has so many bytes to move.
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
    let run = Run { tool, spec, setup, programs, cancel, bar, profile };
    // Where some of the data is there, all of it may be.
    let room = room::check(setup, |enough| Ok(if is_there(&run, false)? { enough } else { 0 }));
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

/// A load by a hosted tool.
struct Run<'a> {
    tool: Tool,
    /// With a ramp that is long enough for the profile.
    spec: LoadSpec,
    setup: &'a Setup,
    programs: ToolPrograms,
    cancel: &'a AtomicBool,
    bar: ProgressBar,
    /// A flamegraph is wanted, and there is a ramp in which it can be taken.
    profile: Option<ProfileMode>,
}

impl Run<'_> {
    /// Prefill, ramp and window.
    fn measure(&self) -> Result<Outcome> {
        self.say(&format!("prefilling with {}", self.tool));
        prefill(self)?;
        let idle_cores = self.setup.idle_cores()?;
        let with_samples = self.setup.args.samples.is_some();
        let mut counters = Counters::attach(&self.setup.osd_pids(), with_samples);
        let cannot_profile = self.setup.cannot_profile().map(|why| Err(why.to_owned()));
        let mut seen = Seen { profiled: cannot_profile, ..Seen::default() };
        if self.tool == Tool::RadosBench && self.spec.ramp_ms > 0 {
            // It cannot leave a part of its run out: the ramp is a run of its own.
            self.say("ramp");
            let mut clients = Clients::load(self, self.spec.ramp_ms)?;
            self.wait_for_begin(&mut clients)?;
            let recording = self.profile();
            self.wait_for_end(&mut clients, END_LIMIT)?;
            seen.profiled = recording.map(|recording| recording?.finish()).or(seen.profiled);
        }
        let mut clients = Clients::load(self, self.spec.runtime_ms)?;
        self.say(&format!("{} connects", self.tool));
        // The tool's own clock runs from here: what is read or written down meanwhile comes out of the window.
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
        let begin = self.read(&sampler)?;
        counters.start();
        let end = self.window_end(&mut clients, &sampler, begun)?;
        counters.stop();
        seen.samples = recorder.map(Recorder::finish).transpose()?;
        self.say(&format!("{} ends", self.tool));
        self.wait_for_end(&mut clients, END_LIMIT)?;
        let mut figures = clients.figures()?;
        let mut window = self.setup.window(&sampler, &begin, &end, idle_cores);
        window.counters = counters.read();
        window.instrument = instrument(seen.samples.as_ref());
        figures.result.client = hottest(&sampler.tools(&begin.kernel, &end.kernel), window.wall_ns);
        seen.marks.extend(window_mark(&figures, &window));
        seen.marks.extend(self.full_mark(figures.seconds));
        let (version, command) = (&self.programs.version, &clients.command);
        let told = Told {
            latency: figures.latency,
            jobs: figures.jobs(&self.spec),
            version: figures.version,
            client: json!({ "tool": self.tool, "version": version, "command": command }),
        };
        Ok(Outcome {
            spec: self.spec.clone(),
            result: figures.result,
            measured: Ok(window),
            known_blocks: 0,
            seen,
            told: Some(told),
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

    /// The OSDs' clocks first and then the kernel's, at both ends of the window alike.
    fn read(&self, sampler: &Sampler) -> Result<Reading> {
        Ok(Reading { osds: self.setup.dumps(), kernel: sampler.sample()? })
    }

    /// Reads at the window's end; one that the tool ends by itself, for there is nothing more to read or
    /// no more room, ends there.
    fn window_end(&self, clients: &mut Clients, sampler: &Sampler, begun: Instant) -> Result<Reading> {
        let ends_early = self.tool == Tool::RadosBench && self.spec.rw != Rw::RandRead;
        let time = match self.spec.ends_by_itself() {
            true => PREFILL_LIMIT,
            false => Duration::from_millis(self.spec.runtime_ms),
        };
        let end = begun + time;
        if !self.spec.ends_by_itself() && !ends_early {
            if begun.elapsed() > time / 2 {
                bail!(
                    "half of the window of {time:?} was over before it was looked at: take a longer --runtime"
                );
            }
            self.run_until(clients, end)?;
            return self.read(sampler);
        }
        let mut last = self.read(sampler)?;
        while Instant::now() < end && !clients.have_ended()? {
            self.check_alive()?;
            std::thread::sleep(READ_EVERY.min(end.saturating_duration_since(Instant::now())));
            match self.read(sampler) {
                Ok(reading) => last = reading,
                Err(_) if clients.has_one_ended()? => break,
                Err(e) => return Err(e),
            }
        }
        Ok(last)
    }

    /// Fails if an OSD has died, or at Ctrl-C.
    fn check_alive(&self) -> Result<()> {
        if self.cancel.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        self.setup.check_alive()
    }

    /// Waits until the load has begun; returns when that was.
    fn wait_for_begin(&self, clients: &mut Clients) -> Result<Instant> {
        let has_begun = |clients: &mut Clients| {
            let has_begun = clients.have_begun();
            if has_begun { Ok(true) } else { clients.check_running().map(|()| false) }
        };
        self.wait(clients, BEGIN_LIMIT, "begin", has_begun)?;
        Ok(Instant::now())
    }

    /// Waits until the tool has ended.
    fn wait_for_end(&self, clients: &mut Clients, limit: Duration) -> Result<()> {
        self.wait(clients, limit, "end", Clients::have_ended)
    }

    fn wait(
        &self,
        clients: &mut Clients,
        limit: Duration,
        what: &str,
        is_over: impl Fn(&mut Clients) -> Result<bool>,
    ) -> Result<()> {
        let end = Instant::now() + limit;
        while !is_over(clients)? {
            self.check_alive()?;
            if Instant::now() > end {
                bail!("{} did not {what} within {} s: {}", self.tool, limit.as_secs(), clients.said());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Lets the load run; a tool that ends before is an error.
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
            std::thread::sleep(left.min(LOOK * 10));
        }
    }
}

// The tools' programs and processes: fio with a thread for each job, in one process or in several, or one `rados bench` per job;
// and the data that a load needs before it: objects, or an image that is written through.

/// Files in a process's working folder: fio's result, and its output and errors.
const OUTPUT: &str = "result.json";
const SAID: &str = "said";

/// Key of an image's metadata that says that every block of it was written.
const FILLED: &str = "carmine_filled";

/// The programs that a tool needs.
struct ToolPrograms {
    /// The program that makes the load.
    load: PathBuf,
    /// `rados`, to look at objects.
    rados: PathBuf,
    /// `rbd`, to make images.
    rbd: PathBuf,
    /// First line of the load program's answer to `--version`.
    version: String,
}

fn find(program: &str, package: &str) -> Result<PathBuf> {
    let install = format!("apt-get install -y --no-install-recommends {package}");
    Ok(which::which(program)
        .map_err(|_| Usage(format!("{program} is not installed; as root run:  {install}")))?)
}

impl ToolPrograms {
    /// Finds the programs of `tool`; a missing one is named with its package.
    fn find(tool: Tool) -> Result<ToolPrograms> {
        let (rados, rbd) = (find("rados", "ceph-common")?, find("rbd", "ceph-common")?);
        let load = if tool == Tool::RadosBench { rados.clone() } else { find("fio", "fio")? };
        let said = Command::new(&load).arg("--version").stdin(Stdio::null()).output()?;
        let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
        Ok(ToolPrograms { load, rados, rbd, version })
    }
}

struct Process {
    child: Owned,
    /// Its working folder: fio leaves its files there.
    folder: PathBuf,
}

impl Process {
    /// The text of its output and errors.
    fn said(&self) -> String {
        let bytes = std::fs::read(self.folder.join(SAID)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The figures of fio.
    fn fio_figures(&self) -> Result<Result<HostedFigures, String>> {
        let path = self.folder.join(OUTPUT);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("fio left no result in {}: {}", path.display(), self.said()))?;
        Ok(fio::parse(&text).map(|mut figures| {
            let rates = std::fs::read_to_string(self.folder.join(fio::RATES_FILE));
            fio::add_rates(&rates.unwrap_or_default(), &mut figures.result);
            figures
        }))
    }
}

/// Processes that make one load; they are ended when this is dropped.
struct Clients {
    tool: Tool,
    /// Has the folders of the processes.
    _root: TempDir,
    /// The command line of the first process.
    command: Vec<String>,
    processes: Vec<Process>,
}

impl Clients {
    /// Starts the load on the client CPUs. `millis` is the time that it is counted for.
    fn load(run: &Run<'_>, millis: u64) -> Result<Clients> {
        let (spec, place) = (&run.spec, place(run));
        let lines: Vec<_> = match run.tool {
            Tool::RadosBench => {
                let most_objects = room::objects_of_each_job(run.setup)?;
                (0..spec.numjobs)
                    .map(|job| rados::arguments(spec, &place, job, millis, most_objects))
                    .collect()
            }
            tool => (0..spec.processes).map(|at| fio::arguments(tool, spec, &place, OUTPUT, at)).collect(),
        };
        Self::start(run, &lines)
    }

    /// Starts the processes that write the data which a load needs.
    fn prefill(run: &Run<'_>) -> Result<Clients> {
        let (spec, place) = (&run.spec, place(run));
        let lines: Vec<_> = match run.tool {
            Tool::RadosBench => {
                (0..spec.numjobs).map(|job| rados::prefill_arguments(spec, &place, job)).collect()
            }
            tool => vec![fio::prefill_arguments(tool, spec, &place, OUTPUT)],
        };
        Self::start(run, &lines)
    }

    fn start(run: &Run<'_>, lines: &[Vec<String>]) -> Result<Clients> {
        const FOLDER: &str = "cannot make a folder for the tool's result";
        let program = &run.programs.load;
        let root = tempfile::tempdir().context(FOLDER)?;
        let command = [program.display().to_string()].into_iter().chain(lines.iter().flatten().cloned());
        let command = command.take(1 + lines.first().map_or(0, Vec::len)).collect();
        let mut clients = Clients { tool: run.tool, _root: root, command, processes: Vec::new() };
        for (line, at) in lines.iter().zip(0..) {
            let folder = clients._root.path().join(at.to_string());
            std::fs::create_dir(&folder).context(FOLDER)?;
            let said = File::options().create(true).append(true).open(folder.join(SAID)).context(FOLDER)?;
            let mut command = tool_command(program, run);
            command.args(line).current_dir(&folder).stdout(said.try_clone()?).stderr(said);
            let child = Owned(spawn_on(&mut command, &run.setup.client_cpus())?);
            clients.processes.push(Process { child, folder });
        }
        Ok(clients)
    }

    fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|p| p.child.0.id()).collect()
    }

    /// True once all have sent their first request, or are about to.
    fn have_begun(&self) -> bool {
        self.processes.iter().all(|process| match self.tool {
            Tool::RadosBench => process.said().lines().any(rados::is_begin),
            _ => process.folder.join(fio::BEGIN_FILE).exists(),
        })
    }

    /// True once all have ended well.
    ///
    /// # Errors
    /// One has failed; the text has its last words.
    fn have_ended(&mut self) -> Result<bool> {
        Ok(self.ended()? == self.processes.len())
    }

    /// True once one has ended well; an error as of [`Clients::have_ended`].
    fn has_one_ended(&mut self) -> Result<bool> {
        Ok(self.ended()? > 0)
    }

    /// How many have ended, all of them well.
    fn ended(&mut self) -> Result<usize> {
        let statuses = self.processes.iter_mut().map(|process| process.child.0.try_wait());
        let statuses: Vec<Option<ExitStatus>> = statuses.collect::<io::Result<_>>()?;
        if let Some(status) = statuses.iter().flatten().find(|status| !status.success()) {
            bail!("{} failed ({status}): {}", self.tool, self.said());
        }
        Ok(statuses.iter().flatten().count())
    }

    /// An error if one has ended: nothing is left of its load.
    fn check_running(&mut self) -> Result<()> {
        if self.has_one_ended()? {
            bail!("{} ended too early: {}", self.tool, self.said());
        }
        Ok(())
    }

    /// The end of what they printed, for an error.
    fn said(&self) -> String {
        let all: Vec<String> = self.processes.iter().map(Process::said).collect();
        let lines: Vec<&str> =
            all.iter().flat_map(|said| said.lines()).filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("; ")
    }

    /// The figures of all together; all must have ended.
    fn figures(&self) -> Result<HostedFigures> {
        let one = |process: &Process| match self.tool {
            Tool::RadosBench => Ok(rados::parse(&process.said())),
            _ => process.fio_figures(),
        };
        let parsed = self.processes.iter().map(one).collect::<Result<Vec<_>>>()?;
        match parsed.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(all) => Ok(HostedFigures::merged(&all)),
            Err(why) => bail!("{why}: {}", self.said()),
        }
    }
}

/// Where the tool finds the cluster.
fn place(run: &Run<'_>) -> ClusterAccess {
    let conf = run.setup.layout.ceph_conf().display().to_string();
    ClusterAccess { conf, pool: run.setup.args.pool.clone() }
}

/// A stock tool on this cluster, in a group of its own: Ctrl-C is for the controller. fio's rbd engine takes the configuration
/// from the environment only.
fn tool_command(program: &Path, run: &Run<'_>) -> Command {
    let (mut command, conf) = (Command::new(program), run.setup.layout.ceph_conf());
    command.env("CEPH_CONF", conf).env_remove("CEPH_ARGS").stdin(Stdio::null()).process_group(0);
    command
}

/// Makes what is missing.
fn prefill(run: &Run<'_>) -> Result<()> {
    make_images(run)?;
    if !is_wanted(run)? {
        return Ok(());
    }
    let mut clients = Clients::prefill(run)?;
    run.wait_for_end(&mut clients, PREFILL_LIMIT).context("the prefill failed")?;
    for image in images(run) {
        rbd(run, &["image-meta", "set", &image, FILLED, "yes"])?;
    }
    Ok(())
}

fn is_wanted(run: &Run<'_>) -> Result<bool> {
    // Nothing is there before `rados bench write`; a load in order writes its objects itself.
    let writes_itself = run.spec.rw == Rw::Write || run.tool == Tool::RadosBench && run.spec.rw.writes();
    Ok(match run.spec.prefill {
        Prefill::Never => false,
        Prefill::Always => !writes_itself,
        Prefill::Auto => !writes_itself && !is_there(run, true)?,
    })
}

/// True if the load's data is there: all of it, or at least some, from this load or one before.
fn is_there(run: &Run<'_>, all: bool) -> Result<bool> {
    match run.tool {
        Tool::FioRbd => {
            let filled = |image: &String| match all {
                true => succeeds(run, &["image-meta", "get", image, FILLED]),
                false => succeeds(run, &["info", image]),
            };
            let found: Vec<bool> = images(run).iter().map(filled).collect::<Result<_>>()?;
            Ok(if all { !found.contains(&false) } else { found.contains(&true) })
        }
        Tool::RadosBench => {
            // The last thing that a run writes is a record of itself.
            let records = (0..run.spec.numjobs).map(|job| stat(run, &rados::run_name(&run.spec, job)));
            Ok(records.collect::<Result<Vec<_>>>()?.iter().all(Option::is_some))
        }
        _ => {
            let last = if all { run.spec.objects().saturating_sub(1) } else { 0 };
            let size = format!("size {}", run.spec.object_size_bytes);
            let said = stat(run, &fio::object(&run.spec, last))?;
            Ok(said.is_some_and(|said| !all || said.contains(&size)))
        }
    }
}

/// The answer of `rados stat`; `None` if there is no such object.
fn stat(run: &Run<'_>, object: &str) -> Result<Option<String>> {
    let said = output(run, &run.programs.rados, &["-p", &run.setup.args.pool, "stat", object])?;
    Ok(said.status.success().then(|| String::from_utf8_lossy(&said.stdout).into_owned()))
}

/// The load's images with their pool; none where it has objects.
fn images(run: &Run<'_>) -> Vec<String> {
    let volumes = if run.tool == Tool::FioRbd { run.spec.volumes } else { 0 };
    (0..volumes).map(|volume| format!("{}/{}", run.setup.args.pool, fio::image(&run.spec, volume))).collect()
}

fn make_images(run: &Run<'_>) -> Result<()> {
    let place = place(run);
    for (image, volume) in images(run).iter().zip(0..) {
        if !succeeds(run, &["info", image])? {
            rbd(run, &fio::create_image(&run.spec, &place, volume))?;
        }
    }
    Ok(())
}

/// Whether `rbd` succeeds with these arguments.
fn succeeds(run: &Run<'_>, args: &[&str]) -> Result<bool> {
    Ok(output(run, &run.programs.rbd, args)?.status.success())
}

/// Runs `rbd`, which must succeed.
fn rbd<S: AsRef<OsStr>>(run: &Run<'_>, args: &[S]) -> Result<()> {
    let output = output(run, &run.programs.rbd, args)?;
    if !output.status.success() {
        let what = args.first().map_or("".as_ref(), AsRef::as_ref).display();
        bail!("rbd {what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Runs a tool to its end. One that hangs ends with the OSDs or at Ctrl-C: it is in a group of its own.
fn output<S: AsRef<OsStr>>(run: &Run<'_>, program: &Path, args: &[S]) -> Result<Output> {
    let mut command = tool_command(program, run);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {}", program.display()))?;
    while child.try_wait()?.is_none() {
        if let Err(why) = run.check_alive() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(why);
        }
        std::thread::sleep(LOOK);
    }
    Ok(child.wait_with_output()?)
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
