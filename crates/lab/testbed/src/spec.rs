//! The settings of a testbed. Each is declared once, here: the option of `up` and `plan` and its help, the field of the
//! specification that `testbed.json` keeps and `--spec` reads, and, if a study can vary it, the axis of the same setting.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use carmine_load::drive::DeviceClass;
use carmine_load::parse_bytes;
use carmine_topology::{ClientCpus, CpuList, Strategy};
use carmine_types::{FlushMode, StoreKind};
use clap::Parser as _;
use serde_json::{Map, Value};

use crate::confine::{ConfineCpus, ConfineKind};
use crate::error::{Result, usage};
pub use crate::settings::{Axis, Kind, OrAuto, Role, Setting, count};
use crate::settings::{kind_of, settings, spec_default, spec_type};

/// Where a testbed lives.
#[derive(clap::Args, Clone, Debug)]
pub struct DirArgs {
    /// Folder of the testbed
    #[arg(long, value_name = "FOLDER", default_value = "carmine-testbed")]
    pub dir: PathBuf,
}

settings! {
    /// A testbed as it is specified.
    struct TestbedSpec, wish Wish, table PLACES {
        /// Number of OSD processes [default: 1]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[set("--osds" Layout peer; count(1024))]
        osds: u32 = 1,
        /// Reactors (pinned threads) of each OSD [default: 1]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[set("--reactors" Start; count(256))]
        reactors: u16 = 1,
        /// Object store: cyan (memory), null (forgets data), blue (file or device) [default: blue]
        #[arg(long, value_name = "STORE", help_heading = "Cluster")]
        #[set("--store" Layout; Kind::Word(StoreKind::WORDS))]
        #[serde(with = "carmine_load::as_text")]
        store: StoreKind = StoreKind::Blue,
        /// Replicas [default: 3, or the number of OSDs if that is less]
        #[arg(id = "size", long = "size", value_name = "N", help_heading = "Cluster")]
        #[set("--size" Layout peer; count(10))]
        pool_size: u8,
        /// Replicas that must be up for a PG to take writes [default: the larger half of --size]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[set("--min-size" Layout)]
        min_size: u8,
        /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
        #[arg(long, value_name = "N", help_heading = "Cluster")]
        #[set("--pgs" Layout peer; Kind::PowerOfTwo { max: 65_536 })]
        pgs: u32,
        /// Address to listen on, with or without the monitor's port (0: any) [default: 127.0.0.1]
        #[arg(long, value_name = "IP[:PORT]", help_heading = "Cluster")]
        #[set("--addr" Start)]
        #[serde(with = "carmine_load::as_text")]
        addr: Listen = Listen { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 0 },

        /// OSDs on each device (or file); each gets a slice of it and locks that slice [default: 1]
        #[arg(long, value_name = "N", help_heading = "Storage")]
        #[set("--osds-per-device" Layout; count(64))]
        osds_per_device: u32 = 1,
        /// Block devices, one per OSD (or per group of --osds-per-device); without them plain files in the folder
        #[arg(id = "devs", long, value_name = "DEVICE,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
        #[set("--devs" Layout peer)]
        devices: Vec<PathBuf> = Vec::new(),
        /// Size of each OSD's block file, such as 8G [default: 4G]
        #[arg(id = "osd_size", long = "osd-size", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[set("--osd-size" Layout peer; Kind::Bytes)]
        osd_size_bytes: u64 = OSD_SIZE_DEFAULT_BYTES,
        /// Folder, perhaps on another drive, in which each OSD's RocksDB gets a folder [default: in the testbed's]
        #[arg(long, value_name = "FOLDER", value_parser = parse_path, help_heading = "Storage")]
        #[set("--db-dir" Layout)]
        db_dir: PathBuf,
        /// Devices or files for the OSDs' logs, perhaps on another drive: one per OSD, or one folder for all [default: each
        /// beside its data]
        #[arg(id = "wal_dev", long = "wal-dev", value_name = "PATH,…", value_delimiter = ',', value_parser = parse_path, help_heading = "Storage")]
        #[set("--wal-dev" Layout)]
        wal_devs: Vec<PathBuf> = Vec::new(),
        /// Do not write the block files in advance: a quick start, but first writes also pay for the file system
        #[arg(
            long, value_name = "on|off", hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "on",
            value_parser = parse_switch, help_heading = "Storage"
        )]
        #[set("--sparse" Layout peer)]
        sparse: bool = false,
        /// Write zeros over each device of --devs and --wal-dev, which takes as long as filling the drive. Without this, the
        /// drive is told to discard its contents (or to write zeroes by itself); a drive that can do neither gets new labels
        /// only. Use it for volumes on which the first write of a block is slower than the next (thin provisioning, many
        /// clouds), or to leave nothing of old data. For the steady state of a flash drive use --precondition
        #[arg(
            long, value_name = "on|off", hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "on",
            value_parser = parse_switch, help_heading = "Storage"
        )]
        #[set("--zero" Layout)]
        zero: bool = false,
        /// Memory of each OSD, such as 2G [default: 1G]
        #[arg(id = "osd_memory", long = "osd-memory", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[set("--osd-memory" Start peer; Kind::Bytes)]
        osd_memory_bytes: u64 = OSD_MEMORY_DEFAULT_BYTES,

        /// Placement of reactors: default (consecutive CPUs), osd (within a socket), socket (spread), l3, or none (not pinned: the
        /// scheduler decides, within --cpus) [default: default]
        #[arg(long, value_name = "STRATEGY", help_heading = "CPUs")]
        #[set("--balance" Start; Kind::Word(Strategy::WORDS))]
        balance: Strategy = Strategy::Default,
        /// CPUs of the OSDs' reactors, such as 0-7,16 [default: all that nothing else has]
        #[arg(id = "cpus", long = "cpus", value_name = "LIST", help_heading = "CPUs")]
        #[set("--cpus" Start peer; Kind::Text)]
        osd_cpus: CpuList,
        /// CPUs of clients: a list, count:N, or rest (all that nothing else needs). A number of CPUs is taken as whole cores from
        /// the highest down, from the sockets in turn, before reactors are placed: --balance, --store and --poll do not
        /// change them [default: a third of the CPUs, or fewer where that leaves
        /// each reactor a core of its own]
        #[arg(long, value_name = "LIST|count:N|rest", help_heading = "CPUs")]
        #[set("--client-cpus" Start peer; Kind::Text)]
        client_cpus: ClientCpus,
        /// CPUs of alien threads (blocking work) [default: each OSD's reactor CPUs]
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[set("--alien-cpus" Start; Kind::Text)]
        alien_cpus: CpuList,
        /// CPUs of the monitor and of what controls a load [default: the clients']
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[set("--system-cpus" Start peer; Kind::Text)]
        system_cpus: CpuList,
        /// CPUs of a neighbour, such as virtual machines: nothing else runs there, and `bench` keeps them busy while it measures
        /// [default: none]
        #[arg(long, value_name = "LIST", help_heading = "CPUs")]
        #[set("--neighbour-cpus" Start peer; Kind::Text)]
        neighbour_cpus: CpuList,
        /// Alien threads of each OSD [default: 2]
        #[arg(long, value_name = "N", help_heading = "CPUs")]
        #[set("--alien-threads" Start; count(256))]
        alien_threads: u16 = 2,
        /// How idle reactors wait: poll, adaptive, adaptive:MICROSECONDS, sleep [default: adaptive]
        #[arg(long, value_name = "POLICY", help_heading = "CPUs")]
        #[set("--poll" Start; Kind::Text)]
        poll: String = "adaptive".to_owned(),
        /// Let reactors, aliens, clients and the others share CPUs
        #[arg(
            long, value_name = "on|off", hide_possible_values = true, num_args = 0..=1, require_equals = true, default_missing_value = "on",
            value_parser = parse_switch, help_heading = "CPUs"
        )]
        #[set("--overprovisioned" Start peer)]
        overprovisioned: bool = false,
        /// Limit the CPUs of each OSD. cpuset: a number of CPUs and no others; reactors are pinned to the first ones, aliens
        /// get the rest. quota: an amount of CPU time per 100 ms, like a container's limit; reactors keep their pins, and the
        /// kernel stops the OSD when its time is used up (needs a writable cgroup). Stays in force until `none` is given
        #[arg(long, value_name = "HOW", help_heading = "CPUs")]
        #[set("--confine" Start)]
        #[serde(with = "carmine_load::as_text")]
        confine: ConfineKind = ConfineKind::None,
        /// CPUs of each confined OSD, such as 2 (with quota also 1.5), or none for no limit
        #[arg(long, value_name = "N|none", help_heading = "CPUs")]
        #[set("--confine-cpus" Start)]
        #[serde(with = "carmine_load::as_text::option")]
        confine_cpus: ConfineCpus,

        /// Start each OSD by this command, such as 'perf record -g -o /tmp/perf.{osd}' or 'numactl -m 0'. {osd} stands for
        /// the OSD's number. The command runs in /, and its output goes to the OSD's log. Stays in force until `none` is given
        #[arg(long, value_name = "COMMAND", help_heading = "Processes")]
        #[set("--osd-wrap" Start; Kind::Text)]
        osd_wrap: String = NONE.to_owned(),
        /// Variable of the OSDs' environment; repeatable; stays in force until others or `none` are given
        #[arg(long, value_name = "NAME=VALUE", help_heading = "Processes")]
        #[set("--osd-env" Start; Kind::Text)]
        osd_env: Vec<String> = Vec::new(),
        group tuning: Tuning, TuningWish,
    }
}

settings! {
    /// Settings of the store `blue` that may change at every start: nothing on a device depends on them. The class of the drives
    /// stands here and in results, not in the store's label: it is a property of what the store lies on just now, which a
    /// copy to another drive changes without touching a label.
    #[derive(Copy, Eq)]
    struct Tuning, wish TuningWish, table TUNING {
        /// How writes become durable: flush (many writes, then one flush of the drive's cache), dsync (each write by itself), none
        /// (only for drives with a power-safe cache), auto (what the drives need). Results name the mode and whether it was
        /// given [default: auto]
        #[arg(long, value_name = "MODE", help_heading = "Storage")]
        #[set("--flush-mode" Start; Kind::WordOrAuto(FlushMode::WORDS))]
        flush_mode: OrAuto<FlushMode> = OrAuto::Auto,
        /// Class of the drives: hdd, ssd, nvme, or auto (what the kernel says) [default: auto]
        #[arg(long, value_name = "CLASS", help_heading = "Storage")]
        #[set("--device-class" Start; Kind::WordOrAuto(DeviceClass::WORDS))]
        device_class: OrAuto<DeviceClass> = OrAuto::Auto,
        /// Writes smaller than this go into the log first and to their places later; 0: none do; auto: 64K for hdd, otherwise
        /// 4K (parts of blocks) [default: auto]
        #[arg(id = "prefer_deferred_size", long = "prefer-deferred-size", value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
        #[set("--prefer-deferred-size" Start; Kind::Bytes)]
        prefer_deferred_bytes: OrAuto<u64> = OrAuto::Auto,
        /// Tell the drives in batches which space is free: on or off [default: off]
        #[arg(
            long, value_name = "on|off", num_args = 0..=1, require_equals = true, default_missing_value = "on",
            value_parser = parse_switch, help_heading = "Storage"
        )]
        #[set("--discard=" Start; Kind::Word(&["off", "on"]))]
        discard: bool = false,
        /// Cache of data of each OSD, beside its other memory; results from a cache are not the drive's [default: 0, none]
        #[arg(id = "data_cache", long = "data-cache", value_name = "SIZE", value_parser = parse_bytes, help_heading = "Storage")]
        #[set("--data-cache" Start; Kind::Bytes)]
        data_cache_bytes: u64 = 0,
        /// How much `blue` reads ahead of a client that reads an object from front to back, one request at a time; 0: nothing;
        /// auto: 256K [default: auto]
        #[arg(id = "readahead", long = "readahead", value_name = "SIZE", value_parser = parse_size, help_heading = "Storage")]
        #[set("--readahead" Start; Kind::Bytes)]
        readahead_bytes: OrAuto<u64> = OrAuto::Auto,
    }
}

/// Block file of an OSD unless another size is asked for.
const OSD_SIZE_DEFAULT_BYTES: u64 = 4 << 30;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 1 << 30;
/// The word that takes something of an earlier start away.
pub(crate) const NONE: &str = "none";
/// The part of a specification that only `blue` has.
const TUNING_PART: &str = "tuning";

/// Axes that are options of `up`, for every store.
pub fn place_axes() -> impl Iterator<Item = &'static Axis> {
    PLACES.iter().filter(|setting| setting.in_studies).map(|setting| &setting.axis)
}

/// Axes that are options of `up`, for the store `blue` only.
pub fn tuning_axes() -> impl Iterator<Item = &'static Axis> {
    TUNING.iter().filter(|setting| setting.in_studies).map(|setting| &setting.axis)
}

/// Axes that are options of `peer up`, too.
pub fn peer_axes() -> impl Iterator<Item = &'static Axis> {
    PLACES.iter().filter(|setting| setting.in_studies && setting.peer).map(|setting| &setting.axis)
}

/// Each axis that is an option of `up`, and where the plan in a result has its value.
pub fn axis_paths() -> impl Iterator<Item = (&'static str, String)> {
    let own = place_axes().map(|axis| (axis.name, format!("/{}", axis.name)));
    own.chain(tuning_axes().map(|axis| (axis.name, format!("/{TUNING_PART}/{}", axis.name))))
}

/// The options of `peer up` that `up` has as well, with the same help.
#[derive(Clone, Debug)]
pub struct PeerSettings(pub Wish);

impl clap::Args for PeerSettings {
    fn augment_args(command: clap::Command) -> clap::Command {
        let of_peer = |arg: &clap::Arg| {
            let option = arg.get_long().map(|long| format!("--{long}")).unwrap_or_default();
            let setting = PLACES.iter().chain(TUNING).find(|s| s.axis.option.trim_end_matches('=') == option);
            setting.is_none_or(|setting| setting.peer)
        };
        Wish::augment_args(command).mut_args(|arg| if of_peer(&arg) { arg } else { arg.hide(true) })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for PeerSettings {
    fn from_arg_matches(matches: &clap::ArgMatches) -> std::result::Result<Self, clap::Error> {
        let wish = Wish::from_arg_matches(matches)?;
        match wish.given().into_iter().find(|setting| !setting.peer) {
            None => Ok(Self(wish)),
            Some(setting) => {
                let option = setting.axis.option.trim_end_matches('=');
                let text = format!("{option}: a peer has no such setting; leave it out\n");
                Err(clap::Error::raw(clap::error::ErrorKind::UnknownArgument, text))
            }
        }
    }

    fn update_from_arg_matches(
        &mut self,
        matches: &clap::ArgMatches,
    ) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The options of `up`, parsed as `up` does.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    wish: Wish,
}

impl Wish {
    /// Reads options of `up`, without the program's and the command's name.
    ///
    /// # Errors
    /// The first line of what is wrong.
    pub fn from_words(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let parsed = Words::try_parse_from(words);
        let wish = parsed.map(|words| words.wish);
        wish.map_err(|e| usage!("{}", e.to_string().lines().next().unwrap_or_default()))
    }

    /// Reads a specification in TOML or JSON: its names are those of `plan --print-spec`, its values those of the options.
    ///
    /// # Errors
    /// The file cannot be read, or has something that is no setting.
    pub fn from_file(path: &Path) -> Result<Self> {
        let wrong = |why: String| usage!("--spec {}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let parsed: Map<String, Value> = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?,
            false => toml::from_str(&text).map_err(|e| wrong(e.to_string()))?,
        };
        let mut words = Vec::new();
        for (name, value) in &parsed {
            match value {
                Value::Object(part) if name == TUNING_PART => {
                    for (name, value) in part {
                        words.extend(options(TUNING, name, value).map_err(wrong)?);
                    }
                }
                value => words.extend(options(PLACES, name, value).map_err(wrong)?),
            }
        }
        Self::from_words(words).map_err(|e| wrong(e.to_string()))
    }
}

/// A setting of a specification as options.
fn options(table: &[Setting], name: &str, value: &Value) -> std::result::Result<Vec<String>, String> {
    let setting = table.iter().find(|setting| setting.axis.name == name);
    let setting = setting
        .ok_or_else(|| format!("there is no setting `{name}`; `carmine plan --print-spec` shows all"))?;
    let option = setting.axis.option.trim_end_matches('=');
    let word = |text: String| format!("{option}={text}");
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) if name == "osd_env" => Ok(list.iter().map(|value| word(plain(value))).collect()),
        Value::Array(list) if list.is_empty() => Ok(Vec::new()),
        Value::Object(_) => Err(format!("{name} is no table")),
        value => Ok(vec![word(plain(value))]),
    }
}

/// A value as an option takes it.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(is_on) => if *is_on { "on" } else { "off" }.to_owned(),
        Value::Array(list) => list.iter().map(plain).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

impl TestbedSpec {
    /// The settings in JSON, by name.
    fn json(&self) -> Value {
        // Texts, numbers and lists of them: there is nothing that JSON could refuse.
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The specification in TOML, which [`Wish::from_file`] reads back.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let json = self.json();
        let lines = |table: &[Setting], json: &Value| {
            let line = |setting: &Setting| {
                // A device is used whole.
                let skipped = setting.axis.name == "osd_size_bytes" && !self.devices.is_empty();
                let value = toml::Value::try_from(json.get(setting.axis.name)?).ok().filter(|_| !skipped)?;
                Some(format!("# {}\n{} = {value}\n", setting.axis.about(), setting.axis.name))
            };
            table.iter().filter_map(line).collect::<String>()
        };
        let mut text = lines(PLACES, &json);
        if self.store == StoreKind::Blue {
            text += &format!("\n[{TUNING_PART}]\n{}", lines(TUNING, &json[TUNING_PART]));
        }
        text
    }

    /// Fails if a number is out of the range of its axis.
    pub(crate) fn check_ranges(&self) -> Result<()> {
        let json = self.json();
        for axis in place_axes() {
            let Some(number) = json.get(axis.name).and_then(Value::as_u64) else { continue };
            let (min, max) = match axis.kind {
                Kind::Count { min, max } => (min, max),
                Kind::PowerOfTwo { max } => (1, max),
                _ => continue,
            };
            if !(min..=max).contains(&number) {
                return Err(usage!("{} {number}: take {min} to {max}", axis.option));
            }
            if matches!(axis.kind, Kind::PowerOfTwo { .. }) && !number.is_power_of_two() {
                return Err(usage!("{} {number}: take a power of two", axis.option));
            }
        }
        Ok(())
    }

    /// Fails if `next` differs in anything that the data of a `what` depends on; `command` makes and removes it.
    pub(crate) fn refuse_other_data(&self, next: &Self, what: &str, command: &str) -> Result<()> {
        let (json, other) = (self.json(), next.json());
        for Axis { name, option, .. } in
            PLACES.iter().map(|s| s.axis).filter(|axis| axis.role == Role::Layout)
        {
            if json[name] != other[name] {
                return Err(usage!(
                    "{option} {}: this {what} was made with {}; leave the option out, or make another {what} in another --dir \
                     (`{command} destroy` removes this one)",
                    shown(name, &other[name]),
                    shown(name, &json[name])
                ));
            }
        }
        Ok(())
    }
}

impl TuningWish {
    /// Fails if anything is asked for and the store uses no device.
    ///
    /// # Errors
    /// Names the options.
    pub fn refuse_without_device(&self, store: StoreKind) -> Result<()> {
        let given: Vec<&str> = self.given().iter().map(|s| s.axis.option.trim_end_matches('=')).collect();
        if store != StoreKind::Blue && !given.is_empty() {
            return Err(usage!("{}: the store {store} uses no device", given.join(", ")));
        }
        Ok(())
    }
}

/// A value for people.
fn shown(name: &str, value: &Value) -> String {
    match value {
        Value::Number(number) if name.ends_with("_bytes") => number.as_u64().map_or_else(String::new, mib),
        Value::Array(list) if list.is_empty() && name == "devices" => "files".to_owned(),
        Value::Array(list) if list.is_empty() => NONE.to_owned(),
        Value::Null => NONE.to_owned(),
        value => plain(value),
    }
}

/// Bytes for people.
pub(crate) fn mib(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    if bytes.is_multiple_of(MIB) { format!("{}M", bytes / MIB) } else { format!("{bytes} bytes") }
}

impl Tuning {
    /// Each setting and its value.
    #[must_use]
    pub fn texts(&self) -> Vec<(String, String)> {
        let json = serde_json::to_value(self).unwrap_or_default();
        json.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), plain(value))).collect()
    }

    /// The threshold for a class of drives: on one that rotates, a small write is dear where it belongs and cheap behind the
    /// one before it (BlueStore's `bluestore_prefer_deferred_size_hdd`, 64 KiB). On flash only what is less than a block: there
    /// the rest of the block is read and written with it anyway, and BlueStore's 0 defers the same.
    #[must_use]
    pub fn prefer_deferred_bytes(&self, class: DeviceClass) -> u64 {
        self.prefer_deferred_bytes.value().unwrap_or(match class {
            DeviceClass::Hdd => 64 << 10,
            DeviceClass::Ssd | DeviceClass::Nvme => 4 << 10,
        })
    }
}

/// An address to listen on, and the monitor's port; 0 is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listen {
    /// The address of all processes.
    pub ip: IpAddr,
    /// The monitor's port.
    pub port: u16,
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Ok(ip) = text.parse() {
            return Ok(Self { ip, port: 0 });
        }
        let sock: SocketAddr = text.parse().map_err(|_| "write an IP address, or IP:PORT".to_owned())?;
        Ok(Self { ip: sock.ip(), port: sock.port() })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.ip, self.port).fmt(f)
    }
}

/// A path, made absolute: the daemons that open it run in another folder, and a later command may too.
///
/// # Errors
/// The path is empty, or the current folder is gone.
pub fn parse_path(text: &str) -> std::result::Result<PathBuf, String> {
    std::path::absolute(text).map_err(|e| e.to_string())
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
        let ip = |text: &str| text.parse::<Listen>().map(|listen| listen.to_string());
        assert_eq!(ip("10.0.0.1"), Ok("10.0.0.1:0".to_owned()));
        assert_eq!(ip("[::1]:3300"), Ok("[::1]:3300".to_owned()));
        assert!(ip("host").is_err());
    }

    #[test]
    fn a_setting_is_an_option_and_a_field() {
        let command = <Words as clap::CommandFactory>::command();
        command.clone().debug_assert();
        let options: Vec<String> =
            command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect();
        let json = TestbedSpec::default().json();
        for (table, json) in [(PLACES, &json), (TUNING, &json[TUNING_PART])] {
            for Setting { axis, .. } in table {
                assert!(options.contains(&axis.option.trim_end_matches('=').to_owned()), "{axis:?}");
                assert!(json.get(axis.name).is_some(), "{axis:?}");
            }
        }
        let words = ["--discard", "--osds", "3", "--devs", "/a,/b", "--sparse"].map(str::to_owned);
        let wish = Wish::from_words(words).unwrap();
        assert_eq!((wish.tuning.discard, wish.osds, wish.sparse), (Some(true), Some(3), Some(true)));
        assert_eq!(wish.devices.map(|devices| devices.len()), Some(2));
    }

    #[test]
    fn a_specification_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("spec");
        let words = "--osds 3 --cpus 0-2 --client-cpus count:2 --readahead 1M --osd-env A=1 --osd-env B=2 --overprovisioned --confine \
                     quota --confine-cpus 1.5 --osd-memory 2G --balance none --addr 127.0.0.1:3300";
        let wish = Wish::from_words(words.split_whitespace().map(str::to_owned)).unwrap();
        let mut spec = TestbedSpec::default();
        spec.apply(&wish);
        for text in [spec.to_toml(), serde_json::to_string(&spec).unwrap()] {
            std::fs::write(&path, &text).unwrap();
            let mut again = TestbedSpec::default();
            again.apply(&Wish::from_file(&path).unwrap());
            assert_eq!(again, spec, "{text}");
        }
        for (text, part) in [
            ("osd = 3", "there is no setting `osd`"),
            ("[tuning]\nosds = 3", "there is no setting `osds`"),
            ("osds = \"many\"", "--osds"),
            ("osds = ", "--spec"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Wish::from_file(&path).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
        // Options come first.
        std::fs::write(&path, "osds = 3\nreactors = 2\n").unwrap();
        let wish = Wish { osds: Some(1), ..Wish::default() }.or(Wish::from_file(&path).unwrap());
        assert_eq!((wish.osds, wish.reactors), (Some(1), Some(2)));
    }

    #[test]
    fn settings_of_blue_need_blue() {
        let wish =
            TuningWish { discard: Some(true), readahead_bytes: Some(OrAuto::Auto), ..TuningWish::default() };
        let error = wish.refuse_without_device(StoreKind::Cyan).unwrap_err();
        assert!(
            error.is_usage() && error.to_string().contains("--discard, --readahead: the store cyan"),
            "{error}"
        );
        assert!(wish.refuse_without_device(StoreKind::Blue).is_ok());
        let classes = [DeviceClass::Hdd, DeviceClass::Ssd, DeviceClass::Nvme];
        assert_eq!(classes.map(|c| Tuning::default().prefer_deferred_bytes(c)), [65_536, 4096, 4096]);
        assert!("tape".parse::<OrAuto<DeviceClass>>().unwrap_err().contains("tape"));
    }
}
