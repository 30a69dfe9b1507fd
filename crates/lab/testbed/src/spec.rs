//! The settings of a testbed. Each is declared once: the option of `up` and `plan`, its help, and, if a study can vary it, the
//! axis of the same setting.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use carmine_load::drive::DeviceClass;
use carmine_load::parse_bytes;
use carmine_topology::{ClientCpus, CpuList, Strategy};
use carmine_types::{FlushMode, StoreKind};

use crate::confine::{ConfineCpus, ConfineKind};
use crate::error::{Result, usage};
use crate::tuning::OrAuto;

/// The values that an axis takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, or an expression that is rounded to one.
    Count { min: u64, max: u64 },
    /// CPUs: a whole number, or with a fraction down to a thousandth; or this word for no limit.
    CpusOr { max: u64, word: &'static str },
    /// A count that is rounded to the nearest power of two.
    PowerOfTwo { max: u64 },
    /// Bytes: a number, a text such as `64K`, or an expression.
    Bytes,
    /// A number above 0.
    Float,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, or `auto`.
    WordOrAuto(&'static [&'static str]),
    /// Any text; the command that takes it checks it.
    Text,
}

/// When an axis takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another value needs another data folder.
    Layout,
    /// Another value needs a restart of the OSDs.
    Start,
    /// Another value needs another load only.
    Load,
    /// Describes the point but changes nothing.
    Label,
}

/// A setting that a study can vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name in plans and in `points.json`.
    pub name: &'static str,
    /// The option of `up` that sets it, which ends in `=` if the value must follow it so; empty if there is no such option.
    pub option: &'static str,
    /// When it takes effect.
    pub role: Role,
    /// Its values.
    pub kind: Kind,
    /// Help of the option, or what the axis is.
    pub about: &'static str,
}

impl Axis {
    /// The first sentence of its help, for `--list` and for errors.
    #[must_use]
    pub fn about(&self) -> &'static str {
        let text = self.about.trim();
        let end = [" [", ". "].into_iter().filter_map(|mark| text.find(mark)).min();
        end.map_or(text, |end| &text[..end])
    }
}

/// Whole numbers from 1.
pub const fn count(max: u64) -> Kind {
    Kind::Count { min: 1, max }
}

/// Where a testbed lives.
#[derive(clap::Args, Clone, Debug)]
pub struct DirArgs {
    /// Folder of the testbed
    #[arg(long, value_name = "FOLDER", default_value = "carmine-testbed")]
    pub dir: PathBuf,
}

macro_rules! axis {
    ([] $($help:literal)+) => { None };
    ([$name:literal $option:literal $role:ident $kind:expr] $($help:literal)+) => {
        Some(Axis { name: $name, option: $option, role: Role::$role, kind: $kind, about: concat!($($help),+) })
    };
}

macro_rules! settings {
    (
        $(#[$attr:meta])*
        struct $name:ident, axes $axes:ident {
            $(
                $(#[doc = $help:literal])+
                #[arg($($arg:tt)*)]
                $(#[axis($axis:literal, $option:literal, $role:ident, $kind:expr)])?
                $field:ident: $type:ty,
            )+
            $(flatten $group:ident: $group_type:ty,)*
        }
    ) => {
        $(#[$attr])*
        #[derive(clap::Args, Clone, Debug, Default)]
        pub struct $name {
            $($(#[doc = $help])+ #[arg($($arg)*)] pub $field: $type,)+
            $(#[command(flatten)] pub $group: $group_type,)*
        }

        const $axes: &[Option<Axis>] = &[$(axis!([$($axis $option $role $kind)?] $($help)+)),+];
    };
}

settings! {
    /// The options of `up` and `plan` as given; `None` (or an empty list, or false) is "not given".
    struct Wish, axes PLACES {
        /// Number of OSD processes [default: 1]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[axis("osds", "--osds", Layout, count(1024))]
        osds: Option<u32>,
        /// Reactors (pinned threads) of each OSD [default: 1]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[axis("reactors", "--reactors", Start, count(256))]
        reactors: Option<u16>,
        /// Object store: cyan (memory), null (forgets data), blue (file or device) [default: blue]
        #[arg(long, value_name = "STORE", help_heading = "Cluster")]
        #[axis("store", "--store", Layout, Kind::Word(StoreKind::WORDS))]
        store: Option<StoreKind>,
        /// Replicas [default: 3, or the number of OSDs if that is less]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[axis("pool_size", "--size", Layout, count(10))]
        size: Option<u8>,
        /// Replicas that must be up for a PG to take writes [default: the larger half of --size]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        min_size: Option<u8>,
        /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[axis("pgs", "--pgs", Layout, Kind::PowerOfTwo { max: 65_536 })]
        pgs: Option<u32>,
        /// Address to listen on, with or without the monitor's port (0: any) [default: 127.0.0.1]
        #[arg(long, value_name = "IP[:PORT]", value_parser = parse_addr, help_heading = "Cluster")]
        addr: Option<(IpAddr, u16)>,

        /// OSDs on each device (or file); each gets a slice of it and locks that slice [default: 1]
        #[arg(long, value_name = "N", help_heading = "Storage")]
        #[axis("osds_per_device", "--osds-per-device", Layout, count(64))]
        osds_per_device: Option<u32>,
        /// Block devices, one per OSD (or per group of --osds-per-device); without them plain files in the folder
        #[arg(id = "devs", long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
        devices: Vec<PathBuf>,
        /// Overwrite devices that are not blank
        #[arg(long, help_heading = "Storage")]
        force_wipe: bool,
        /// Size of each OSD's block file, such as 8G [default: 4G]
        #[arg(id = "osd_size", long = "osd-size", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[axis("osd_size_bytes", "--osd-size", Layout, Kind::Bytes)]
        osd_size_bytes: Option<u64>,
        /// Folder, perhaps on another drive, in which each OSD's RocksDB gets a folder [default: in the testbed's]
        #[arg(long, value_name = "FOLDER", value_parser = parse_path, help_heading = "Storage")]
        db_dir: Option<PathBuf>,
        /// Devices or files for the OSDs' logs, perhaps on another drive: one per OSD, or one folder for all [default: each
        /// beside its data]
        #[arg(id = "wal_dev", long = "wal-dev", value_name = "PATH,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
        wal_devs: Vec<PathBuf>,
        /// Do not write the block files in advance: a quick start, but first writes also pay for the file system
        #[arg(long, help_heading = "Storage")]
        sparse: bool,
        /// Write zeros over each device of --devs and --wal-dev, which takes as long as filling the drive. Without this, the
        /// drive is told to discard its contents (or to write zeroes by itself); a drive that can do neither gets new labels
        /// only. Use it for volumes on which the first write of a block is slower than the next (thin provisioning, many
        /// clouds), or to leave nothing of old data. For the steady state of a flash drive use --precondition
        #[arg(long, help_heading = "Storage")]
        zero: bool,
        /// Memory of each OSD, such as 2G [default: 1G]
        #[arg(id = "osd_memory", long = "osd-memory", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[axis("osd_memory_bytes", "--osd-memory", Start, Kind::Bytes)]
        osd_memory_bytes: Option<u64>,

        /// Placement of reactors: default (consecutive CPUs), osd (within a socket), socket (spread), l3, or none (not pinned: the
        /// scheduler decides, within --cpus) [default: default]
        #[arg(long, value_name = "STRATEGY", help_heading = "CPUs")]
        #[axis("balance", "--balance", Start, Kind::Word(Strategy::WORDS))]
        balance: Option<Strategy>,
        /// CPUs of the OSDs' reactors, such as 0-7,16 [default: all that nothing else has]
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[axis("osd_cpus", "--cpus", Start, Kind::Text)]
        cpus: Option<CpuList>,
        /// CPUs of clients: a list, count:N, or rest (all that nothing else needs). A number of CPUs is taken as whole cores from
        /// the highest down, from the sockets in turn, before reactors are placed: --balance, --store and --poll do not
        /// change them [default: a third of the CPUs, or fewer where that leaves
        /// each reactor a core of its own]
        #[arg(long, value_name = "LIST|count:N|rest", help_heading = "CPUs")]
        #[axis("client_cpus", "--client-cpus", Start, Kind::Text)]
        client_cpus: Option<ClientCpus>,
        /// CPUs of alien threads (blocking work) [default: each OSD's reactor CPUs]
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[axis("alien_cpus", "--alien-cpus", Start, Kind::Text)]
        alien_cpus: Option<CpuList>,
        /// CPUs of the monitor and of what controls a load [default: the clients']
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[axis("system_cpus", "--system-cpus", Start, Kind::Text)]
        system_cpus: Option<CpuList>,
        /// CPUs of a neighbour, such as virtual machines: nothing else runs there, and `bench` keeps them busy while it measures
        /// [default: none]
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[axis("neighbour_cpus", "--neighbour-cpus", Start, Kind::Text)]
        neighbour_cpus: Option<CpuList>,
        /// Alien threads of each OSD [default: 2]
        #[arg(long, value_name = "N", help_heading = "CPUs")]
        #[axis("alien_threads", "--alien-threads", Start, count(256))]
        alien_threads: Option<u16>,
        /// How idle reactors wait: poll, adaptive, adaptive:MICROSECONDS, sleep [default: adaptive]
        #[arg(long, value_name = "POLICY", help_heading = "CPUs")]
        #[axis("poll", "--poll", Start, Kind::Text)]
        poll: Option<String>,
        /// Let reactors, aliens, clients and the others share CPUs
        #[arg(long, help_heading = "CPUs")]
        overprovisioned: bool,
        /// Limit the CPUs of each OSD. cpuset: a number of CPUs and no others; reactors are pinned to the first ones, aliens
        /// get the rest. quota: an amount of CPU time per 100 ms, like a container's limit; reactors keep their pins, and the
        /// kernel stops the OSD when its time is used up (needs a writable cgroup). Stays in force until `none` is given
        #[arg(long, value_name = "HOW", help_heading = "CPUs")]
        confine: Option<ConfineKind>,
        /// CPUs of each confined OSD, such as 2 (with quota also 1.5), or none for no limit
        #[arg(long, value_name = "N|none", help_heading = "CPUs")]
        confine_cpus: Option<ConfineCpus>,

        /// Start each OSD by this command, such as 'perf record -g -o /tmp/perf.{osd}' or 'numactl -m 0'. {osd} stands for
        /// the OSD's number. The command runs in /, and its output goes to the OSD's log. Stays in force until `none` is given
        #[arg(long, value_name = "COMMAND", help_heading = "Processes")]
        #[axis("osd_wrap", "--osd-wrap", Start, Kind::Text)]
        osd_wrap: Option<String>,
        /// Variable of the OSDs' environment; repeatable; stays in force until others or `none` are given
        #[arg(long, value_name = "NAME=VALUE", help_heading = "Processes")]
        #[axis("osd_env", "--osd-env", Start, Kind::Text)]
        osd_env: Vec<String>,
        flatten tuning: TuningWish,
    }
}

settings! {
    /// Settings of the store `blue` that may change at every start, as asked for; `None`: as before.
    #[derive(Copy, PartialEq, Eq)]
    struct TuningWish, axes TUNING {
        /// How writes become durable: flush (many writes, then one flush of the drive's cache), dsync (each write by itself), none
        /// (only for drives with a power-safe cache), auto (what the drives need). Results name the mode and whether it was
        /// given [default: auto]
        #[arg(long, value_name = "MODE", help_heading = "Storage")]
        #[axis("flush_mode", "--flush-mode", Start, Kind::WordOrAuto(FlushMode::WORDS))]
        flush_mode: Option<OrAuto<FlushMode>>,
        /// Class of the drives: hdd, ssd, nvme, or auto (what the kernel says) [default: auto]
        #[arg(long, value_name = "CLASS", help_heading = "Storage")]
        #[axis("device_class", "--device-class", Start, Kind::WordOrAuto(DeviceClass::WORDS))]
        device_class: Option<OrAuto<DeviceClass>>,
        /// Writes smaller than this go into the log first and to their places later; 0: none do; auto: 64K for hdd, otherwise
        /// 4K (parts of blocks) [default: auto]
        #[arg(id = "prefer_deferred_size", long = "prefer-deferred-size", value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
        #[axis("prefer_deferred_bytes", "--prefer-deferred-size", Start, Kind::Bytes)]
        prefer_deferred_bytes: Option<OrAuto<u64>>,
        /// Tell the drives in batches which space is free: on or off [default: off]
        #[arg(
            long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on",
            value_parser = parse_switch, help_heading = "Storage"
        )]
        #[axis("discard", "--discard=", Start, Kind::Word(&["off", "on"]))]
        discard: Option<bool>,
        /// Cache of data of each OSD, beside its other memory; results from a cache are not the drive's [default: 0, none]
        #[arg(id = "data_cache", long = "data-cache", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[axis("data_cache_bytes", "--data-cache", Start, Kind::Bytes)]
        data_cache_bytes: Option<u64>,
        /// How much `blue` reads ahead of a client that reads an object from front to back, one request at a time; 0: nothing;
        /// auto: 256K [default: auto]
        #[arg(id = "readahead", long = "readahead", value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
        #[axis("readahead_bytes", "--readahead", Start, Kind::Bytes)]
        readahead_bytes: Option<OrAuto<u64>>,
    }
}

/// Axes that are options of `up`, for every store.
pub fn place_axes() -> impl Iterator<Item = &'static Axis> {
    PLACES.iter().flatten()
}

/// Axes that are options of `up`, for the store `blue` only.
pub fn tuning_axes() -> impl Iterator<Item = &'static Axis> {
    TUNING.iter().flatten()
}

/// `value`, if it is in the range of the setting with this axis.
pub(crate) fn in_range<T: Copy + Into<u64> + std::fmt::Display>(axis: &str, value: T) -> Result<T> {
    let axis = place_axes().find(|row| row.name == axis);
    match axis.map(|axis| (axis.option, axis.kind)) {
        Some((option, Kind::Count { min, max })) if !(min..=max).contains(&value.into()) => {
            Err(usage!("{option} {value}: take {min} to {max}"))
        }
        Some((option, Kind::PowerOfTwo { max })) if !(1..=max).contains(&value.into()) => {
            Err(usage!("{option} {value}: take 1 to {max}"))
        }
        _ => Ok(value),
    }
}

/// A path, made absolute: the daemons that open it run in another folder, and a later command may too.
///
/// # Errors
/// The path is empty, or the current folder is gone.
pub fn parse_path(text: &str) -> std::result::Result<PathBuf, String> {
    std::path::absolute(text).map_err(|e| e.to_string())
}

fn parse_addr(text: &str) -> std::result::Result<(IpAddr, u16), String> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((ip, 0));
    }
    let sock: SocketAddr = text.parse().map_err(|_| "write an IP address, or IP:PORT".to_owned())?;
    Ok((sock.ip(), sock.port()))
}

fn parse_size(text: &str) -> std::result::Result<OrAuto<u64>, String> {
    OrAuto::parse(text, parse_bytes)
}

fn parse_switch(text: &str) -> std::result::Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("take on or off".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        assert_eq!(parse_addr("10.0.0.1"), Ok(("10.0.0.1".parse().unwrap(), 0)));
        assert_eq!(parse_addr("[::1]:3300"), Ok(("::1".parse().unwrap(), 3300)));
        assert!(parse_addr("host").is_err());
    }

    #[test]
    fn an_axis_is_an_option_of_the_same_setting() {
        #[derive(clap::Parser)]
        struct Cli {
            #[command(flatten)]
            wish: Wish,
        }
        let command = <Cli as clap::CommandFactory>::command();
        command.clone().debug_assert();
        let options: Vec<String> =
            command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        for axis in place_axes().chain(tuning_axes()) {
            let option = axis.option.trim_end_matches('=').to_owned();
            assert!(options.contains(&option), "{axis:?}");
        }
        let cli: Cli =
            clap::Parser::try_parse_from(["up", "--discard", "--osds", "3", "--devs", "a,b"]).unwrap();
        assert_eq!(
            (cli.wish.tuning.discard, cli.wish.osds, cli.wish.devices.len()),
            (Some(true), Some(3), 2)
        );
    }

    #[test]
    fn ranges_are_those_of_the_axes() {
        assert!(in_range("osds", 1024_u32).is_ok() && in_range("pool_size", 10_u8).is_ok());
        assert!(in_range("osds", 0_u32).unwrap_err().to_string().contains("--osds 0: take 1 to 1024"));
        assert!(in_range("pgs", 70_000_u32).unwrap_err().to_string().contains("--pgs 70000"));
    }
}
