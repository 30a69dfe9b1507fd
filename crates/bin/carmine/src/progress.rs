//! Progress on a terminal; anywhere else only what is worth a line in a log is printed.

use std::time::Duration;

use anyhow::Result;
use carmine_daemon::signals;
use carmine_study::archive::PointEnd;
use carmine_study::expand::show_duration;
use carmine_study::run::Event as SweepEvent;
use carmine_testbed::output::Pulse;
use carmine_testbed::{Event, StartOptions, note};
use indicatif::{ProgressBar, ProgressStyle};

/// Runs a start that Ctrl-C cancels and that may take `limit_s`, and shows its progress.
pub(crate) fn shown<R>(limit_s: u64, work: impl FnOnce(&mut StartOptions<'_>) -> Result<R>) -> Result<R> {
    let cancel = signals::cancel_flag()?;
    let progress = Progress::new();
    let result = work(&mut StartOptions {
        // Beside the one that runs now.
        programs: std::env::current_exe()?.with_file_name(""),
        cancel: &cancel,
        events: &mut |event| progress.show(event),
        limit: Duration::from_secs(limit_s),
    });
    progress.0.finish_and_clear();
    result
}

/// Style for work whose remaining amount is not known.
const SPINNER: &str = "{spinner} {msg}";

/// Shows the events of a start.
struct Progress(ProgressBar);

/// The style of a progress bar.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(style(SPINNER));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self(bar)
    }

    /// Shows one event.
    fn show(&self, event: Event) {
        match event {
            Event::Progress { what, done, total, is_bytes } => {
                let steps = if is_bytes {
                    "{bytes}/{total_bytes} {bytes_per_sec} {eta}"
                } else {
                    "{percent} % {elapsed}"
                };
                self.show_as(what, &format!("{{msg}} [{{bar:30}}] {steps}"));
                self.0.set_length(total);
                self.0.set_position(done);
            }
            Event::Confined(how) => self.0.suspend(|| note(&format!("confined: {how}"))),
            Event::Started(daemon) => self.show_as(format!("started {daemon}"), SPINNER),
            Event::Waiting(what) => self.show_as(format!("waiting for {what}"), SPINNER),
        }
    }

    /// Changes the style and begins anew, if this is other work.
    fn show_as(&self, work: String, template: &str) {
        if self.0.message() != work {
            self.0.reset();
            self.0.set_style(style(template));
            self.0.set_message(work);
        }
    }
}

/// The bar of a sweep; on anything but a terminal, a line for each point that failed, and one now and then.
pub(crate) struct View {
    bar: ProgressBar,
    pulse: Pulse,
    point: String,
}

impl View {
    pub(crate) fn new(points: usize) -> View {
        let style = style("{pos}/{len} [{bar:24}] {elapsed} {msg}");
        let bar = ProgressBar::new(points as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        View { bar, pulse: Pulse::default(), point: String::new() }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: SweepEvent) {
        match event {
            SweepEvent::Point { index, stem, left } => {
                // A sweep may add points at its end.
                let count = self.bar.length().unwrap_or(0).max(index as u64 + 1);
                self.bar.set_length(count);
                self.bar.set_position(index as u64);
                self.point = format!("about {} left; {stem}", show_duration(left));
                self.bar.set_message(self.point.clone());
                self.pulse.beat(|| format!("point {} of {count}: {}", index + 1, self.point));
            }
            SweepEvent::Step(what) => self.bar.set_message(format!("{}: {what}", self.point)),
            SweepEvent::Ended { state: PointEnd::Done, .. } => self.bar.inc(1),
            SweepEvent::Ended { stem, state, error } => {
                self.line(&format!("{state}: {stem}: {}", error.unwrap_or_default()));
            }
            SweepEvent::Note(text) => self.line(&text),
        }
    }

    /// Prints above the bar, or on standard error if there is no bar.
    fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
