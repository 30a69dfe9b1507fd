//! Flamegraphs of the OSDs by the program `perf`: where their threads spend CPU time, or where they wait without a CPU.
//!
//! `perf` writes its recording into a folder of its own while the OSDs work; stacks are read from it and drawn when the
//! measurement is over. Where `perf` cannot do it the error says why, and what to do. Facts: perf-record(1), perf-script(1), the
//! kernel's Documentation/admin-guide/sysctl/kernel.rst (perf_event_paranoid) and perf-security.rst.

mod fold;
mod stages;

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use carmine_load::profile::{Profile, ProfileMode};
use carmine_testbed::process::Owned;
use inferno::flamegraph;
use tempfile::TempDir;

use crate::child::read_within;
use fold::{Folded, fold};

/// Time that is recorded: thousands of samples of each busy thread, …
const ON_CPU: Duration = Duration::from_secs(5);
/// … or, off CPU, up to some ten thousand stacks a second.
const OFF_CPU: Duration = Duration::from_secs(2);
/// Time for `perf` to attach itself before, and to write down what is left after.
const AROUND: Duration = Duration::from_secs(20);
/// Time to read the stacks and find their symbols.
const READ_LIMIT: Duration = Duration::from_secs(120);
/// Time between two checks for the end.
const LOOK: Duration = Duration::from_millis(5);
/// Functions that are named beside the picture.
const HOTTEST: usize = 10;
/// Samples a second and thread. Not a round number: nothing in the OSD happens in step with it.
const FREQUENCY: &str = "499";
/// Where the kernel shows its trace points.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Names of files in the recording's folder: the recording, and the messages of `perf` while it recorded.
const DATA: &str = "perf.data";
const SAID: &str = "said";

/// Length of a recording.
pub fn length(mode: ProfileMode) -> Duration {
    match mode {
        ProfileMode::OnCpu => ON_CPU,
        ProfileMode::OffCpu => OFF_CPU,
    }
}

/// A recording; `perf` ends when it is dropped.
#[derive(Debug)]
pub struct Recording {
    mode: ProfileMode,
    folder: TempDir,
    perf: Owned,
    until: Instant,
}

impl Recording {
    /// Begins to record the threads of these processes.
    ///
    /// # Errors
    /// Why there can be no recording, and what to do.
    pub fn start(mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        Self::start_for(length(mode), mode, pids)
    }

    /// Stacks are walked by frame pointers, which this workspace is built with.
    fn start_for(time: Duration, mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("no folder for perf's recording: {e}"))?;
        let said = File::create(folder.path().join(SAID));
        let said = said.map_err(|e| format!("no file for perf's messages: {e}"))?;
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--call-graph", "fp", "--pid", &pids.join(",")]);
        match mode {
            // A clock of the kernel's: there need not be a hardware counter.
            ProfileMode::OnCpu => command.args(["--event", "cpu-clock", "--freq", FREQUENCY]),
            // The stack of each thread that leaves its CPU, and the time when it comes back.
            ProfileMode::OffCpu => command.args(["--event", "sched:sched_switch", "--switch-events"]),
        };
        command.arg("--output").arg(folder.path().join(DATA));
        command.args(["--", "sleep", &time.as_secs_f64().to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
        let perf = Owned(command.spawn().map_err(|e| not_started(&e))?);
        Ok(Recording { mode, folder, perf, until: Instant::now() + time + AROUND })
    }

    /// True when `perf` is done, or its time is over.
    pub fn has_ended(&mut self) -> bool {
        Instant::now() >= self.until || !matches!(self.perf.0.try_wait(), Ok(None))
    }

    /// The whole recording; waits for `perf` to write it down.
    ///
    /// # Errors
    /// Why `perf` could not record, and what to do.
    pub fn finish(mut self) -> Result<Recording, String> {
        while !self.has_ended() {
            std::thread::sleep(LOOK);
        }
        match self.perf.0.try_wait() {
            Ok(Some(status)) if status.success() => Ok(self),
            Ok(None) => Err(format!("perf did not end within {} s of its time", AROUND.as_secs())),
            _ => {
                let said = std::fs::read_to_string(self.folder.path().join(SAID));
                Err(why_not(self.mode, &said.unwrap_or_default()))
            }
        }
    }

    /// Reads the stacks of a whole recording and draws them. The profile does not name the picture's file yet.
    ///
    /// # Errors
    /// `perf` cannot read its own recording, or there is nothing in it.
    pub fn draw(&self, title: &str) -> Result<(Vec<u8>, Profile), String> {
        let folded = self.fold()?;
        if folded.stacks == 0 {
            let idle = "the OSDs' threads did nothing while perf recorded";
            return Err(format!("perf recorded no stack: {idle}, or perf is not allowed to see them"));
        }
        let (what, unit, palette) = match self.mode {
            ProfileMode::OnCpu => ("On CPU", "samples", "hot"),
            ProfileMode::OffCpu => ("Off CPU", "us", "blue"),
        };
        let mut options = flamegraph::Options::default();
        options.title = format!("{what}: {title}");
        options.count_name = unit.to_owned();
        options.deterministic = true;
        options.colors = palette.parse()?;
        let (lines, mut svg) = (folded.lines(), Vec::new());
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
            .map_err(|e| format!("the flamegraph could not be drawn: {e}"))?;
        let (stacks, hottest) = (folded.stacks, folded.hottest(HOTTEST));
        let stages = if self.mode == ProfileMode::OnCpu { folded.stages() } else { Vec::new() };
        Ok((svg, Profile { mode: self.mode, svg: None, missing: None, stacks, hottest, stages }))
    }

    /// Without inlined functions: finding them takes minutes.
    fn fold(&self) -> Result<Folded, String> {
        let mut command = Command::new("perf");
        command.args(["script", "--show-switch-events", "--no-inline"]);
        command.args(["--fields", "comm,tid,time,event,ip,sym", "--input"]);
        let read = |out: ChildStdout| {
            let lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
            fold(lines.map(|line| String::from_utf8_lossy(&line).into_owned()))
        };
        let folded = read_within(command.arg(self.folder.path().join(DATA)), READ_LIMIT, read);
        let folded = folded.map_err(|e| not_started(&e))?;
        folded.ok_or_else(|| format!("perf script took more than {} s", READ_LIMIT.as_secs()))
    }
}

fn not_started(error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound {
        return "perf is not installed: apt-get install linux-perf (Ubuntu: linux-tools-$(uname -r))".into();
    }
    format!("perf cannot be started: {error}")
}

/// The reason why `perf` did not record, and the remedy, from what it printed and what the kernel allows.
fn why_not(mode: ProfileMode, said: &str) -> String {
    let paranoid = std::fs::read_to_string(PARANOID).ok().and_then(|text| text.trim().parse().ok());
    let paranoid = paranoid.filter(|_| !rustix::process::geteuid().is_root());
    let has_tracepoints = TRACEFS.iter().any(|dir| Path::new(dir).join("events/sched").exists());
    explain(mode, said, paranoid, has_tracepoints)
}

/// `paranoid`: the kernel's setting, which does not concern root.
fn explain(mode: ProfileMode, said: &str, paranoid: Option<i32>, has_tracepoints: bool) -> String {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
    let line = line.unwrap_or("it says nothing");
    let may = match mode {
        ProfileMode::OnCpu => 1,
        ProfileMode::OffCpu => -1,
    };
    if let Some(level) = paranoid.filter(|level| *level > may) {
        return format!(
            "perf is not allowed to record: kernel.perf_event_paranoid is {level}; be root, or run as root: \
             sysctl kernel.perf_event_paranoid={may} (perf: {line})"
        );
    }
    if mode == ProfileMode::OffCpu && !has_tracepoints {
        let (mount, or) =
            (format!("mount -t tracefs tracefs {}", TRACEFS[0]), "take a kernel with CONFIG_FTRACE");
        return format!(
            "the scheduler's trace points cannot be seen; as root: {mount}, or {or} (perf: {line})"
        );
    }
    format!("perf failed: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Records this process for a moment, and draws it.
    fn drawn(mode: ProfileMode) -> Result<(Vec<u8>, Profile), String> {
        let begin = Instant::now();
        let mut recording = Recording::start_for(Duration::from_millis(300), mode, &[std::process::id()])?;
        while !recording.has_ended() {
            std::thread::sleep(Duration::from_millis(5));
            while begin.elapsed().as_millis() % 20 < 10 {
                std::hint::spin_loop();
            }
        }
        recording.finish()?.draw("this test")
    }

    carmine_testkit::measures!(a_flamegraph_of_ourselves_or_a_reason);

    /// With the real `perf`, of this process; where it cannot, the reason has something to do in it. A thread of another test that
    /// ends while `perf` looks at it ends `perf`, too: then it is tried again.
    fn a_flamegraph_of_ourselves_or_a_reason() {
        for mode in [ProfileMode::OnCpu, ProfileMode::OffCpu] {
            let tried = (0..5).find_map(|_| drawn(mode).ok());
            match tried.map_or_else(|| drawn(mode), Ok) {
                Ok((svg, profile)) => {
                    let svg = String::from_utf8(svg).unwrap();
                    assert!(svg.contains("<svg") && svg.contains("this test"));
                    assert!(profile.stacks > 10 && !profile.hottest.is_empty(), "{profile:?}");
                }
                Err(why) => {
                    assert!(why.len() > 20, "{why}");
                    carmine_testkit::skip(why);
                }
            }
        }
    }

    #[test]
    fn reasons_say_what_to_do() {
        let denied = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        let of = |mode, said, is_root: bool, paranoid: Option<i32>, traces| {
            explain(mode, said, paranoid.filter(|_| !is_root), traces)
        };
        let why = of(ProfileMode::OnCpu, denied, false, Some(3), true);
        assert!(why.contains("sysctl kernel.perf_event_paranoid=1") && why.contains("is 3"), "{why}");
        let why = of(ProfileMode::OffCpu, denied, false, Some(1), true);
        assert!(why.contains("paranoid=-1"), "{why}");
        let why = of(ProfileMode::OffCpu, "event syntax error: 'sched:sched_switch'\n", true, Some(3), false);
        assert!(why.contains("mount -t tracefs") && why.contains("event syntax error"), "{why}");
        let why = of(ProfileMode::OnCpu, "\nWARNING: perf not found for kernel 9\n", true, Some(3), true);
        assert_eq!(why, "perf failed: WARNING: perf not found for kernel 9");
        let missing = not_started(&std::io::Error::from(ErrorKind::NotFound));
        assert!(missing.contains("apt-get install linux-perf"), "{missing}");
    }
}
