//! Options of the store `blue`, of a testbed's and of a bare one.

use carmine_load::drive::DeviceClass;
use carmine_testbed::{OrAuto, TuningWish};
use carmine_types::FlushMode;
use clap::Args;

use crate::args::parse_bytes;

/// What may change at every start.
#[derive(Args, Clone, Debug)]
pub(crate) struct TuningArgs {
    /// How writes become durable: flush (many writes, then one flush of the drive's cache), dsync (each by itself), none (only
    /// where the drive's cache is power-safe), auto (as the drives need it); results say which, and whether it was given
    /// [default: auto]
    #[arg(long, value_name = "MODE", help_heading = "Storage")]
    flush_mode: Option<OrAuto<FlushMode>>,
    /// Class of the drives: hdd, ssd, nvme, or auto (as the kernel says) [default: auto]
    #[arg(long, value_name = "CLASS", help_heading = "Storage")]
    device_class: Option<OrAuto<DeviceClass>>,
    /// Writes of less than this go into the log first and to their places later; 0: none do; auto: hdd 64K, others 4K, which
    /// are parts of blocks [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
    prefer_deferred_size: Option<OrAuto<u64>>,
    /// Tell the drives in batches which space is free: on or off [default: off]
    #[arg(
        long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on",
        value_parser = parse_switch, help_heading = "Storage"
    )]
    discard: Option<bool>,
    /// Cache of data of each OSD, beside its other memory; results from a cache are not the drive's [default: 0, none]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
    data_cache: Option<u64>,
    /// How much is read ahead of one who reads an object from front to back, one request at a time; 0: nothing; auto: 256K
    /// [default: auto]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
    readahead: Option<OrAuto<u64>>,
}

impl TuningArgs {
    /// What is asked for.
    pub(crate) fn wish(&self) -> TuningWish {
        TuningWish {
            flush_mode: self.flush_mode,
            device_class: self.device_class,
            prefer_deferred_bytes: self.prefer_deferred_size,
            discard: self.discard,
            data_cache_bytes: self.data_cache,
            readahead_bytes: self.readahead,
        }
    }
}

fn parse_size(text: &str) -> Result<OrAuto<u64>, String> {
    OrAuto::parse(text, parse_bytes)
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("take on or off".to_owned()),
    }
}
