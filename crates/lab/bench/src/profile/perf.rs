//! The program `perf`: how it is started, and why it may refuse. Facts: perf-record(1), perf-script(1), the kernel's
//! Documentation/admin-guide/sysctl/kernel.rst (perf_event_paranoid) and perf-security.rst.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use carmine_load::profile::ProfileMode;
use rustix::process::{Pid, Signal, kill_process_group};

/// Samples a second and thread. Not a round number: nothing in the OSD happens in step with it.
const FREQUENCY: &str = "499";
/// Where the kernel shows its trace points.
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";
/// Names of files in the recording's folder.
const DATA: &str = "perf.data";
const SAID: &str = "said";
/// How often an end is looked for.
const LOOK: Duration = Duration::from_millis(5);

/// A `perf` and what it started, in a group of their own; dropped, they are ended.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    pub(super) fn ends_within(&mut self, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        while !self.has_ended() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }

    pub(super) fn has_succeeded(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(Some(status)) if status.success())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It keeps its number until it has been waited for: the group can't be a stranger's.
        if !self.has_ended()
            && let Some(group) = Pid::from_raw(self.0.id() as i32)
        {
            let _ = kill_process_group(group, Signal::KILL);
            let _ = self.0.wait();
        }
    }
}

/// Starts to record into `folder`. Stacks are walked by frame pointers, which this workspace is built with.
pub(super) fn record(
    mode: ProfileMode,
    pids: &[u32],
    length: Duration,
    folder: &Path,
) -> Result<Process, String> {
    let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
    let mut command = Command::new("perf");
    command.args(["record", "--quiet", "--call-graph", "fp", "--pid", &pids.join(",")]);
    match mode {
        // A clock of the kernel's: there need not be a hardware counter.
        ProfileMode::OnCpu => command.args(["--event", "cpu-clock", "--freq", FREQUENCY]),
        // The stack of each thread that leaves its CPU, and the time when it comes back.
        ProfileMode::OffCpu => command.args(["--event", "sched:sched_switch", "--switch-events"]),
    };
    command.arg("--output").arg(folder.join(DATA));
    command.args(["--", "sleep", &length.as_secs_f64().to_string()]);
    let said = File::create(folder.join(SAID)).map_err(|e| format!("no file for perf's messages: {e}"))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).process_group(0);
    command.spawn().map(Process).map_err(|e| not_started(&e))
}

/// Starts to read the recording in `folder`. Without inlined functions: finding them takes minutes.
pub(super) fn script(folder: &Path) -> Result<(Child, ChildStdout), String> {
    let mut command = Command::new("perf");
    command.args(["script", "--show-switch-events", "--no-inline", "--fields", "comm,tid,time,event,ip,sym"]);
    command.arg("--input").arg(folder.join(DATA));
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|e| not_started(&e))?;
    let out = child.stdout.take().ok_or("perf script has no output")?;
    Ok((child, out))
}

/// The messages of `perf` while it recorded.
pub(super) fn said(folder: &Path) -> String {
    std::fs::read_to_string(folder.join(SAID)).unwrap_or_default()
}

fn not_started(error: &std::io::Error) -> String {
    if error.kind() == ErrorKind::NotFound {
        return "perf is not installed: apt-get install linux-perf (Ubuntu: linux-tools-$(uname -r))".into();
    }
    format!("perf cannot be started: {error}")
}

/// Why `perf` did not record, and what to do, by what it said and by what the kernel allows.
pub(super) fn why_not(mode: ProfileMode, said: &str) -> String {
    let is_root = rustix::process::geteuid().is_root();
    let paranoid = std::fs::read_to_string(PARANOID).ok().and_then(|text| text.trim().parse().ok());
    let has_tracepoints = TRACEFS.iter().any(|dir| Path::new(dir).join("events/sched").exists());
    explain(mode, said, is_root, paranoid, has_tracepoints)
}

fn explain(
    mode: ProfileMode,
    said: &str,
    is_root: bool,
    paranoid: Option<i32>,
    has_tracepoints: bool,
) -> String {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty() && *line != "Error:");
    let line = line.unwrap_or("it says nothing");
    let may = match mode {
        ProfileMode::OnCpu => 1,
        ProfileMode::OffCpu => -1,
    };
    if !is_root && let Some(level) = paranoid.filter(|level| *level > may) {
        return format!(
            "perf may not do it: kernel.perf_event_paranoid is {level}; be root, or as root: \
             sysctl kernel.perf_event_paranoid={may} (perf: {line})"
        );
    }
    if mode == ProfileMode::OffCpu && !has_tracepoints {
        return format!(
            "the scheduler's trace points cannot be seen; as root: mount -t tracefs tracefs {}, or take a kernel with \
             CONFIG_FTRACE (perf: {line})",
            TRACEFS[0]
        );
    }
    format!("perf failed: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_to_do() {
        let denied = "Error:\nAccess to performance monitoring and observability operations is limited.\n";
        let of = |mode, said, is_root, paranoid, traces| explain(mode, said, is_root, paranoid, traces);
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
