//! The progress bar of a load; silent where there is no terminal.

use std::time::{Duration, Instant};

use carmine_load::{BenchStatus, LoadSpec};
use indicatif::{ProgressBar, ProgressStyle};

const SPINNER: &str = "{spinner} {msg}";
const BAR: &str = "{msg} [{bar:30}] {percent} %";
/// Time that a rate is counted over.
const RATE_OVER: Duration = Duration::from_millis(500);

pub(crate) struct View {
    bar: ProgressBar,
    load: String,
    name: &'static str,
    /// Start and length of the running phase, if it has a length.
    timed: Option<(Instant, u64)>,
    /// Operations and time of the last rate.
    last: (u64, Instant),
    iops: f64,
}

impl View {
    pub(crate) fn new(spec: &LoadSpec) -> View {
        let (bar, load) = (ProgressBar::new_spinner(), spec.summary());
        View { bar, load, name: "", timed: None, last: (0, Instant::now()), iops: 0.0 }
    }

    /// A phase of unknown length begins.
    pub(crate) fn phase(&mut self, name: &'static str) {
        (self.name, self.timed) = (name, None);
        self.draw(0, 0, String::new());
    }

    /// A phase that takes `millis` begins.
    pub(crate) fn timed(&mut self, name: &'static str, millis: u64) {
        (self.name, self.timed) = (name, Some((Instant::now(), millis)));
    }

    /// Shows how far the jobs are.
    pub(crate) fn show(&mut self, status: &BenchStatus) {
        let progress = &status.progress;
        let Some((started, millis)) = self.timed else {
            return self.draw(progress.prefill_bytes_done, progress.prefill_bytes_total, String::new());
        };
        let elapsed = self.last.1.elapsed();
        if elapsed >= RATE_OVER {
            self.iops = progress.ops.saturating_sub(self.last.0) as f64 / elapsed.as_secs_f64();
            self.last = (progress.ops, Instant::now());
        }
        self.draw(started.elapsed().as_millis() as u64, millis, format!(" {:.0} IOPS", self.iops));
    }

    /// A bar, or where all of it is done a spinner.
    fn draw(&self, done: u64, all: u64, rate: String) {
        let template = if done < all { BAR } else { SPINNER };
        self.bar.set_style(ProgressStyle::with_template(template).unwrap_or(ProgressStyle::default_bar()));
        self.bar.set_message(format!("{}: {}{rate}", self.load, self.name));
        self.bar.set_length(all);
        self.bar.set_position(done);
        self.bar.tick();
    }

    /// Wipes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
