//! Settings of the store `blue` that may change at every start: nothing on a device depends on them.
//!
//! The class of the drives stands here and in results, not in the store's label: it is a property of what the store lies on
//! just now, which a copy to another drive changes without touching a label.

use std::str::FromStr;

use carmine_load::drive::DeviceClass;
use carmine_types::{FlushMode, StoreKind, UnknownWord};
use serde::{Deserialize, Serialize};

use crate::error::{Result, usage};
use crate::spec::TuningWish;

const KIB: u64 = 1 << 10;

/// The settings that were decided on, for all OSDs of a testbed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tuning {
    /// How writes become durable; `None`: as the drives need it.
    #[serde(with = "carmine_load::as_text::option")]
    pub flush_mode: Option<FlushMode>,
    /// Class of the drives; `None`: as the kernel says.
    pub device_class: Option<DeviceClass>,
    /// Transactions with less data than this go into the log first; `None`: as suits the class.
    pub prefer_deferred_bytes: Option<u64>,
    /// Tell the drives which space is free.
    pub discard: bool,
    /// Budget of an OSD's cache of data, beside its other memory; 0: none.
    pub data_cache_bytes: u64,
    /// How much is read ahead of one who reads an object from front to back; 0: nothing; `None`: the store's own.
    pub readahead_bytes: Option<u64>,
}

/// A value, or `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrAuto<T> {
    /// The properties of the drives decide.
    Auto,
    /// This.
    Is(T),
}

impl<T> OrAuto<T> {
    fn value(self) -> Option<T> {
        match self {
            OrAuto::Auto => None,
            OrAuto::Is(value) => Some(value),
        }
    }

    /// Reads `auto`, or a value by `parse`.
    ///
    /// # Errors
    /// `parse` refuses the text.
    pub fn parse<E>(
        text: &str,
        parse: impl FnOnce(&str) -> std::result::Result<T, E>,
    ) -> std::result::Result<OrAuto<T>, E> {
        if text == "auto" { Ok(OrAuto::Auto) } else { parse(text).map(OrAuto::Is) }
    }
}

impl<T: FromStr<Err = UnknownWord>> FromStr for OrAuto<T> {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        OrAuto::parse(text, |text| text.parse().map_err(|e: UnknownWord| format!("{e}, or auto")))
    }
}

impl Tuning {
    /// With what is asked for.
    ///
    /// # Errors
    /// Something is asked for, and the store is in memory.
    pub fn changed(mut self, wish: &TuningWish, store: StoreKind) -> Result<Tuning> {
        if store != StoreKind::Blue && *wish != TuningWish::default() {
            return Err(usage!(
                "--flush-mode, --device-class, --prefer-deferred-size, --discard, --data-cache, --readahead: the store {store} \
                 uses no device"
            ));
        }
        if let Some(mode) = wish.flush_mode {
            self.flush_mode = mode.value();
        }
        if let Some(class) = wish.device_class {
            self.device_class = class.value();
        }
        if let Some(bytes) = wish.prefer_deferred_bytes {
            self.prefer_deferred_bytes = bytes.value();
        }
        self.discard = wish.discard.unwrap_or(self.discard);
        self.data_cache_bytes = wish.data_cache_bytes.unwrap_or(self.data_cache_bytes);
        if let Some(bytes) = wish.readahead_bytes {
            self.readahead_bytes = bytes.value();
        }
        Ok(self)
    }

    /// The threshold for a class of drives: on one that rotates, a small write is dear where it belongs and cheap behind the
    /// one before it (BlueStore's `bluestore_prefer_deferred_size_hdd`, 64 KiB). On flash only what is less than a block: there
    /// the rest of the block is read and written with it anyway, and BlueStore's 0 defers the same.
    #[must_use]
    pub fn prefer_deferred_bytes(&self, class: DeviceClass) -> u64 {
        self.prefer_deferred_bytes.unwrap_or(match class {
            DeviceClass::Hdd => 64 * KIB,
            DeviceClass::Ssd | DeviceClass::Nvme => 4 * KIB,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_asked_for_stays_and_auto_takes_it_back() {
        let tuning = Tuning::default();
        assert_eq!(
            [DeviceClass::Hdd, DeviceClass::Ssd, DeviceClass::Nvme].map(|c| tuning.prefer_deferred_bytes(c)),
            [65_536, 4096, 4096]
        );
        let wish = TuningWish {
            flush_mode: Some("dsync".parse().unwrap()),
            device_class: Some("hdd".parse().unwrap()),
            prefer_deferred_bytes: Some(OrAuto::Is(0)),
            discard: Some(true),
            data_cache_bytes: Some(1 << 20),
            readahead_bytes: Some(OrAuto::Is(0)),
        };
        let asked = tuning.changed(&wish, StoreKind::Blue).unwrap();
        let asked = asked.changed(&TuningWish::default(), StoreKind::Blue).unwrap();
        assert_eq!(
            asked,
            Tuning {
                flush_mode: Some(FlushMode::Dsync),
                device_class: Some(DeviceClass::Hdd),
                prefer_deferred_bytes: Some(0),
                discard: true,
                data_cache_bytes: 1 << 20,
                readahead_bytes: Some(0),
            }
        );
        assert_eq!(asked.prefer_deferred_bytes(DeviceClass::Hdd), 0);
        let back = TuningWish {
            flush_mode: Some(OrAuto::Auto),
            device_class: Some("auto".parse().unwrap()),
            prefer_deferred_bytes: Some(OrAuto::Auto),
            discard: Some(false),
            data_cache_bytes: Some(0),
            readahead_bytes: Some(OrAuto::Auto),
        };
        assert_eq!(asked.changed(&back, StoreKind::Blue).unwrap(), tuning);
        let error = tuning.changed(&wish, StoreKind::Cyan).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("cyan"), "{error}");
        assert!("tape".parse::<OrAuto<DeviceClass>>().unwrap_err().contains("tape"));
    }
}
