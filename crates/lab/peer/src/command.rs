//! Ceph's tools, run to their end with a limit.

use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use carmine_testbed::{Result, TestbedError};
use rustix::process::{Pid, Signal, kill_process_group};

use crate::programs::Programs;

/// A tool answers within this, or its monitor or disk is stuck. A mkfs on a busy disk takes the longest.
const LIMIT: Duration = Duration::from_secs(120);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(5);
/// Text of a tool that is kept.
const TEXT_MAX: u64 = 1 << 20;

/// One run of a tool.
pub(crate) struct Tool<'a> {
    command: Command,
    cancel: Option<&'a AtomicBool>,
}

impl<'a> Tool<'a> {
    /// `program` of `programs`, with its libraries.
    pub(crate) fn new(programs: &Programs, program: &Path) -> Self {
        let mut command = Command::new(program);
        if let Some(lib) = &programs.lib {
            command.env("LD_LIBRARY_PATH", lib).env("PYTHONPATH", lib.join("cython_modules/lib.3"));
        }
        command.current_dir("/");
        Self { command, cancel: None }
    }

    /// Runs it in this folder, not in `/`.
    pub(crate) fn within(mut self, folder: &Path) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub(crate) fn args(mut self, args: &[&str]) -> Self {
        self.command.args(args);
        self
    }

    /// Ends the tool when the flag is set.
    pub(crate) fn cancelled_by(mut self, cancel: &'a AtomicBool) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// Runs it; its standard output.
    ///
    /// # Errors
    /// It does not start, fails (with what it said), takes too long, or was interrupted.
    pub(crate) fn run(mut self) -> Result<String> {
        let name = self.command.get_program().to_string_lossy().into_owned();
        // A group of its own: Ctrl-C is for the controller, which then ends the tool.
        std::os::unix::process::CommandExt::process_group(&mut self.command, 0);
        self.command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().map_err(TestbedError::io("start", Path::new(&name)))?;
        let (out, err) = (collect(child.stdout.take()), collect(child.stderr.take()));
        let ended = self.wait(&mut child, &name);
        if ended.is_err() {
            end_group(&mut child);
        }
        let (out, err) = (out.join().unwrap_or_default(), err.join().unwrap_or_default());
        let status = ended?;
        if status.success() {
            return Ok(out);
        }
        let last: Vec<&str> = err.lines().rev().take(4).collect();
        let said = last.into_iter().rev().collect::<Vec<_>>().join("; ");
        Err(TestbedError::Failed(format!("{name} failed ({status}): {said}")))
    }

    fn wait(&self, child: &mut Child, name: &str) -> Result<ExitStatus> {
        let end = Instant::now() + LIMIT;
        loop {
            let ended = child.try_wait().map_err(TestbedError::io("wait for", Path::new(name)))?;
            if let Some(status) = ended {
                return Ok(status);
            }
            if self.cancel.is_some_and(|flag| flag.load(Ordering::Relaxed)) {
                return Err(TestbedError::Failed("interrupted".into()));
            }
            if Instant::now() > end {
                let limit = LIMIT.as_secs();
                return Err(TestbedError::Failed(format!("{name} did not end within {limit} s")));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Ends a tool with all that it started: a child of its own would keep its pipes open.
fn end_group(child: &mut Child) {
    let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
    let _ = child.wait();
}

/// Reads a pipe on a thread of its own: a full one would stop the tool.
fn collect(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = (&mut pipe).take(TEXT_MAX).read_to_end(&mut bytes);
            let _ = std::io::copy(&mut pipe, &mut std::io::sink());
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::Flavour;

    fn shell(script: &str) -> Tool<'static> {
        let at = || "/bin/sh".into();
        let programs = Programs {
            mon: at(),
            osd: at(),
            ceph: at(),
            monmaptool: at(),
            flavour: Flavour::Classic,
            lib: None,
        };
        Tool::new(&programs, &programs.osd).args(&["-c", script])
    }

    #[test]
    fn a_tool_tells_what_it_said() {
        assert_eq!(shell("echo yes").run().unwrap(), "yes\n");
        let error = shell("echo no space >&2; exit 3").run().unwrap_err().to_string();
        assert!(error.contains("no space") && error.contains('3'), "{error}");
    }

    #[test]
    fn an_interrupted_tool_is_ended() {
        let cancel = AtomicBool::new(false);
        let begin = Instant::now();
        let error = std::thread::scope(|scope| {
            // The tool has started a child of its own by then.
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                cancel.store(true, Ordering::Relaxed);
            });
            shell("sleep 60; true").cancelled_by(&cancel).run().unwrap_err()
        });
        assert!(error.to_string().contains("interrupted") && begin.elapsed() < Duration::from_secs(20));
    }
}
