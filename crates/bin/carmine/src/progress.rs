//! Progress on a terminal; on anything else it stays silent, but for what is worth a line in a log.

use std::time::Duration;

use carmine_daemon::signals;
use carmine_study::archive::PointEnd;
use carmine_study::expand::show_duration;
use carmine_study::run::Event as SweepEvent;
use carmine_testbed::output::note;
use carmine_testbed::{DaemonPrograms, Event, StartOptions};
use indicatif::{ProgressBar, ProgressStyle};

/// Runs a start that Ctrl-C cancels and that may take `limit_s`, and shows how far it is.
pub(crate) fn shown<R>(
    limit_s: u64,
    work: impl FnOnce(&mut StartOptions<'_>) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    let cancel = signals::cancel_flag()?;
    let mut progress = Progress::new();
    let result = work(&mut StartOptions {
        programs: DaemonPrograms::beside_own()?,
        cancel: &cancel,
        events: &mut |event| progress.show(event),
        limit: Duration::from_secs(limit_s),
    });
    progress.bar.finish_and_clear();
    result
}

/// The present content of the line.
#[derive(PartialEq, Eq)]
enum Shown {
    Text,
    Precondition,
    /// The store of this OSD.
    Mkfs(u32),
}

/// Shows the events of a start.
struct Progress {
    bar: ProgressBar,
    shown: Shown,
}

/// The style of a progress bar.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Progress {
    fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, shown: Shown::Text }
    }

    /// Shows one event.
    fn show(&mut self, event: Event) {
        match event {
            Event::Mkfs { osd, done_bytes, total_bytes } => {
                if std::mem::replace(&mut self.shown, Shown::Mkfs(osd.0)) != Shown::Mkfs(osd.0) {
                    self.bar.reset();
                    self.bar.set_style(style("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
                    self.bar.set_message(format!("writing the block file of {osd}"));
                }
                self.bar.set_length(total_bytes);
                self.bar.set_position(done_bytes);
            }
            Event::Precondition { what, done, total } => {
                if std::mem::replace(&mut self.shown, Shown::Precondition) != Shown::Precondition {
                    self.bar.set_style(style("{msg} [{bar:30}] {percent} % {elapsed}"));
                }
                self.bar.set_message(what);
                self.bar.set_length(total);
                self.bar.set_position(done);
            }
            Event::Confined(how) => self.bar.suspend(|| note(&format!("confined: {how}"))),
            Event::Started(daemon) => self.spin(&format!("started {daemon}")),
            Event::Waiting(what) => self.spin(&format!("waiting for {what}")),
        }
    }

    fn spin(&mut self, text: &str) {
        if std::mem::replace(&mut self.shown, Shown::Text) != Shown::Text {
            self.bar.set_style(style("{spinner} {msg}"));
        }
        self.bar.set_message(text.to_string());
    }
}

/// The bar of a sweep; on anything but a terminal, a line per point that failed.
pub(crate) struct View {
    bar: ProgressBar,
    point: String,
}

impl View {
    pub(crate) fn new(points: usize) -> View {
        let style = style("{pos}/{len} [{bar:24}] {elapsed} {msg}");
        let bar = ProgressBar::new(points as u64).with_style(style);
        bar.enable_steady_tick(Duration::from_millis(200));
        View { bar, point: String::new() }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: SweepEvent) {
        match event {
            SweepEvent::Point { index, stem, left } => {
                self.bar.set_position(index as u64);
                self.point = format!("about {} left; {stem}", show_duration(left));
                self.bar.set_message(self.point.clone());
            }
            SweepEvent::Step(what) => self.bar.set_message(format!("{}: {what}", self.point)),
            SweepEvent::Ended { stem, state: PointEnd::Failed, error } => {
                self.line(&format!("failed: {stem}: {}", error.unwrap_or_default()));
            }
            SweepEvent::Ended { stem, state: PointEnd::Skipped, error } => {
                self.line(&format!("skipped: {stem}: {}", error.unwrap_or_default()));
            }
            SweepEvent::Ended { .. } => self.bar.inc(1),
            SweepEvent::Note(text) => self.line(&text),
        }
    }

    /// Above the bar, or where there is none on standard error.
    fn line(&self, text: &str) {
        self.bar.suspend(|| note(text));
    }

    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
