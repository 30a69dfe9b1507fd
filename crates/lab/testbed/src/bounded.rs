//! Commands that are waited for: bounded in time, each in a process group of its own, so that what hangs is ended with all that
//! it started.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::error::{Result, failed};
use crate::files;
use crate::process::{self, ProcessId};

/// A command that was asked to stop has this long to clean up.
const TERM_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// Lines of its output that a failure quotes.
const TAIL_LINES: usize = 6;
/// Bytes of its output in which its error is looked for.
const SAID_BYTES: u64 = 64 << 10;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// With exit code 0.
    Ok,
    /// Otherwise, or past its limit: how, and the end of its output.
    Failed(String),
    /// `cancel` was set.
    Cancelled,
}

/// Runs a command line to its end; its output is added to `log`. Past `limit`, or when `cancel` is set, its group gets SIGTERM and
/// after 15 s SIGKILL. While it runs, `record` names its process, so that [`end_recorded`] can end it if this process is killed.
///
/// # Errors
/// If it can't be started.
pub fn run_bounded(
    line: &[OsString],
    log: &Path,
    limit: Duration,
    cancel: Option<&AtomicBool>,
    record: &Path,
) -> Result<Ended> {
    let (program, args) = line.split_first().ok_or_else(|| failed!("an empty command line"))?;
    let before = log.metadata().map_or(0, |meta| meta.len());
    let mut child = process::spawn(process::logged(program, log)?.args(args).process_group(0))?;
    if let Some(id) = ProcessId::of(child.id() as i32) {
        id.store(record)?;
    }
    let ended = match wait(&mut child, limit, cancel, &mut || ()) {
        Ended::Failed(how) => Ended::Failed(format!("{how}: {}", said(log, before))),
        other => other,
    };
    files::remove_file(record)?;
    Ok(ended)
}

/// Runs a tool to its end within `limit`; `told` gets each line of its standard output. Returns how it ended, and its errors.
///
/// # Errors
/// It does not start.
pub(crate) fn run_tool(
    mut tool: Command,
    limit: Duration,
    cancel: Option<&AtomicBool>,
    told: &mut dyn FnMut(String),
) -> Result<(Ended, String)> {
    tool.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = process::spawn(&mut tool)?;
    let (out, errors) = (lines_of(child.stdout.take()), lines_of(child.stderr.take()));
    let ended = wait(&mut child, limit, cancel, &mut || out.try_iter().for_each(&mut *told));
    out.iter().for_each(told);
    Ok((ended, errors.iter().collect::<Vec<_>>().join("\n")))
}

/// Reads a pipe on a thread of its own: a full one would stop the tool.
fn lines_of(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let lines = pipe.into_iter().flat_map(|pipe| BufReader::new(pipe).split(b'\n'));
        for line in lines.map_while(std::io::Result::ok) {
            // Nobody listens any more if the tool has left a child behind that still writes.
            let _ = tell.send(String::from_utf8_lossy(&line).into_owned());
        }
    });
    told
}

/// Waits for a child, and calls `look` meanwhile.
fn wait(child: &mut Child, limit: Duration, cancel: Option<&AtomicBool>, look: &mut dyn FnMut()) -> Ended {
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ended::Ok,
            Ok(Some(status)) => return Ended::Failed(status.to_string()),
            Ok(None) => {}
            Err(e) => return Ended::Failed(format!("cannot be waited for: {e}")),
        }
        if cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed)) {
            end_child(child);
            return Ended::Cancelled;
        }
        if begin.elapsed() >= limit {
            end_child(child);
            return Ended::Failed(format!("did not end within {} s", limit.as_secs()));
        }
        look();
        std::thread::sleep(POLL);
    }
}

/// Its error with what that quotes (the end of a daemon's log), or else the end of what it said, on one line. The log may
/// have the output of commands before, which wrote its first `from` bytes.
fn said(log: &Path, from: u64) -> String {
    let text = files::end_of(log, from, SAID_BYTES);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The first: what it quotes may have errors of its own.
    let error = lines.iter().position(|line| line.starts_with("error: "));
    let (error, rest) = error.map_or((None, &lines[..]), |at| (lines.get(at), &lines[at + 1..]));
    let end = &rest[rest.len().saturating_sub(TAIL_LINES)..];
    error.into_iter().chain(end).copied().collect::<Vec<_>>().join("; ").replace(":; ", ": ")
}

/// Its group can't be a stranger's: a child keeps its number until it has been waited for.
fn end_child(child: &mut Child) {
    if let Some(id) = ProcessId::of(child.id() as i32) {
        end_group(&id);
    }
    // Children that it leaves behind.
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Asks a process and its group to end, and ends them if they do not.
fn end_group(id: &ProcessId) {
    for signal in [Signal::TERM, Signal::KILL] {
        if let Some(group) = Pid::from_raw(id.pid) {
            let _ = kill_process_group(group, signal);
        }
        if id.wait_gone(TERM_LIMIT) {
            break;
        }
    }
}

/// Ends the command that `record` names, and its group, if its runner was killed and it still runs.
pub fn end_recorded(record: &Path) -> Result<()> {
    if let Some(id) = ProcessId::load(record)?.filter(ProcessId::alive) {
        end_group(&id);
    }
    files::remove_file(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(script: &str, limit_ms: u64, cancel: Option<&AtomicBool>) -> (Ended, Duration) {
        let dir = tempfile::tempdir().unwrap();
        let line = ["sh", "-c", script].map(OsString::from);
        let begin = Instant::now();
        let (log, record) = (dir.path().join("log"), dir.path().join("record"));
        let ended = run_bounded(&line, &log, Duration::from_millis(limit_ms), cancel, &record).unwrap();
        assert!(!record.exists());
        (ended, begin.elapsed())
    }

    #[test]
    fn exit_codes_and_what_was_said() {
        assert_eq!(run("true", 5000, None).0, Ended::Ok);
        let Ended::Failed(why) = run("echo no space; exit 3", 5000, None).0 else { panic!() };
        assert!(why.contains('3') && why.contains("no space"), "{why}");
        let script = "echo working; echo 'error: osd.0 has ended (signal: 6); the end of osd.0.log:'; \
                      for n in 1 2 3 4 5 6 7 8; do echo error: line $n; done; exit 1";
        let Ended::Failed(why) = run(script, 5000, None).0 else { panic!() };
        let all = "exit status: 1: error: osd.0 has ended (signal: 6); the end of osd.0.log: error: line 3; ";
        assert!(why.starts_with(all) && why.ends_with("error: line 8"), "{why}");
    }

    #[test]
    fn what_commands_before_said_is_not_its_error() {
        let dir = tempfile::tempdir().unwrap();
        let (log, record) = (dir.path().join("log"), dir.path().join("record"));
        std::fs::write(&log, "error: an old one\n").unwrap();
        let line = ["sh", "-c", "echo nothing works; exit 1"].map(OsString::from);
        let ended = run_bounded(&line, &log, Duration::from_secs(5), None, &record).unwrap();
        assert_eq!(ended, Ended::Failed("exit status: 1: nothing works".into()));
    }

    #[test]
    fn what_hangs_is_ended_with_its_children() {
        let marker = tempfile::tempdir().unwrap();
        let file = marker.path().join("child");
        let script = format!("sleep 60 & echo $! > {}; wait", file.display());
        let (ended, took) = run(&script, 500, None);
        assert!(matches!(ended, Ended::Failed(why) if why.contains("did not end")));
        assert!(took < Duration::from_secs(10));
        let child: i32 = std::fs::read_to_string(&file).unwrap().trim().parse().unwrap();
        let gone = ProcessId::of(child).is_none_or(|id| id.wait_gone(Duration::from_secs(5)));
        assert!(gone, "process {child} is left over");
    }

    #[test]
    fn cancelled() {
        let (ended, took) = run("sleep 60", 60_000, Some(&AtomicBool::new(true)));
        assert_eq!(ended, Ended::Cancelled);
        assert!(took < Duration::from_secs(10));
    }

    #[test]
    fn what_a_killed_runner_left_is_ended_by_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let line = ["sleep", "60"].map(OsString::from);
        let mut child = process::logged(&line[0], &dir.path().join("log")).unwrap();
        let mut child = process::spawn(child.args(&line[1..]).process_group(0)).unwrap();
        let record = dir.path().join("record");
        ProcessId::of(child.id() as i32).unwrap().store(&record).unwrap();
        end_recorded(&record).unwrap();
        assert!(!child.wait().unwrap().success() && !record.exists());
        end_recorded(&record).unwrap();
    }
}
