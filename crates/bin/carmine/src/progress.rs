//! Progress on a terminal; on anything else it stays silent, but for what is worth a line in a log.

use std::time::Duration;

use carmine_testbed::Event;
use indicatif::{ProgressBar, ProgressStyle};

use carmine_testbed::output::note;

/// What the line has now.
#[derive(PartialEq, Eq)]
enum Shown {
    Text,
    Precondition,
    /// The store of this OSD.
    Mkfs(u32),
}

/// Shows the events of a start.
pub(crate) struct Progress {
    bar: ProgressBar,
    shown: Shown,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, shown: Shown::Text }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: Event) {
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

    /// Wipes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
