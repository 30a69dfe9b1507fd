//! `commands.sh`: what was run, in order, and how to do it by hand.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use crate::archive::{ArchiveError, Point, RunWriter};
use crate::commands::{Step, by_hand, shell_line};

const HEAD: &str = "#!/bin/sh\n# The commands of this run, as they were run. Behind `# by hand:` stands what does the load of the point above with\n# fio, and with rados bench where that can, against the same folder while its OSDs run: first the data, then the load.\n";

/// The script so far.
pub(super) struct Script {
    text: String,
    shown: BTreeSet<String>,
}

impl Script {
    /// A stopped run's script goes on.
    pub(super) fn open(dir: &Path) -> Script {
        let text = std::fs::read_to_string(dir.join("commands.sh")).unwrap_or_else(|_| HEAD.to_owned());
        Script { text, shown: BTreeSet::new() }
    }

    /// Begins a point.
    pub(super) fn point(&mut self, point: &Point) {
        self.text.push_str(&format!("\n# {} {}\n", point.index, point.stem));
    }

    /// Adds a command; after a load its equivalents.
    pub(super) fn step(&mut self, step: &Step) {
        self.text.push_str(&shell_line(&step.argv));
        self.text.push('\n');
    }

    /// Adds what does a point's load by hand.
    pub(super) fn by_hand(&mut self, layout: &Path, point: &Point, ramp: Duration, seed: u64) {
        if self.shown.insert(point.stem.clone()) {
            by_hand(layout, point, ramp, seed)
                .iter()
                .for_each(|line| self.text.push_str(&format!("# by hand: {line}\n")));
        }
    }

    /// Writes it out.
    pub(super) fn write(&self, writer: &RunWriter) -> Result<(), ArchiveError> {
        writer.commands(&self.text)
    }
}
