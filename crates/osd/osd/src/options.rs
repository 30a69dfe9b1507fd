//! Options that can change while an OSD runs, by Ceph's names. Their first values come from [`OsdConfig`]. Values that the
//! monitor stores (`ceph config set osd …`) override them, and values set on this OSD alone (`ceph tell osd.N config set …`)
//! override both.
//!
//! [`OsdConfig`]: crate::OsdConfig

use std::collections::BTreeMap;

use carmine_reactor::ShardId;

use crate::config::{ComplaintTime, OsdConfig, RecoveryOptions, ScrubOptions};
use crate::shard::OsdShard;

/// Their values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunOptions {
    pub(crate) scrub: ScrubOptions,
    pub(crate) recovery: RecoveryOptions,
    pub(crate) complaint: ComplaintTime,
}

/// Values by name.
pub(crate) type Values = BTreeMap<String, String>;

/// Values set since the start (shard 0).
#[derive(Default)]
pub(crate) struct Given {
    /// Stored by the monitor for all OSDs.
    stored: Values,
    /// Set on this OSD alone.
    own: Values,
}

impl RunOptions {
    /// Those at the start.
    pub(crate) fn from_config(config: &OsdConfig) -> RunOptions {
        RunOptions {
            scrub: config.scrub.clone(),
            recovery: config.recovery.clone(),
            complaint: config.complaint,
        }
    }

    fn names() -> impl Iterator<Item = &'static str> {
        ScrubOptions::NAMES.into_iter().chain(RecoveryOptions::NAMES).chain([ComplaintTime::NAME])
    }

    /// The value of an option, as text.
    ///
    /// # Errors
    /// If there is no such option; the text lists the options that exist.
    pub(crate) fn get(&self, name: &str) -> Result<String, String> {
        let complaint = || (name == ComplaintTime::NAME).then(|| self.complaint.to_string());
        let value = self.scrub.get(name).or_else(|| self.recovery.get(name)).or_else(complaint);
        value.ok_or_else(|| {
            let known: Vec<&str> = RunOptions::names().collect();
            format!(
                "'{name}' is no option that can change while an OSD runs; these can: {}",
                known.join(", ")
            )
        })
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.get(name)?;
        if name == ComplaintTime::NAME {
            self.complaint = value.parse()?;
            return Ok(());
        }
        match ScrubOptions::NAMES.contains(&name) {
            true => self.scrub.set(name, value),
            false => self.recovery.set(name, value),
        }
    }
}

impl OsdShard {
    /// Sets values on this OSD alone. On shard 0.
    ///
    /// # Errors
    /// If an option does not exist, or a value is not valid for it; then nothing changes.
    pub(crate) fn set_own_options(&self, values: &Values) -> Result<(), String> {
        let mut next = self.options.borrow().clone();
        values.iter().try_for_each(|(name, value)| next.set(name, value))?;
        self.given.borrow_mut().own.extend(values.clone());
        self.spread_options(&next);
        Ok(())
    }

    /// Removes the value set on this OSD alone; returns the one now in force. On shard 0.
    ///
    /// # Errors
    /// There is no such option.
    pub(crate) fn unset_own_option(&self, name: &str) -> Result<String, String> {
        self.options.borrow().get(name)?;
        let stored = {
            let mut given = self.given.borrow_mut();
            given.own.remove(name);
            given.stored.clone()
        };
        self.set_stored_options(stored);
        self.options.borrow().get(name)
    }

    /// Replaces all values stored by the monitor; options no longer among them get their former value. On shard 0.
    pub(crate) fn set_stored_options(&self, values: Values) {
        let mut given = self.given.borrow_mut();
        given.stored = values;
        let mut next = RunOptions::from_config(&self.config);
        for (name, value) in given.stored.iter().chain(&given.own) {
            if let Err(why) = next.set(name, value) {
                tracing::warn!("an option that the monitor stores is not taken: {why}");
            }
        }
        if next != *self.options.borrow() {
            self.spread_options(&next);
        }
    }

    /// Sends the values to all shards; each gets all changes in the same order.
    fn spread_options(&self, next: &RunOptions) {
        tracing::info!("options: {next:?}");
        for to in (1..self.shard.shards()).map(ShardId) {
            let next = next.clone();
            OsdShard::run_on(&self.shard, to, move |osd| osd.take_options(next));
        }
        self.take_options(next.clone());
    }

    fn take_options(&self, next: RunOptions) {
        let shards = self.shard.shards();
        self.pace.set(next.scrub.bytes_per_second);
        self.reserver.resize(next.recovery.max_backfills);
        self.recovery_ops.resize(next.recovery.max_active_of(shards));
        self.recovery_pace.set(next.recovery.bytes_per_second_of(shards));
        let before = self.options.replace(next);
        if before.scrub != self.options.borrow().scrub {
            self.pgs.borrow().values().for_each(|pg| pg.plan_scrubs_anew());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_has_a_value_that_can_be_set_again() {
        let mut options = RunOptions {
            scrub: ScrubOptions::default(),
            recovery: RecoveryOptions::default(),
            complaint: ComplaintTime::default(),
        };
        let before = options.clone();
        for name in RunOptions::names() {
            let value = options.get(name).unwrap();
            assert_eq!(options.set(name, &value), Ok(()), "{name}");
            assert!(options.set(name, "tea").is_err_and(|why| why.contains(name)), "{name}");
        }
        assert_eq!(options, before);
        assert_eq!(options.set("osd_max_backfills", "3"), Ok(()));
        assert_eq!((options.get("osd_max_backfills"), options.recovery.max_backfills), (Ok("3".into()), 3));
        assert!(options.set("osd_max_backfills", "0").is_err());
        assert!(options.set("osd_tea", "1").is_err_and(|why| why.contains("osd_max_backfills")));
    }
}
