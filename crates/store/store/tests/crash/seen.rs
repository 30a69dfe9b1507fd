//! Counts of the events that a run has met: without them, a test that never meets some event would not be noticed.

use std::collections::BTreeMap;

use carmine_reactor::sim::Unflushed;
use carmine_store::StoreStats;

use crate::check::Checked;
use crate::work::Life;

/// How often each of these happened, all in words.
#[derive(Default)]
pub struct Seen(BTreeMap<&'static str, u64>);

impl Seen {
    pub fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    fn get(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or(0)
    }

    /// A life that was recorded.
    pub fn life(&mut self, life: &Life) {
        self.add("lives", 1);
        let log = life.label.log_range();
        for stats in &life.stats {
            let StoreStats { groups, log_waits, around_log, log_marks, deferred_writes, .. } = *stats;
            self.add("groups", groups);
            self.add("waits for room in the log", log_waits);
            self.add("transactions around the log", around_log);
            self.add("marks", log_marks);
            self.add("deferred writes", deferred_writes);
        }
        let bytes: u64 = life.stats.iter().map(|stats| stats.log_bytes).sum();
        self.add("lives that went around the whole log", u64::from(bytes > log.end - log.start));
        self.add("trims", life.stats.iter().map(|stats| stats.log_trims).max().unwrap_or(0));
        self.add("lives with several reactors", u64::from(life.stats.len() > 1));
        self.add("lives with a device for the log", u64::from(life.label.wal_bytes().is_some()));
        let replayed = life.replayed.groups > 0;
        self.add("lives that began with a replay", u64::from(replayed));
        let other = replayed && life.replayed.lanes != life.stats.len() as u64;
        self.add("lives with another number of reactors than the log has lanes", u64::from(other));
    }

    /// A power cut in a life, and what the mount after it found.
    pub fn cut(&mut self, life: &Life, at: usize, unflushed: Unflushed, left: &Checked) {
        let report = &left.replayed;
        self.add("images", 1);
        self.add("omap keys in images", left.fsck.omap_keys);
        self.add("shared blocks in images", left.fsck.shared_blocks);
        let (path, log) = (life.log_path(), life.label.log_range());
        let torn = life.tape.torn(at, unflushed);
        let mut of_log = torn.iter().filter(|torn| torn.path == path && log.contains(&torn.off));
        let (mut lost, mut half) = (0, 0);
        of_log.by_ref().for_each(|torn| if torn.left == 0 { lost += 1 } else { half += 1 });
        self.add("log writes lost", lost);
        self.add("log writes torn at 512 bytes", half);
        self.add("cuts during a replay", u64::from(at < life.mounted_at && life.replayed.groups > 0));
        self.add("replays", u64::from(report.groups > 0));
        self.add("replays of several lanes", u64::from(report.lanes > 1));
        self.add("transactions replayed", report.txns);
        self.add("transactions dropped for their data", report.dropped_txns);
        self.add("blocks written from the log", report.blocks_written);
    }

    /// Fails if one of these never happened.
    pub fn assert_all(&self, wanted: &[&str]) {
        self.0.iter().for_each(|(what, count)| println!("{count:>8} {what}"));
        let missing: Vec<_> = wanted.iter().filter(|what| self.get(what) == 0).collect();
        assert!(missing.is_empty(), "never met: {missing:?}");
    }
}
