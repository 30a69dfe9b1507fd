//! The progress bar of a load; silent where there is no terminal.

use std::time::{Duration, Instant};

use carmine_load::{BenchStatus, LoadSpec, Phase};
use indicatif::{ProgressBar, ProgressStyle};

const SPINNER: &str = "{spinner} {msg}";
const BYTES: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const TIME: &str = "{msg} [{bar:30}] {percent} %";

pub(crate) struct View {
    bar: ProgressBar,
    load: String,
    /// Start and length of the running phase, if it has a length.
    timed: Option<(Instant, u64)>,
    name: &'static str,
    /// Operations and time of the last rate.
    last: (u64, Instant),
    iops: f64,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl View {
    pub(crate) fn new(spec: &LoadSpec) -> View {
        let bar = ProgressBar::new_spinner().with_style(style(SPINNER));
        View { bar, load: spec.summary(), timed: None, name: "", last: (0, Instant::now()), iops: 0.0 }
    }

    /// A phase of unknown length begins.
    pub(crate) fn phase(&mut self, name: &'static str) {
        self.timed = None;
        self.name = name;
        self.bar.set_style(style(SPINNER));
        self.bar.set_message(format!("{}: {name}", self.load));
        self.bar.tick();
    }

    /// A phase that takes `millis` begins.
    pub(crate) fn timed(&mut self, name: &'static str, millis: u64) {
        self.timed = Some((Instant::now(), millis));
        self.name = name;
        self.bar.reset();
        self.bar.set_style(style(TIME));
        self.bar.set_length(millis);
    }

    /// Shows how far the jobs are.
    pub(crate) fn show(&mut self, status: &BenchStatus) {
        let progress = &status.progress;
        if let Some((started, millis)) = self.timed {
            self.update_rate(progress.ops);
            self.bar.set_message(format!("{}: {} {:.0} IOPS", self.load, self.name, self.iops));
            self.bar.set_position((started.elapsed().as_millis() as u64).min(millis));
        } else if status.phase == Phase::Prefill && progress.prefill_bytes_total > 0 {
            if self.bar.length() != Some(progress.prefill_bytes_total) {
                self.bar.set_style(style(BYTES));
                self.bar.set_length(progress.prefill_bytes_total);
            }
            self.bar.set_position(progress.prefill_bytes_done);
        } else {
            self.bar.tick();
        }
    }

    fn update_rate(&mut self, ops: u64) {
        let elapsed = self.last.1.elapsed();
        if elapsed >= Duration::from_millis(500) {
            self.iops = ops.saturating_sub(self.last.0) as f64 / elapsed.as_secs_f64();
            self.last = (ops, Instant::now());
        }
    }

    /// Wipes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
