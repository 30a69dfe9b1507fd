//! Runs the commands of a sweep as processes.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use carmine_study::commands::{Step, What};
use carmine_study::run::{End, Executor};
use carmine_testbed::{Ended, end_recorded, run_bounded};

/// The processes of one sweep.
pub(crate) struct Processes<'a> {
    /// This very binary.
    program: PathBuf,
    /// Names the command that runs, for a sweep that resumes after this one was killed.
    record: PathBuf,
    cancel: &'a AtomicBool,
}

impl<'a> Processes<'a> {
    /// Ends what a killed sweep of the same folder has left running.
    pub(crate) fn new(dir: &Path, cancel: &'a AtomicBool) -> anyhow::Result<Processes<'a>> {
        let record = dir.join("running.json");
        end_recorded(&record)?;
        let program = std::env::current_exe().context("cannot find this program's own file")?;
        Ok(Processes { program, record, cancel })
    }

    fn line(&self, argv: &[String]) -> Vec<OsString> {
        let program = |word: &String| match word.as_str() {
            "carmine" => self.program.clone().into_os_string(),
            other => other.into(),
        };
        argv.first().map(program).into_iter().chain(argv.iter().skip(1).map(OsString::from)).collect()
    }
}

impl Executor for Processes<'_> {
    fn run(&mut self, step: &Step, log: &Path) -> End {
        // What tidies up is not cancelled: it is short, and leaves nothing behind.
        let cancel = (!matches!(step.what, What::Stop | What::Destroy)).then_some(self.cancel);
        match run_bounded(&self.line(&step.argv), log, step.limit, cancel, &self.record) {
            Ok(Ended::Ok) => End::Ok,
            Ok(Ended::Failed(why)) => End::Failed(why),
            Ok(Ended::Cancelled) => End::Cancelled,
            Err(e) => End::Failed(e.to_string()),
        }
    }

    fn unix_s(&self) -> f64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
    }

    fn rest(&mut self, time: Duration) -> bool {
        let end = Instant::now() + time;
        while Instant::now() < end && !self.cancel.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        !self.cancel.load(Ordering::Relaxed)
    }
}
