//! Progress on a terminal; on anything else it stays silent, but for what is worth a line in a log.

use std::time::Duration;

use carmine_testbed::Event;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::note;

/// Shows the events of a start.
pub(crate) struct Progress {
    bar: ProgressBar,
    mkfs_of: Option<u32>,
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

impl Progress {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner().with_style(style("{spinner} {msg}"));
        bar.enable_steady_tick(Duration::from_millis(100));
        Self { bar, mkfs_of: None }
    }

    /// Shows one event.
    pub(crate) fn show(&mut self, event: Event) {
        match event {
            Event::Mkfs { osd, done_bytes, total_bytes } => {
                if self.mkfs_of.replace(osd.0) != Some(osd.0) {
                    self.bar.reset();
                    self.bar.set_style(style("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}"));
                    self.bar.set_message(format!("writing the block file of {osd}"));
                }
                self.bar.set_length(total_bytes);
                self.bar.set_position(done_bytes);
            }
            Event::Confined(how) => self.bar.suspend(|| note(&format!("confined: {how}"))),
            Event::Started(daemon) => self.spin(&format!("started {daemon}")),
            Event::Waiting(what) => self.spin(&format!("waiting for {what}")),
        }
    }

    fn spin(&mut self, text: &str) {
        if self.mkfs_of.take().is_some() {
            self.bar.set_style(style("{spinner} {msg}"));
        }
        self.bar.set_message(text.to_string());
    }

    /// Wipes the line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
