//! The tools' programs and processes: fio with a thread for each job, in one process or in several, or one `rados bench` per job.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, bail};
use carmine_load::LoadSpec;
use carmine_load::hosted::{ClusterAccess, HostedFigures, Tool, fio, rados};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::process::spawn_on;
use tempfile::TempDir;

use crate::bench::bed::Bed;

/// Lines of a tool's text that are kept: `rados bench` prints one a second.
const LINES_MAX: usize = 100_000;
/// fio's result, in the working folder.
const OUTPUT: &str = "result.json";

/// What a tool needs.
pub(super) struct ToolPrograms {
    /// The program that makes the load.
    pub(super) load: PathBuf,
    /// `rados`, to look at objects.
    pub(super) rados: PathBuf,
    /// `rbd`, to make images.
    pub(super) rbd: PathBuf,
    /// First line of what the load's program says of its version.
    pub(super) version: String,
}

fn find(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => bail!(Usage(format!(
            "{program} is not installed; as root run:  apt-get install -y --no-install-recommends {package}"
        ))),
    }
}

impl ToolPrograms {
    /// Finds what `tool` needs; a missing program is named with its package.
    pub(super) fn find(tool: Tool) -> anyhow::Result<ToolPrograms> {
        let (rados, rbd) = (find("rados", "ceph-common")?, find("rbd", "ceph-common")?);
        let load = if tool == Tool::RadosBench { rados.clone() } else { find("fio", "fio")? };
        let said = Command::new(&load).arg("--version").stdin(Stdio::null()).output()?;
        let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
        Ok(ToolPrograms { load, rados, rbd, version })
    }
}

/// What a process printed, standard output and error.
#[derive(Clone, Default)]
struct Said {
    lines: Arc<Mutex<Vec<String>>>,
    begun: Arc<AtomicBool>,
}

impl Said {
    /// Reads a pipe to its end, on a thread of its own.
    fn listen(&self, pipe: impl std::io::Read + Send + 'static) {
        let said = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if rados::is_begin(&line) {
                    said.begun.store(true, Ordering::Release);
                }
                let mut lines = said.lines.lock().unwrap_or_else(PoisonError::into_inner);
                if lines.len() < LINES_MAX {
                    lines.push(line);
                }
            }
        });
    }

    fn text(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

struct Process {
    child: Child,
    /// Where it runs: fio leaves its files there.
    folder: PathBuf,
    said: Said,
    ended: Option<ExitStatus>,
}

impl Process {
    /// What fio measured.
    fn fio_figures(&self) -> anyhow::Result<Result<HostedFigures, String>> {
        let path = self.folder.join(OUTPUT);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("fio left no result in {}: {}", path.display(), self.said.text()))?;
        Ok(fio::parse(&text).map(|mut figures| {
            let rates = std::fs::read_to_string(self.folder.join(fio::RATES_FILE));
            fio::add_rates(&rates.unwrap_or_default(), &mut figures.result);
            figures
        }))
    }
}

/// Processes that make one load; dropped, they are ended.
pub(super) struct Clients {
    tool: Tool,
    /// Has the folders of the processes.
    _root: TempDir,
    command: Vec<String>,
    processes: Vec<Process>,
}

impl Clients {
    /// Starts the load on the client CPUs. `millis` is the time that it is counted for.
    pub(super) fn start(
        tool: Tool,
        spec: &LoadSpec,
        programs: &ToolPrograms,
        bed: &Bed,
        pool: &str,
        millis: u64,
    ) -> anyhow::Result<Clients> {
        let place = place(bed, pool);
        let lines: Vec<Vec<String>> = match tool {
            Tool::RadosBench => {
                (0..spec.numjobs).map(|job| rados::arguments(spec, &place, job, millis)).collect()
            }
            _ => (0..spec.processes).map(|at| fio::arguments(tool, spec, &place, OUTPUT, at)).collect(),
        };
        Self::spawn(tool, &programs.load, &lines, bed)
    }

    /// Starts what writes the data that a load needs.
    pub(super) fn prefill(
        tool: Tool,
        spec: &LoadSpec,
        programs: &ToolPrograms,
        bed: &Bed,
        pool: &str,
    ) -> anyhow::Result<Clients> {
        let place = place(bed, pool);
        let lines: Vec<Vec<String>> = match tool {
            Tool::RadosBench => {
                (0..spec.numjobs).map(|job| rados::prefill_arguments(spec, &place, job)).collect()
            }
            _ => vec![fio::prefill_arguments(tool, spec, &place, OUTPUT)],
        };
        Self::spawn(tool, &programs.load, &lines, bed)
    }

    fn spawn(tool: Tool, program: &Path, lines: &[Vec<String>], bed: &Bed) -> anyhow::Result<Clients> {
        let root = tempfile::tempdir().context("cannot make a folder for the tool's result")?;
        let folders: Vec<PathBuf> = (0..lines.len()).map(|at| root.path().join(at.to_string())).collect();
        let mut command = vec![program.display().to_string()];
        command.extend(lines.first().into_iter().flatten().cloned());
        let mut clients = Clients { tool, _root: root, command, processes: Vec::new() };
        for (line, folder) in lines.iter().zip(folders) {
            std::fs::create_dir(&folder).context("cannot make a folder for the tool's result")?;
            let child = command_for(program, line, bed, &folder);
            let mut child = spawn_on(&mut { child }, &bed.client_cpus())?;
            let said = Said::default();
            let pipes = (child.stdout.take(), child.stderr.take());
            // Listed before anything else can fail: it must be ended then.
            clients.processes.push(Process { child, folder, said: said.clone(), ended: None });
            pipes.0.into_iter().for_each(|pipe| said.listen(pipe));
            pipes.1.into_iter().for_each(|pipe| said.listen(pipe));
        }
        Ok(clients)
    }

    /// The command line of the first process.
    pub(super) fn command(&self) -> &[String] {
        &self.command
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = u32> {
        self.processes.iter().map(|p| p.child.id())
    }

    /// True once all have sent their first request, or are about to.
    pub(super) fn have_begun(&self) -> bool {
        match self.tool {
            Tool::RadosBench => self.processes.iter().all(|p| p.said.begun.load(Ordering::Acquire)),
            _ => self.processes.iter().all(|p| p.folder.join(fio::BEGIN_FILE).exists()),
        }
    }

    /// True once all have ended well.
    ///
    /// # Errors
    /// One has failed; the text has what it said.
    pub(super) fn have_ended(&mut self) -> anyhow::Result<bool> {
        let mut all = true;
        for process in &mut self.processes {
            if process.ended.is_none() {
                process.ended = process.child.try_wait()?;
            }
            all &= process.ended.is_some();
        }
        if let Some(status) = self.processes.iter().filter_map(|p| p.ended).find(|status| !status.success()) {
            bail!("{} failed ({status}): {}", self.tool, self.said());
        }
        Ok(all)
    }

    /// True once one has ended well; an error as of [`Clients::have_ended`].
    pub(super) fn has_one_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.have_ended()? || self.processes.iter().any(|p| p.ended.is_some()))
    }

    /// An error if one has ended: nothing is left of its load.
    pub(super) fn check_running(&mut self) -> anyhow::Result<()> {
        if self.has_one_ended()? {
            bail!("{} ended too early: {}", self.tool, self.said());
        }
        Ok(())
    }

    /// The end of what they printed, for an error.
    pub(super) fn said(&self) -> String {
        let all: Vec<String> = self.processes.iter().map(|p| p.said.text()).collect();
        let all = all.join("\n");
        let last: Vec<&str> = all.lines().filter(|line| !line.trim().is_empty()).rev().take(6).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("; ")
    }

    /// What they measured; all must have ended.
    pub(super) fn figures(&self) -> anyhow::Result<HostedFigures> {
        let parsed: Result<Vec<HostedFigures>, String> = match self.tool {
            Tool::RadosBench => self.processes.iter().map(|p| rados::parse(&p.said.text())).collect(),
            _ => {
                let all = self.processes.iter().map(Process::fio_figures);
                all.collect::<anyhow::Result<Vec<_>>>()?.into_iter().collect()
            }
        };
        match parsed {
            Ok(all) => Ok(HostedFigures::merged(&all)),
            Err(why) => bail!("{why}: {}", self.said()),
        }
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for process in &mut self.processes {
            if process.ended.is_none() {
                let _ = process.child.kill();
                let _ = process.child.wait();
            }
        }
    }
}

/// Where the tool finds the cluster.
pub(super) fn place(bed: &Bed, pool: &str) -> ClusterAccess {
    ClusterAccess { conf: bed.conf().display().to_string(), pool: pool.to_owned() }
}

/// fio's rbd engine takes the configuration from the environment only.
fn command_for(program: &Path, args: &[String], bed: &Bed, folder: &Path) -> Command {
    let mut command = tool_command(program, bed.conf().as_os_str());
    command.args(args).current_dir(folder).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A stock tool on this cluster, in a group of its own: Ctrl-C is for the controller.
pub(super) fn tool_command(program: &Path, conf: &OsStr) -> Command {
    let mut command = Command::new(PathBuf::from(program));
    command.env("CEPH_CONF", conf).env_remove("CEPH_ARGS").stdin(Stdio::null());
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command
}
