//! The cluster log: what happened to OSDs, what administrators write into it, and, on a channel of its own, their commands. It is
//! kept in memory; clients that subscribe to it (`ceph -w`) get each line.

use std::collections::VecDeque;

use carmine_types::{OsdId, UTime, Uuid};
use carmine_wire::mon_msg::{LogEntry, LogMsg, log_level};
use carmine_wire::osdmap::OsdMap;
use carmine_wire::{EntityAddrVec, EntityName, EntityType};
use serde_json::{Value, json};

use crate::push::PUSH_BYTES;
use crate::report::time;

/// The channel of events.
pub(crate) const CLUSTER: &str = "cluster";
/// The channel of commands.
pub(crate) const AUDIT: &str = "audit";
/// Lines of each channel that are kept.
const LINES_MAX: usize = 1_000;
/// Longest line, bytes.
const LINE_BYTES_MAX: usize = 4 << 10;
/// What a line has beside its text in a message: names, time, numbers.
const LINE_HEAD_BYTES: usize = 100;
/// Lines that a new subscriber gets at once.
const FIRST_LINES: usize = 10;

/// The newest lines.
#[derive(Default)]
pub(crate) struct ClusterLog {
    entries: VecDeque<LogEntry>,
}

/// A subscription to the log: its lowest level, and how far the subscriber has got.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogWish {
    /// The lowest level.
    level: u16,
    /// Number of the first line that it has not got.
    next: u64,
}

impl ClusterLog {
    /// Writes a line about the cluster.
    pub(crate) fn add(&mut self, level: u16, who: &str, text: &str, now: UTime) {
        self.push(CLUSTER, level, who, text, now);
    }

    /// Writes a line about a command.
    pub(crate) fn audit(&mut self, level: u16, text: &str, now: UTime) {
        self.push(AUDIT, level, "mon.a", text, now);
    }

    fn push(&mut self, channel: &str, level: u16, who: &str, text: &str, now: UTime) {
        let mut text = text.to_owned();
        text.truncate(text.floor_char_boundary(LINE_BYTES_MAX));
        let (kind, id) = who.split_once('.').unwrap_or((who, ""));
        let (entity, num) = match kind {
            "client" => (EntityType::CLIENT, -1),
            "osd" => (EntityType::OSD, id.parse().unwrap_or(-1)),
            _ => (EntityType::MON, 0),
        };
        let rank = EntityName { kind: entity, num };
        self.entries.push_back(LogEntry {
            name: (entity.0.into(), id.to_owned()),
            rank,
            addrs: EntityAddrVec::default(),
            stamp: now,
            seq: self.newest() + 1,
            level,
            text,
            channel: channel.to_owned(),
        });
        let is_same = |entry: &LogEntry| entry.channel == channel;
        if self.entries.iter().filter(|entry| is_same(entry)).count() > LINES_MAX
            && let Some(oldest) = self.entries.iter().position(is_same)
        {
            self.entries.remove(oldest);
        }
    }

    /// Number of the newest line.
    fn newest(&self) -> u64 {
        self.entries.back().map_or(0, |entry| entry.seq)
    }

    /// Lines of at least this level, from this number on.
    pub(crate) fn since(&self, first: u64, level: u16) -> impl Iterator<Item = &LogEntry> {
        self.entries.iter().filter(move |entry| entry.seq >= first && entry.level >= level)
    }

    /// The wish of a client that subscribes to `log-info` or so; 0 is from a few lines ago on.
    pub(crate) fn wish(&self, what: &str, start: u64) -> Option<LogWish> {
        let level = log_level::from_name(what.strip_prefix("log-")?)?;
        let lines = self.entries.iter().rev().filter(|entry| entry.level >= level);
        let first = || lines.take(FIRST_LINES).last().map_or(self.newest() + 1, |entry| entry.seq);
        Some(LogWish { level, next: if start == 0 { first() } else { start } })
    }

    /// The next lines that the client has not got yet, as many as go into one message.
    pub(crate) fn news(&self, fsid: Uuid, wish: &mut LogWish) -> Option<LogMsg> {
        let mut lines = self.since(wish.next, wish.level).peekable();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = lines.next_if(|_| bytes < PUSH_BYTES) {
            bytes += entry.text.len() + LINE_HEAD_BYTES;
            entries.push(entry.clone());
        }
        wish.next = lines.peek().map_or(self.newest() + 1, |entry| entry.seq);
        (!entries.is_empty()).then(|| LogMsg { version: self.newest(), fsid, entries })
    }

    /// Notes which OSDs have come and gone.
    pub(crate) fn note_osds(&mut self, before: &OsdMap, after: &OsdMap, now: UTime) {
        let changed = after.osds().filter(|osd| before.is_up(*osd) != after.is_up(*osd));
        let changed: Vec<OsdId> = changed.collect();
        for osd in changed {
            match after.is_up(osd) {
                true => self.add(log_level::INFO, "mon.a", &format!("{osd} boot"), now),
                false => self.add(log_level::WARN, "mon.a", &format!("{osd} marked down"), now),
            }
        }
    }
}

/// A line as `log last` prints it.
pub(crate) fn line(entry: &LogEntry) -> String {
    let (name, rank) = names(entry);
    let tag = log_level::tag(entry.level);
    format!("{} {name} ({rank}) {} : {} {tag} {}", time(entry.stamp), entry.seq, entry.channel, entry.text)
}

/// The same by name.
pub(crate) fn line_json(entry: &LogEntry) -> Value {
    let (name, rank) = names(entry);
    json!({
        "name": name, "rank": rank, "addrs": { "addrvec": [] }, "stamp": time(entry.stamp), "seq": entry.seq,
        "channel": entry.channel, "priority": log_level::tag(entry.level), "message": entry.text,
    })
}

fn names(entry: &LogEntry) -> (String, String) {
    let kind = match entry.rank.kind {
        EntityType::CLIENT => "client",
        EntityType::OSD => "osd",
        _ => "mon",
    };
    let rank = if entry.rank.num < 0 { "?".to_owned() } else { entry.rank.num.to_string() };
    (format!("{kind}.{}", entry.name.1), format!("{kind}.{rank}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscribers_get_each_line_of_their_level_once() {
        let mut log = ClusterLog::default();
        let now = UTime { sec: 1, nsec: 0 };
        assert!(log.wish("log-tea", 0).is_none() && log.wish("osdmap", 0).is_none());
        let mut wish = log.wish("log-warn", 0).unwrap();
        assert!(log.news(Uuid([1; 16]), &mut wish).is_none());
        log.add(log_level::INFO, "client.admin", "one", now);
        log.add(log_level::WARN, "mon.a", "two", now);
        let news = log.news(Uuid([1; 16]), &mut wish).unwrap();
        assert_eq!((news.version, news.entries.len(), &*news.entries[0].text), (2, 1, "two"));
        assert!(log.news(Uuid([1; 16]), &mut wish).is_none());
        for n in 0..3 * LINES_MAX {
            log.add(log_level::INFO, "mon.a", &n.to_string(), now);
        }
        assert_eq!(log.since(0, log_level::DEBUG).count(), LINES_MAX);
        // Commands push out no other lines.
        (0..2 * LINES_MAX).for_each(|n| log.audit(log_level::DEBUG, &n.to_string(), now));
        let of = |channel: &str| log.since(0, log_level::DEBUG).filter(|e| e.channel == channel).count();
        assert_eq!((of(CLUSTER), of(AUDIT)), (LINES_MAX, LINES_MAX));
        let mut late = log.wish("log-info", 0).unwrap();
        assert_eq!(log.news(Uuid([1; 16]), &mut late).unwrap().entries.len(), FIRST_LINES);
    }
}
