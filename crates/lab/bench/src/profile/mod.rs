//! Flamegraphs of the OSDs by the program `perf`: where their threads spend CPU time, or where they wait without a CPU.
//!
//! `perf` writes its recording into a folder of its own while the OSDs work ([`Recording`]); stacks are read from it and
//! drawn when the measurement is over ([`Recorded`]). Where `perf` cannot do it the error says why, and what to do.

mod fold;
mod perf;

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use carmine_load::profile::{HotFrame, ProfileMode};
use inferno::flamegraph;
use tempfile::TempDir;

use fold::{Folded, fold};
use perf::Process;

/// Time that is recorded: thousands of samples of each busy thread, …
const ON_CPU: Duration = Duration::from_secs(5);
/// … or, off CPU, up to some ten thousand stacks a second.
const OFF_CPU: Duration = Duration::from_secs(2);
/// Time for `perf` to attach itself before, and to write down what is left after.
const AROUND: Duration = Duration::from_secs(20);
/// Time to read the stacks and find their symbols.
const READ_LIMIT: Duration = Duration::from_secs(120);
/// Functions that are named beside the picture.
const HOTTEST: usize = 10;

/// Length of a recording.
pub fn length(mode: ProfileMode) -> Duration {
    match mode {
        ProfileMode::OnCpu => ON_CPU,
        ProfileMode::OffCpu => OFF_CPU,
    }
}

/// `perf` at work. Dropped, it is ended.
#[derive(Debug)]
pub struct Recording {
    mode: ProfileMode,
    folder: TempDir,
    perf: Process,
    until: Instant,
}

/// A recording that is whole.
#[derive(Debug)]
pub struct Recorded {
    mode: ProfileMode,
    folder: TempDir,
}

/// A flamegraph.
#[derive(Clone, Debug)]
pub struct Drawing {
    pub svg: Vec<u8>,
    /// Stacks that it is made of.
    pub stacks: u64,
    pub hottest: Vec<HotFrame>,
}

impl Recording {
    /// Begins to record the threads of these processes.
    ///
    /// # Errors
    /// Why there can be no recording, and what to do.
    pub fn start(mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        Self::start_for(length(mode), mode, pids)
    }

    fn start_for(time: Duration, mode: ProfileMode, pids: &[u32]) -> Result<Recording, String> {
        let folder = tempfile::tempdir().map_err(|e| format!("no folder for perf's recording: {e}"))?;
        let perf = perf::record(mode, pids, time, folder.path())?;
        Ok(Recording { mode, folder, perf, until: Instant::now() + time + AROUND })
    }

    /// True when `perf` is done, or its time is over.
    pub fn has_ended(&mut self) -> bool {
        Instant::now() >= self.until || self.perf.has_ended()
    }

    /// The recording; waits for `perf` to write it down.
    ///
    /// # Errors
    /// Why `perf` could not record, and what to do.
    pub fn finish(mut self) -> Result<Recorded, String> {
        let left = self.until.saturating_duration_since(Instant::now());
        if !self.perf.ends_within(left) {
            return Err(format!("perf did not end within {} s of its time", AROUND.as_secs()));
        }
        if !self.perf.has_succeeded() {
            return Err(perf::why_not(self.mode, &perf::said(self.folder.path())));
        }
        Ok(Recorded { mode: self.mode, folder: self.folder })
    }
}

impl Recorded {
    /// Reads the stacks and draws them.
    ///
    /// # Errors
    /// When `perf` cannot read its own recording, or there is nothing in it.
    pub fn draw(&self, title: &str) -> Result<Drawing, String> {
        let folded = self.fold()?;
        if folded.stacks == 0 {
            let idle = "the OSDs' threads did nothing while perf looked";
            return Err(format!("perf recorded no stack: {idle}, or it may not see them"));
        }
        let mut svg = Vec::new();
        let lines = folded.lines();
        flamegraph::from_lines(&mut self.options(title), lines.iter().map(String::as_str), &mut svg)
            .map_err(|e| format!("the flamegraph could not be drawn: {e}"))?;
        Ok(Drawing { svg, stacks: folded.stacks, hottest: folded.hottest(HOTTEST) })
    }

    fn options(&self, title: &str) -> flamegraph::Options<'static> {
        let mut options = flamegraph::Options::default();
        let (what, unit, palette) = match self.mode {
            ProfileMode::OnCpu => ("On CPU", "samples", "hot"),
            ProfileMode::OffCpu => ("Off CPU", "us", "blue"),
        };
        options.title = format!("{what}: {title}");
        options.count_name = unit.to_owned();
        options.deterministic = true;
        if let Ok(colors) = palette.parse() {
            options.colors = colors;
        }
        options
    }

    fn fold(&self) -> Result<Folded, String> {
        let (mut child, out) = perf::script(self.folder.path())?;
        let folded = read_within(out, READ_LIMIT);
        if folded.is_none() {
            // It hangs, or there is more than anybody wants to look at.
            let _ = child.kill();
        }
        wait(&mut child);
        folded.ok_or_else(|| format!("perf script took more than {} s", READ_LIMIT.as_secs()))
    }
}

/// Folds the stacks on a thread of its own; `None` past the limit.
fn read_within(out: ChildStdout, limit: Duration) -> Option<Folded> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        let lines = BufReader::new(out).split(b'\n').map_while(Result::ok);
        // Nobody waits any more past the limit.
        let _ = send.send(fold(lines.map(|line| String::from_utf8_lossy(&line).into_owned())));
    });
    receive.recv_timeout(limit).ok()
}

fn wait(child: &mut Child) {
    // A child that cannot be waited for is none any more.
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the real `perf`, of this process; where it cannot, the reason has something to do in it.
    #[test]
    fn a_flamegraph_of_ourselves_or_a_reason() {
        for mode in [ProfileMode::OnCpu, ProfileMode::OffCpu] {
            let begin = Instant::now();
            let recording = Recording::start_for(Duration::from_millis(300), mode, &[std::process::id()]);
            let recorded = recording.and_then(|mut recording| {
                while !recording.has_ended() {
                    std::thread::sleep(Duration::from_millis(5));
                    while begin.elapsed().as_millis() % 20 < 10 {
                        std::hint::spin_loop();
                    }
                }
                recording.finish()
            });
            match recorded.and_then(|recorded| recorded.draw("this test")) {
                Ok(drawing) => {
                    let svg = String::from_utf8(drawing.svg).unwrap();
                    assert!(svg.contains("<svg") && svg.contains("this test"));
                    assert!(drawing.stacks > 10 && !drawing.hottest.is_empty(), "{:?}", drawing.hottest);
                }
                Err(why) => {
                    assert!(why.len() > 20, "{why}");
                    carmine_testkit::skip(why);
                }
            }
        }
    }
}
