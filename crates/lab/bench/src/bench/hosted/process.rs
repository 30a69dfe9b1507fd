//! The tools' programs and processes: fio with a thread for each job, in one process or in several, or one `rados bench` per job.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};
use carmine_load::hosted::{ClusterAccess, HostedFigures, Tool, fio, rados};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::process::spawn_on;
use tempfile::TempDir;

use super::Run;
use crate::child::Owned;

/// Files in a process's working folder: fio's result, and its output and errors.
const OUTPUT: &str = "result.json";
const SAID: &str = "said";

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
    /// Finds the programs of `tool`; a missing one is named with its package.
    pub(super) fn find(tool: Tool) -> anyhow::Result<ToolPrograms> {
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
    fn fio_figures(&self) -> anyhow::Result<Result<HostedFigures, String>> {
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
pub(super) struct Clients {
    tool: Tool,
    /// Has the folders of the processes.
    _root: TempDir,
    /// The command line of the first process.
    pub(super) command: Vec<String>,
    processes: Vec<Process>,
}

impl Clients {
    /// Starts the load on the client CPUs. `millis` is the time that it is counted for.
    pub(super) fn load(run: &Run<'_>, millis: u64) -> anyhow::Result<Clients> {
        let (spec, place) = (&run.spec, place(run));
        let lines: Vec<_> = match run.tool {
            Tool::RadosBench => {
                (0..spec.numjobs).map(|job| rados::arguments(spec, &place, job, millis)).collect()
            }
            tool => (0..spec.processes).map(|at| fio::arguments(tool, spec, &place, OUTPUT, at)).collect(),
        };
        Self::start(run, &lines)
    }

    /// Starts the processes that write the data which a load needs.
    pub(super) fn prefill(run: &Run<'_>) -> anyhow::Result<Clients> {
        let (spec, place) = (&run.spec, place(run));
        let lines: Vec<_> = match run.tool {
            Tool::RadosBench => {
                (0..spec.numjobs).map(|job| rados::prefill_arguments(spec, &place, job)).collect()
            }
            tool => vec![fio::prefill_arguments(tool, spec, &place, OUTPUT)],
        };
        Self::start(run, &lines)
    }

    fn start(run: &Run<'_>, lines: &[Vec<String>]) -> anyhow::Result<Clients> {
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
    pub(super) fn have_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.ended()? == self.processes.len())
    }

    /// True once one has ended well; an error as of [`Clients::have_ended`].
    pub(super) fn has_one_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.ended()? > 0)
    }

    /// How many have ended, all of them well.
    fn ended(&mut self) -> anyhow::Result<usize> {
        let statuses = self.processes.iter_mut().map(|process| process.child.0.try_wait());
        let statuses: Vec<Option<ExitStatus>> = statuses.collect::<io::Result<_>>()?;
        if let Some(status) = statuses.iter().flatten().find(|status| !status.success()) {
            bail!("{} failed ({status}): {}", self.tool, self.said());
        }
        Ok(statuses.iter().flatten().count())
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
        let all: Vec<String> = self.processes.iter().map(Process::said).collect();
        let lines: Vec<&str> =
            all.iter().flat_map(|said| said.lines()).filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(6)..].join("; ")
    }

    /// The figures of all together; all must have ended.
    pub(super) fn figures(&self) -> anyhow::Result<HostedFigures> {
        let one = |process: &Process| match self.tool {
            Tool::RadosBench => Ok(rados::parse(&process.said())),
            _ => process.fio_figures(),
        };
        let parsed = self.processes.iter().map(one).collect::<anyhow::Result<Vec<_>>>()?;
        match parsed.into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(all) => Ok(HostedFigures::merged(&all)),
            Err(why) => bail!("{why}: {}", self.said()),
        }
    }
}

/// Where the tool finds the cluster.
pub(super) fn place(run: &Run<'_>) -> ClusterAccess {
    let conf = run.setup.layout.ceph_conf().display().to_string();
    ClusterAccess { conf, pool: run.setup.args.pool.clone() }
}

/// A stock tool on this cluster, in a group of its own: Ctrl-C is for the controller. fio's rbd engine takes the configuration
/// from the environment only.
pub(super) fn tool_command(program: &Path, run: &Run<'_>) -> Command {
    let (mut command, conf) = (Command::new(program), run.setup.layout.ceph_conf());
    command.env("CEPH_CONF", conf).env_remove("CEPH_ARGS").stdin(Stdio::null()).process_group(0);
    command
}
