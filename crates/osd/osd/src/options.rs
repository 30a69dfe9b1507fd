//! Options that can change while an OSD runs, by Ceph's names. Their first values come from [`OsdConfig`](crate::OsdConfig).
//! Values that the monitor stores (`ceph config set osd …`) override them, and values set on this OSD alone
//! (`ceph tell osd.N config set …`) override both.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use crate::config::{RecoveryOptions, ScrubOptions};
use crate::shard::OsdShard;

/// The values of all options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// When scrubs run, and how fast.
    pub scrub: ScrubOptions,
    /// How much is recovered at the same time while clients are served, and how fast.
    pub recovery: RecoveryOptions,
    /// osd_op_complaint_time: an operation not answered after this time is slow.
    pub complaint: Duration,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        let (scrub, recovery) = (ScrubOptions::default(), RecoveryOptions::default());
        RunOptions { scrub, recovery, complaint: Duration::from_secs(30) }
    }
}

/// The place of an option's value, and which values it may have.
enum Place<'a> {
    /// Whole seconds, at most so many.
    Seconds(&'a mut Duration, u64),
    /// Seconds with a fraction.
    Fraction(&'a mut Duration),
    Flag(&'a mut bool),
    /// A number, at least 1.
    Count(&'a mut u32),
    /// A number, at least this one.
    Number(&'a mut u64, u64),
}

/// Finds an option's place.
type Find = fn(&mut RunOptions) -> Place<'_>;

use Place::{Count, Flag, Fraction, Number, Seconds};

/// Lowest rate of scrubs: with a lower one the replicas' answers would time out.
const SCRUB_BYTES_MIN: u64 = 256 << 10;

/// All options: the name, which is Ceph's except for the two rates (`_bytes_per_second`), and the place of the value.
const OPTIONS: [(&str, Find); 13] = [
    ("osd_scrub_min_interval", |o| Seconds(&mut o.scrub.min_interval, u64::MAX)),
    ("osd_scrub_max_interval", |o| Seconds(&mut o.scrub.max_interval, u64::MAX)),
    ("osd_deep_scrub_interval", |o| Seconds(&mut o.scrub.deep_interval, u64::MAX)),
    ("osd_scrub_auto_repair", |o| Flag(&mut o.scrub.auto_repair)),
    ("osd_scrub_auto_repair_num_errors", |o| Number(&mut o.scrub.auto_repair_errors_max, 0)),
    ("osd_scrub_bytes_per_second", |o| Number(&mut o.scrub.bytes_per_second, SCRUB_BYTES_MIN)),
    ("osd_deep_scrub_large_omap_object_key_threshold", |o| Number(&mut o.scrub.large_omap_keys, 0)),
    ("osd_deep_scrub_large_omap_object_value_sum_threshold", |o| Number(&mut o.scrub.large_omap_bytes, 0)),
    ("osd_max_backfills", |o| Count(&mut o.recovery.max_backfills)),
    ("osd_recovery_max_active", |o| Count(&mut o.recovery.max_active)),
    ("osd_backfill_retry_interval", |o| Seconds(&mut o.recovery.retry_interval, u32::MAX.into())),
    ("osd_recovery_bytes_per_second", |o| Number(&mut o.recovery.bytes_per_second, 0)),
    ("osd_op_complaint_time", |o| Fraction(&mut o.complaint)),
];

impl Place<'_> {
    fn text(&self) -> String {
        match self {
            Seconds(place, _) => place.as_secs().to_string(),
            Fraction(place) => format!("{:.6}", place.as_secs_f64()),
            Flag(place) => place.to_string(),
            Count(place) => place.to_string(),
            Number(place, _) => place.to_string(),
        }
    }

    /// Sets the value; the error says which values are valid.
    fn set(self, text: &str) -> Result<(), String> {
        match self {
            Seconds(place, most) => *place = Duration::from_secs(whole(text, 0..=most)?),
            Fraction(place) => {
                let seconds = text.parse().ok().filter(|s| (0.0..=f64::from(u32::MAX)).contains(s));
                *place = Duration::from_secs_f64(seconds.ok_or("seconds, 0 or more")?);
            }
            Flag(place) => *place = text.parse().map_err(|_| "true or false")?,
            Count(place) => *place = whole(text, 1..=u32::MAX)?,
            Number(place, least) => *place = whole(text, least..=u64::MAX)?,
        }
        Ok(())
    }
}

fn whole<T: FromStr + PartialOrd + Display>(text: &str, range: RangeInclusive<T>) -> Result<T, String> {
    let number = text.parse().ok().filter(|number| number <= range.end()).ok_or("a whole number")?;
    if number < *range.start() { Err(format!("{} or more", range.start())) } else { Ok(number) }
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
    /// The names of all options.
    pub fn names() -> impl Iterator<Item = &'static str> {
        OPTIONS.iter().map(|(name, _)| *name)
    }

    /// # Errors
    /// If there is no such option; the text lists the options that exist.
    fn place(&mut self, name: &str) -> Result<Place<'_>, String> {
        let found = OPTIONS.iter().find(|(known, _)| *known == name);
        found.map(|(_, place)| place(self)).ok_or_else(|| {
            let known: Vec<&str> = RunOptions::names().collect();
            format!(
                "'{name}' is no option that can change while an OSD runs; these can: {}",
                known.join(", ")
            )
        })
    }

    /// The value of an option, as text.
    ///
    /// # Errors
    /// If there is no such option.
    pub(crate) fn get(&self, name: &str) -> Result<String, String> {
        self.clone().place(name).map(|place| place.text())
    }

    /// Sets an option: seconds, `true` or `false`, or a number.
    ///
    /// # Errors
    /// There is no such option, or the value is not valid for it.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        self.place(name)?.set(value).map_err(|wanted| format!("{name}={value}: give {wanted}"))
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
        let mut next = self.config.options.clone();
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
        let others = next.clone();
        self.run_on_others(move |osd| osd.take_options(others));
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
        let mut options = RunOptions::default();
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

    #[test]
    fn each_name_sets_its_own_field() {
        let mut options = RunOptions::default();
        for name in RunOptions::names() {
            let value = match name {
                "osd_scrub_auto_repair" => "true",
                "osd_scrub_bytes_per_second" => "700000",
                _ => "7",
            };
            assert_eq!(options.set(name, value), Ok(()));
        }
        let seconds = Duration::from_secs(7);
        let scrub = ScrubOptions {
            min_interval: seconds,
            max_interval: seconds,
            deep_interval: seconds,
            auto_repair: true,
            auto_repair_errors_max: 7,
            bytes_per_second: 700_000,
            large_omap_keys: 7,
            large_omap_bytes: 7,
        };
        let recovery =
            RecoveryOptions { max_backfills: 7, max_active: 7, retry_interval: seconds, bytes_per_second: 7 };
        assert_eq!(options, RunOptions { scrub, recovery, complaint: seconds });
    }

    #[test]
    fn a_refusal_names_the_valid_values() {
        let mut options = RunOptions::default();
        for (name, value, wanted) in [
            ("osd_scrub_min_interval", "-1", "a whole number"),
            ("osd_backfill_retry_interval", "4294967296", "a whole number"),
            ("osd_max_backfills", "4294967296", "a whole number"),
            ("osd_recovery_max_active", "0", "1 or more"),
            ("osd_scrub_bytes_per_second", "262143", "262144 or more"),
            ("osd_scrub_auto_repair", "1", "true or false"),
            ("osd_op_complaint_time", "nan", "seconds, 0 or more"),
        ] {
            assert_eq!(options.set(name, value), Err(format!("{name}={value}: give {wanted}")));
        }
        assert_eq!(options, RunOptions::default());
        assert_eq!(options.set("osd_op_complaint_time", "0.5"), Ok(()));
        assert_eq!(options.get("osd_op_complaint_time"), Ok("0.500000".into()));
    }
}
