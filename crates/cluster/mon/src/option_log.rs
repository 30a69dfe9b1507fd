//! The changes of the stored options, one after the other: `ceph config log` shows them, and `ceph config reset` undoes them.

use std::collections::BTreeMap;

use carmine_types::{UTime, errno};
use carmine_wire::{DecodeError, Decoder, Encoder};

use crate::change::{Refusal, refuse};

/// Changes that are kept; versions count on when older ones are forgotten.
const KEPT: usize = 100;
/// The version before the first change.
const FIRST: u64 = 1;

/// Values by whom they are for, by name.
pub(crate) type Sections = BTreeMap<String, BTreeMap<String, String>>;

/// The value of an option before and after a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Edited {
    pub(crate) who: String,
    pub(crate) name: String,
    pub(crate) before: Option<String>,
    pub(crate) after: Option<String>,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) version: u64,
    pub(crate) stamp: UTime,
    /// Its reason, if it has one.
    pub(crate) why: String,
    pub(crate) edited: Vec<Edited>,
}

/// An option as it is stored: of whom, its name, its values before and after.
type Stored = ((String, String), (Option<String>, Option<String>));
/// A change as it is stored: its version and time, its reason, the options.
type StoredEntry = ((u64, UTime), (String, Vec<Stored>));

/// Changes, the newest last.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct OptionLog(Vec<Entry>);

impl OptionLog {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn decode(d: &mut Decoder<'_>) -> Result<OptionLog, DecodeError> {
        let stored: Vec<StoredEntry> = d.get()?;
        let edited = |((who, name), (before, after)): Stored| Edited { who, name, before, after };
        let entry = |((version, stamp), (why, stored)): StoredEntry| Entry {
            version,
            stamp,
            why,
            edited: stored.into_iter().map(edited).collect(),
        };
        Ok(OptionLog(stored.into_iter().map(entry).collect()))
    }

    pub(crate) fn encode(&self, e: &mut Encoder) {
        let edited = |edited: &Edited| -> Stored {
            let Edited { who, name, before, after } = edited.clone();
            ((who, name), (before, after))
        };
        let entry = |entry: &Entry| {
            let stored: Vec<Stored> = entry.edited.iter().map(edited).collect();
            ((entry.version, entry.stamp), (entry.why.clone(), stored))
        };
        e.put(&self.0.iter().map(entry).collect::<Vec<_>>());
    }

    /// The version of the options as they are.
    fn version(&self) -> u64 {
        self.0.last().map_or(FIRST, |entry| entry.version)
    }

    /// Notes that `before` became `after`, unless they are the same.
    pub(crate) fn note(&mut self, before: &Sections, after: &Sections, why: &str, stamp: UTime) {
        let edited = difference(before, after);
        if edited.is_empty() {
            return;
        }
        self.0.push(Entry { version: self.version() + 1, stamp, why: why.to_owned(), edited });
        if self.0.len() > KEPT {
            self.0.remove(0);
        }
    }

    /// The newest changes, the newest first; behind them the empty beginning, if no change is forgotten.
    pub(crate) fn newest(&self, count: usize) -> Vec<Entry> {
        let is_whole = self.0.first().is_none_or(|entry| entry.version == FIRST + 1);
        let beginning = Entry { version: FIRST, stamp: UTime::ZERO, why: String::new(), edited: Vec::new() };
        self.0.iter().rev().cloned().chain(is_whole.then_some(beginning)).take(count).collect()
    }

    /// The options as they were at a version, from those of now.
    ///
    /// # Errors
    /// EINVAL: there is no such version, or what came after it is forgotten.
    pub(crate) fn undo(&self, now: &Sections, version: u64) -> Result<Sections, Refusal> {
        let oldest = self.0.first().map_or(FIRST, |entry| entry.version - 1);
        // Ceph knows an empty version 0, too.
        let version = version.max(FIRST);
        if !(oldest..=self.version()).contains(&version) {
            let text = format!(
                "must specify a valid historical version to revert to: {version} is none of {oldest} to {}; see 'ceph config log'",
                self.version()
            );
            return Err(refuse(errno::EINVAL, text));
        }
        let mut sections = now.clone();
        for edited in self.0.iter().rev().take_while(|entry| entry.version > version).flat_map(|e| &e.edited)
        {
            let section = sections.entry(edited.who.clone()).or_default();
            match &edited.before {
                Some(value) => section.insert(edited.name.clone(), value.clone()),
                None => section.remove(&edited.name),
            };
        }
        sections.retain(|_, section| !section.is_empty());
        Ok(sections)
    }
}

fn difference(before: &Sections, after: &Sections) -> Vec<Edited> {
    let value = |of: &Sections, who: &str, name: &str| of.get(who)?.get(name).cloned();
    let names = |of: &Sections| -> Vec<(String, String)> {
        of.iter().flat_map(|(who, all)| all.keys().map(|name| (who.clone(), name.clone()))).collect()
    };
    let mut all = names(before);
    all.extend(names(after));
    all.sort_unstable();
    all.dedup();
    let edited = |(who, name): (String, String)| {
        let (before, after) = (value(before, &who, &name), value(after, &who, &name));
        (before != after).then_some(Edited { who, name, before, after })
    };
    all.into_iter().filter_map(edited).collect()
}
