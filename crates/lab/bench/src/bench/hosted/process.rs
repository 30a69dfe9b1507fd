//! The tools' programs and processes: fio with a thread for each job, in one process or in several, or one `rados bench` per job;
//! and the data that a load needs before it: objects, or an image that is written through.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use carmine_load::hosted::jobfile::{JOBS_FILE, JobFile};
use carmine_load::hosted::{ClusterAccess, HostedFigures, Tool, fio, rados};
use carmine_load::{Prefill, Rw};
use carmine_testbed::process::{Owned, spawn_on};
use carmine_testbed::{refuse, usage};
use tempfile::TempDir;

use super::super::room;
use super::{LOOK, PREFILL_LIMIT, Run};

/// Files in a process's working folder: fio's result, and its output and errors.
const OUTPUT: &str = "result.json";
const SAID: &str = "said";

/// Key of an image's metadata that says that every block of it was written.
const FILLED: &str = "carmine_filled";

/// The programs that a tool needs.
pub(super) struct ToolPrograms {
    /// The program that makes the load.
    pub(super) load: PathBuf,
    /// `rados`, to look at objects.
    pub(super) rados: PathBuf,
    /// `rbd`, to make images.
    pub(super) rbd: PathBuf,
    /// First line of the load program's answer to `--version`.
    pub(super) version: String,
}

fn find(program: &str, package: &str) -> Result<PathBuf> {
    let install = format!("apt-get install -y --no-install-recommends {package}");
    Ok(which::which(program).map_err(|_| usage!("{program} is not installed; as root run:  {install}"))?)
}

impl ToolPrograms {
    /// Finds the programs of `tool`; a missing one is named with its package.
    pub(super) fn find(tool: Tool) -> Result<ToolPrograms> {
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

    /// What fio logged of its rates.
    fn rates(&self) -> String {
        let files = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let logs = files.filter(|file| fio::is_rates_file(&file.file_name().to_string_lossy()));
        logs.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    }

    /// The figures of fio. `rates_ms`: the interval of its log of rates, if that has those of the window.
    fn fio_figures(&self, rates_ms: Option<u64>) -> Result<Result<HostedFigures, String>> {
        let path = self.folder.join(OUTPUT);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("fio left no result in {}: {}", path.display(), self.said()))?;
        Ok(fio::parse(&text).map(|mut figures| {
            if let Some(interval_ms) = rates_ms {
                fio::add_rates(&self.rates(), interval_ms, &mut figures.result);
            }
            figures
        }))
    }
}

/// Processes that make one load; they are ended when this is dropped.
pub(super) struct Clients {
    tool: Tool,
    /// Interval of fio's log of rates, if there is one of the whole window.
    rates_ms: Option<u64>,
    /// Has the folders of the processes.
    _root: TempDir,
    /// The command line of the first process.
    pub(super) command: Vec<String>,
    processes: Vec<Process>,
}

impl Clients {
    /// Starts the load on the client CPUs, or with `millis` of `None` what writes the data that it needs. `millis` is the time that
    /// the load is counted for.
    pub(super) fn start(run: &Run<'_>, millis: Option<u64>) -> Result<Clients> {
        const FOLDER: &str = "cannot make a folder for the tool's result";
        let (program, lines) = (&run.programs.load, lines(run, millis)?);
        let root = tempfile::tempdir().context(FOLDER)?;
        let command = [program.display().to_string()].into_iter().chain(lines.iter().flatten().cloned());
        let command = command.take(1 + lines.first().map_or(0, Vec::len)).collect();
        let rates_ms = run.setup.jobfile.as_ref().map_or(Some(fio::RATES_MS), JobFile::rates_ms);
        let mut clients = Clients { tool: run.tool, rates_ms, _root: root, command, processes: Vec::new() };
        for (line, at) in lines.iter().zip(0..) {
            let folder = clients._root.path().join(at.to_string());
            std::fs::create_dir(&folder).context(FOLDER)?;
            write_jobs(run, &folder)?;
            let said = File::options().create(true).append(true).open(folder.join(SAID)).context(FOLDER)?;
            let mut command = tool_command(program, run);
            command.args(line).current_dir(&folder).stdout(said.try_clone()?).stderr(said);
            let child = Owned(spawn_on(&mut command, &run.setup.client_cpus())?);
            clients.processes.push(Process { child, folder });
        }
        Ok(clients)
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.processes.iter().map(|p| p.child.0.id()).collect()
    }

    /// True once all have sent their first request, or are about to.
    pub(super) fn have_begun(&self) -> bool {
        self.processes.iter().all(|process| match self.tool {
            Tool::RadosBench => process.said().lines().any(rados::is_begin),
            _ => process.folder.join(fio::BEGIN_FILE).exists(),
        })
    }

    /// True once all have ended well.
    ///
    /// # Errors
    /// One has failed; the text has its last words.
    pub(super) fn have_ended(&mut self) -> Result<bool> {
        Ok(self.ended()? == self.processes.len())
    }

    /// True once one has ended well; fails as [`Clients::have_ended`] does.
    pub(super) fn has_one_ended(&mut self) -> Result<bool> {
        Ok(self.ended()? > 0)
    }

    /// Number of processes that have ended, all of them well.
    fn ended(&mut self) -> Result<usize> {
        let statuses = self.processes.iter_mut().map(|process| process.child.0.try_wait());
        let statuses: Vec<Option<ExitStatus>> = statuses.collect::<io::Result<_>>()?;
        if let Some(status) = statuses.iter().flatten().find(|status| !status.success()) {
            bail!("{} failed ({status}): {}", self.tool, self.said());
        }
        Ok(statuses.iter().flatten().count())
    }

    /// Fails if one has ended: nothing is left of its load.
    pub(super) fn check_running(&mut self) -> Result<()> {
        ensure!(!self.has_one_ended()?, "{} ended too early: {}", self.tool, self.said());
        Ok(())
    }

    /// The end of what they printed, for an error.
    pub(super) fn said(&self) -> String {
        let all: Vec<String> = self.processes.iter().map(Process::said).collect();
        let lines: Vec<&str> =
            all.iter().flat_map(|said| said.lines()).filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("; ")
    }

    /// The figures of all together; all must have ended.
    pub(super) fn figures(&self) -> Result<HostedFigures> {
        let one = |process: &Process| match self.tool {
            Tool::RadosBench => Ok(rados::parse(&process.said())),
            _ => process.fio_figures(self.rates_ms),
        };
        let parsed = self.processes.iter().map(one).collect::<Result<Vec<_>>>()?;
        match parsed.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(all) => Ok(HostedFigures::merged(&all)),
            Err(why) => bail!("{why}: {}", self.said()),
        }
    }
}

/// The arguments of each process of the tool; see [`Clients::start`].
fn lines(run: &Run<'_>, millis: Option<u64>) -> Result<Vec<Vec<String>>> {
    let (spec, place, tool) = (&run.spec, place(run), run.tool);
    Ok(match (tool, millis) {
        (Tool::RadosBench, Some(millis)) => {
            let most_objects = room::objects_of_each_job(run.setup)?;
            let line = |job| rados::arguments(spec, &place, job, millis, most_objects);
            (0..spec.numjobs).map(line).collect()
        }
        (Tool::RadosBench, None) => {
            (0..spec.numjobs).map(|job| rados::prefill_arguments(spec, &place, job)).collect()
        }
        (_, Some(_)) if run.given.is_some() => vec![fio::jobfile_arguments(OUTPUT)],
        (_, Some(_)) => {
            (0..spec.processes).map(|at| fio::arguments(tool, spec, &place, OUTPUT, at)).collect()
        }
        (_, None) => vec![fio::prefill_arguments(tool, spec, &place, OUTPUT)],
    })
}

/// Puts the job file where fio finds it, if there is one.
fn write_jobs(run: &Run<'_>, folder: &Path) -> Result<()> {
    let written = run.given.as_ref().map_or(Ok(()), |text| std::fs::write(folder.join(JOBS_FILE), text));
    written.with_context(|| format!("cannot write the job file for fio in {}", folder.display()))
}

/// Lets fio read the job file before anything is written.
///
/// # Errors
/// It refuses the file; its own words.
pub(super) fn check_jobs(run: &Run<'_>) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot make a folder for the job file")?;
    write_jobs(run, folder.path())?;
    let mut command = tool_command(&run.programs.load, run);
    let said =
        command.arg("--parse-only").arg(JOBS_FILE).current_dir(&folder).output().context("cannot run fio")?;
    let words = [said.stdout, said.stderr].concat();
    let words = String::from_utf8_lossy(&words).lines().map(str::trim).collect::<Vec<_>>().join("; ");
    refuse!(!said.status.success(), "--jobfile: fio does not take it: {words}");
    Ok(())
}

/// Where the tool finds the cluster.
pub(super) fn place(run: &Run<'_>) -> ClusterAccess {
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
pub(super) fn prefill(run: &Run<'_>) -> Result<()> {
    make_images(run)?;
    if !is_wanted(run)? {
        return Ok(());
    }
    let mut clients = Clients::start(run, None)?;
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

/// True if the load's data is there: all of it, or at least some, from this load or an earlier one.
pub(super) fn is_there(run: &Run<'_>, all: bool) -> Result<bool> {
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

/// The load's images with their pool; none if it loads objects.
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
