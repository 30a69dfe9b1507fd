//! The settings of a testbed. Each is declared once, here: the option of `up` and `plan` and its help, the field of the
//! specification that `testbed.json` keeps and `--spec` reads, and, if a study can vary it, the axis of the same setting.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use carmine_load::drive::DeviceClass;
use carmine_load::parse_bytes;
use carmine_topology::{ClientCpus, CpuList, Strategy};
use carmine_types::{AuthKind, FlushMode, IoPath, MonKind, MsMode, StoreKind};
use clap::Parser as _;
use ipnet::IpNet;
use serde_json::{Map, Value};

use crate::confine::{ConfineCpus, ConfineKind};
use crate::error::{Result, refuse, usage};
use crate::folder::BedKind;
pub use crate::settings::{Axis, Kind, OrAuto, Role, Setting, count};
use crate::settings::{long, settings};

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
        #[set("Cluster" "--osds" "N" Layout peer; count(1024))]
        osds: u32 = 1,
        /// Reactors (pinned threads) of each OSD [default: 1]
        #[set("Cluster" "--reactors" "N" Start; count(256))]
        reactors: u16 = 1,
        /// Object store: cyan (memory), null (forgets data), blue (file or device) [default: blue]
        #[set("Cluster" "--store" "STORE" Layout; Kind::Word(StoreKind::WORDS))]
        store: StoreKind = StoreKind::Blue,
        /// Replicas [default: 3, or the number of OSDs if that is less]
        #[set("Cluster" "--size" "N" Layout peer; count(10))]
        pool_size: u8,
        /// Replicas that must be up for a PG to take writes [default: the larger half of --size]
        #[set("Cluster" "--min-size" "N" Layout)]
        min_size: u8,
        /// PGs of the pool `bench`, a power of two [default: about 100 per OSD]
        #[set("Cluster" "--pgs" "N" Layout peer; Kind::PowerOfTwo { max: 65_536 })]
        pgs: u32,
        /// Monitor: embedded (Carmine's own), or ceph (`ceph-mon` of the installed packages) [default: embedded]
        #[set("Cluster" "--mon" "MONITOR" Layout; Kind::Word(MonKind::WORDS))]
        mon: MonKind = MonKind::Embedded,
        /// Monitors: 1, or 3 with --mon ceph [default: 1]
        #[set("Cluster" "--mons" "N" Layout)]
        mons: u8 = 1,
        /// Name of this host in the CRUSH map of a cluster of several hosts, which the others join (`carmine join`): the copies of an object
        /// are on different hosts [default: this host is the whole cluster, and copies are on different OSDs]
        #[set("Cluster" "--host" "NAME" Layout)]
        host: String,
        /// Address to listen on, with or without the monitor's port (0: any); anything but loopback takes --insecure [default: 127.0.0.1]
        #[set("Cluster" "--addr" "IP[:PORT]" Start)]
        #[arg(value_parser = parse_addr)]
        addr: SocketAddr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        /// Networks of clients, monitors and managers, such as 10.0.0.0/24: each host listens on its own address there [default: that of
        /// --addr]
        #[set("Cluster" "--public-network" "CIDR,…" Start)]
        #[arg(value_delimiter = ',', value_parser = parse_network)]
        public_network: Vec<IpNet> = Vec::new(),
        /// Networks on which OSDs replicate, recover and watch each other, and nobody else talks to them [default: the public one]
        #[set("Cluster" "--cluster-network" "CIDR,…" Start)]
        #[arg(value_delimiter = ',', value_parser = parse_network)]
        cluster_network: Vec<IpNet> = Vec::new(),
        /// Who may connect: none (everybody), or cephx (who has a key, with that key's caps); the keys are in the folder [default: none]
        #[set("Cluster" "--auth" "AUTH" Layout peer; Kind::Word(AuthKind::WORDS))]
        auth: AuthKind = AuthKind::None,
        /// What protects connections: crc (checksums), or secure (encryption, with --auth cephx) [default: crc]
        #[set("Network" "--ms-mode" "MODE" Start peer; Kind::Word(MsMode::WORDS))]
        ms_mode: MsMode = MsMode::Crc,
        /// Seconds for which tickets of --auth cephx are valid. 0: an hour for services and three days for monitors, as in Ceph
        /// [default: 0]
        #[set("Failures" "--auth-ticket-ttl" "SECONDS" Start)]
        auth_ticket_ttl_s: u32 = 0,
        /// Listen on an address that other machines can reach without --auth cephx. Nothing is encrypted and nobody is authenticated:
        /// whoever reaches it can read and destroy all data [default: off]
        #[set("Cluster" "--insecure=" "on|off" Start)]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        insecure: bool = false,

        /// Seconds of silence after which an OSD reports another one to the monitor [default: 20]
        #[set("Failures" "--osd-heartbeat-grace" "SECONDS" Start)]
        osd_heartbeat_grace_s: u32 = 20,
        /// Longest pause, in seconds, between two pings of an OSD to another [default: 6]
        #[set("Failures" "--osd-heartbeat-interval" "SECONDS" Start)]
        osd_heartbeat_interval_s: u32 = 6,
        /// Seconds after which an OSD that is down goes out, so that others get its data; 0: never [default: 600]
        #[set("Failures" "--mon-osd-down-out-interval" "SECONDS" Start)]
        mon_osd_down_out_interval_s: u32 = 600,
        /// Seconds between two maps of the monitor: all that is asked within them comes in one, as in Ceph, where it is 1. 0: each change
        /// is a map of its own, at once [default: 0]
        #[set("Failures" "--paxos-propose-interval" "SECONDS" Start)]
        paxos_propose_interval_s: u32 = 0,
        /// Prime pg_temp as Ceph 16.2.15 does: where a new map would change an acting set that a primary has asked for, it stays what
        /// it was, for the primary to ask again [default: on]
        #[set("Failures" "--mon-osd-prime-pg-temp=" "on|off" Start; Kind::Word(&["off", "on"]))]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        mon_osd_prime_pg_temp: bool = true,
        /// PGs that recover or backfill at the same time with an OSD as their primary, and as many with it as their replica
        /// [default: 1]
        #[set("Failures" "--osd-max-backfills" "N" Start; count(1024))]
        osd_max_backfills: u32 = 1,
        /// Objects that an OSD pushes to others at the same time [default: 10]
        #[set("Failures" "--osd-recovery-max-active" "N" Start; count(1024))]
        osd_recovery_max_active: u32 = 10,
        /// Bytes that an OSD pushes to others in a second, such as 100M; 0: as many as it can [default: 0]
        #[set("Failures" "--osd-recovery-bytes-per-second" "SIZE" Start; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        osd_recovery_bytes_per_second: u64 = 0,
        /// Seconds until an OSD that was too full for a backfill is asked again [default: 30]
        #[set("Failures" "--osd-backfill-retry-interval" "SECONDS" Start)]
        osd_backfill_retry_interval_s: u32 = 30,
        /// Give each OSD and each real monitor a network namespace and an address of its own, so that `thrash` can cut it off from
        /// all others. Takes root [default: off]
        #[set("Failures" "--namespaces=" "on|off" Layout; Kind::Word(&["off", "on"]))]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        namespaces: bool = false,
        /// MTU of the links of --namespaces, such as 1500 or 9000. Packets are then really of this size; without it the kernel passes up to
        /// 64K through a link in one piece, which costs less CPU time than any network does. 0: the kernel's [default: 0]
        #[set("Network" "--net-mtu" "BYTES" Start; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        net_mtu_bytes: u64 = 0,
        /// Microseconds by which each OSD's link of --namespaces delays every packet, each way. The kernel may have no netem, so processes of
        /// ours (relays) do it, whose CPU time counts for nobody [default: 0]
        #[set("Network" "--net-delay-us" "N" Start; Kind::Count { min: 0, max: 1_000_000 })]
        net_delay_us: u32 = 0,
        /// Bytes that each OSD's link of --namespaces carries in a second, such as 100m, each way; the kernel's token bucket (tbf) sees to
        /// that. 0: as many as it can [default: 0]
        #[set("Network" "--net-rate" "BYTES_PER_SECOND" Start; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        net_rate_bytes_per_second: u64 = 0,

        /// OSDs on each device (or file); each gets a slice of it and locks that slice [default: 1]
        #[set("Storage" "--osds-per-device" "N" Layout; count(64))]
        osds_per_device: u32 = 1,
        /// Block devices, one per OSD (or per group of --osds-per-device); without them plain files in the folder
        #[set("Storage" "--devs" "DEVICE,…" Layout peer)]
        #[arg(value_delimiter = ',', value_parser = parse_path)]
        devices: Vec<PathBuf> = Vec::new(),
        /// Size of each OSD's block file, such as 8G [default: 4G]
        #[set("Storage" "--osd-size" "SIZE" Layout peer; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        osd_size_bytes: u64 = OSD_SIZE_DEFAULT_BYTES,
        /// Folder, perhaps on another drive, in which each OSD's RocksDB gets a folder [default: in the testbed's]
        #[set("Storage" "--db-dir" "FOLDER" Layout)]
        #[arg(value_parser = parse_path)]
        db_dir: PathBuf,
        /// Devices or files for the OSDs' logs, perhaps on another drive: one per OSD, or one folder for all [default: each
        /// beside its data]
        #[set("Storage" "--wal-dev" "PATH,…" Layout)]
        #[arg(value_delimiter = ',', value_parser = parse_path)]
        wal_devs: Vec<PathBuf> = Vec::new(),
        /// Do not write the block files in advance: a quick start, but first writes also pay for the file system
        #[set("Storage" "--sparse" "on|off" Layout peer)]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        sparse: bool = false,
        /// Write zeros over each device of --devs and --wal-dev, which takes as long as filling the drive. Without this, the
        /// drive is told to discard its contents (or to write zeroes by itself); a drive that can do neither gets new labels
        /// only. Use it for volumes on which the first write of a block is slower than the next (thin provisioning, many
        /// clouds), or to leave no old data behind. For the steady state of a flash drive use --precondition
        #[set("Storage" "--zero" "on|off" Layout)]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        zero: bool = false,
        /// Memory of each OSD, such as 2G [default: 1G; of a peer 4G]
        #[set("Storage" "--osd-memory" "SIZE" Start peer; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        osd_memory_bytes: u64 = OSD_MEMORY_DEFAULT_BYTES,

        /// Placement of reactors: default (consecutive CPUs), osd (within a socket), socket (spread), l3, drive (on the NUMA node of
        /// the OSD's drive), or none (not pinned: the scheduler decides, within --cpus) [default: default]
        #[set("CPUs" "--balance" "STRATEGY" Start; Kind::Word(Strategy::WORDS))]
        balance: Strategy = Strategy::Default,
        /// CPUs of the OSDs' reactors, such as 0-7,16 [default: all that nothing else has]
        #[set("CPUs" "--cpus" "LIST" Start peer; Kind::Text)]
        osd_cpus: CpuList,
        /// CPUs of clients: a list, count:N, or rest (all that nothing else needs). A number of CPUs is taken as whole cores from
        /// the highest down, from the sockets in turn, before reactors are placed: --balance, --store and --poll do not
        /// change them [default: a third of the CPUs, or fewer where that leaves
        /// each reactor a core of its own]
        #[set("CPUs" "--client-cpus" "LIST|count:N|rest" Start peer; Kind::Text)]
        client_cpus: ClientCpus,
        /// CPUs of alien threads (blocking work) [default: each OSD's reactor CPUs]
        #[set("CPUs" "--alien-cpus" "LIST" Start; Kind::Text)]
        alien_cpus: CpuList,
        /// CPUs of the monitor and the controller [default: the clients']
        #[set("CPUs" "--system-cpus" "LIST" Start peer; Kind::Text)]
        system_cpus: CpuList,
        /// CPUs of a neighbour, such as virtual machines: nothing else runs there, and `bench` keeps them busy while it measures
        /// [default: none]
        #[set("CPUs" "--neighbour-cpus" "LIST" Start peer; Kind::Text)]
        neighbour_cpus: CpuList,
        /// Alien threads of each OSD [default: 2]
        #[set("CPUs" "--alien-threads" "N" Start; count(256))]
        alien_threads: u16 = 2,
        /// How idle reactors wait: poll, adaptive, adaptive:MICROSECONDS, sleep [default: adaptive]
        #[set("CPUs" "--poll" "POLICY" Start; Kind::Text)]
        poll: String = "adaptive".to_owned(),
        /// Let reactors, aliens, clients and the others share CPUs
        #[set("CPUs" "--overprovisioned" "on|off" Start peer)]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        overprovisioned: bool = false,
        /// Limit the CPUs of each OSD. cpuset: a number of CPUs and no others; reactors are pinned to the first ones, aliens
        /// get the rest. quota: an amount of CPU time per 100 ms, like a container's limit; reactors keep their pins, and the
        /// kernel stops the OSD when its time is used up (needs a writable cgroup). Stays in force until `none` is given
        #[set("CPUs" "--confine" "HOW" Start)]
        confine: ConfineKind = ConfineKind::None,
        /// CPUs of each confined OSD, such as 2 (with quota also 1.5), or none for no limit
        #[set("CPUs" "--confine-cpus" "N|none" Start)]
        confine_cpus: ConfineCpus,

        /// Start each OSD with this command, such as 'perf record -g -o /tmp/perf.{osd}' or 'numactl -m 0'. {osd} stands for
        /// the OSD's number. The command runs in /, and its output goes to the OSD's log. Stays in force until `none` is given
        #[set("Processes" "--osd-wrap" "COMMAND" Start; Kind::Text)]
        osd_wrap: String = NONE.to_owned(),
        /// Variable of the OSDs' environment; repeatable; stays in force until others or `none` are given
        #[set("Processes" "--osd-env" "NAME=VALUE" Start; Kind::Text)]
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
        /// How writes become durable: flush (many writes, then one flush of the drive's cache; few may go as with dsync), dsync (each
        /// write by itself), none (only for drives with a power-safe cache), auto (what the drives need). Results name the mode
        /// and whether it was given [default: auto]
        #[set("Storage" "--flush-mode" "MODE" Start; Kind::WordOrAuto(FlushMode::WORDS))]
        flush_mode: OrAuto<FlushMode> = OrAuto::Auto,
        /// How reads and writes go to the block devices: block (the kernel's block layer; for files, too), poll (the same
        /// without interrupts: needs poll queues, and the reactor is busy as long as anything is under way), passthru (NVMe
        /// commands to /dev/ngXnY, past the block layer: fewer layers, a lone durable write is one command, and the kernel's
        /// statistics of the drive leave it out unless queue/iostats_passthrough says otherwise), auto (passthru where the drive is NVMe, has blocks
        /// without metadata and one controller, and this user may command it; else block) [default: block]
        #[set("Storage" "--io-path" "PATH" Start; Kind::Word(IoPath::WORDS))]
        io_path: IoPath = IoPath::Block,
        /// Class of the drives: hdd, ssd, nvme, or auto (what the kernel says) [default: auto]
        #[set("Storage" "--device-class" "CLASS" Start; Kind::WordOrAuto(DeviceClass::WORDS))]
        device_class: OrAuto<DeviceClass> = OrAuto::Auto,
        /// Writes smaller than this go into the log first and to their places later, and so do those of just this size that
        /// come one after another; 0: none do; auto: 64K for hdd, otherwise 4K (parts of blocks) [default: auto]
        #[set("Storage" "--prefer-deferred-size" "SIZE" Start; Kind::Bytes)]
        #[arg(value_parser = parse_size)]
        prefer_deferred_bytes: OrAuto<u64> = OrAuto::Auto,
        /// Tell the drives in batches which space is free: on or off [default: off]
        #[set("Storage" "--discard=" "on|off" Start; Kind::Word(&["off", "on"]))]
        #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "on", value_parser = parse_switch)]
        discard: bool = false,
        /// Cache of data of each OSD, beside its other memory; results from a cache are not the drive's [default: 0, none]
        #[set("Storage" "--data-cache" "SIZE" Start; Kind::Bytes)]
        #[arg(value_parser = parse_bytes)]
        data_cache_bytes: u64 = 0,
        /// How much `blue` reads ahead of a client that reads an object from front to back, one request at a time; 0: nothing;
        /// auto: 256K [default: auto]
        #[set("Storage" "--readahead" "SIZE" Start; Kind::Bytes)]
        #[arg(value_parser = parse_size)]
        readahead_bytes: OrAuto<u64> = OrAuto::Auto,
    }
}

/// Block file of an OSD unless another size is asked for.
const OSD_SIZE_DEFAULT_BYTES: u64 = 4 << 30;
const OSD_MEMORY_DEFAULT_BYTES: u64 = 1 << 30;
/// The word that removes a setting of an earlier start.
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

/// Parts of a specification that a peer does not have.
pub(crate) fn not_of_peers() -> impl Iterator<Item = &'static str> {
    PLACES.iter().filter(|setting| !setting.peer).map(|setting| setting.axis.name).chain([TUNING_PART])
}

/// Each axis that is an option of `up`, and where the plan in a result has its value.
pub fn axis_paths() -> impl Iterator<Item = (&'static str, String)> {
    let own = place_axes().map(|axis| (axis.name, format!("/{}", axis.name)));
    own.chain(tuning_axes().map(|axis| (axis.name, format!("/{TUNING_PART}/{}", axis.name))))
}

/// Settings of a cluster as a whole: OSDs that join one have none of them.
const OF_CLUSTERS: [&str; 12] = [
    "pool_size",
    "min_size",
    "pgs",
    "mon",
    "mons",
    "namespaces",
    "net_mtu_bytes",
    "net_delay_us",
    "net_rate_bytes_per_second",
    "mon_osd_down_out_interval_s",
    "paxos_propose_interval_s",
    "mon_osd_prime_pg_temp",
];

/// For `mut_args` of the command `join`: hides the options of [`Wish`] that are settings of a cluster.
pub fn hide_of_clusters(arg: clap::Arg) -> clap::Arg {
    let same = |setting: &&Setting| arg.get_long() == Some(long(setting.axis.option));
    let is_hidden = PLACES.iter().find(same).is_some_and(|setting| OF_CLUSTERS.contains(&setting.axis.name));
    if is_hidden { arg.hide(true) } else { arg }
}

/// For `mut_args` of the command `peer up`: hides the options of [`Wish`] that a peer does not have.
pub fn hide_unless_of_peers(arg: clap::Arg) -> clap::Arg {
    let same = |setting: &&Setting| arg.get_long() == Some(long(setting.axis.option));
    let is_hidden = PLACES.iter().chain(TUNING).find(same).is_some_and(|setting| !setting.peer);
    if is_hidden { arg.hide(true) } else { arg }
}

/// The options of `up`, parsed as `up` does.
#[derive(clap::Parser)]
#[command(no_binary_name = true)]
struct Words {
    #[command(flatten)]
    wish: Wish,
}

impl Wish {
    /// Fails if something is asked for that the cluster decides which OSDs join.
    ///
    /// # Errors
    /// Names the option.
    pub fn refuse_of_clusters(&self) -> Result<()> {
        let given = self.given();
        let found = given.iter().find(|setting| OF_CLUSTERS.contains(&setting.axis.name));
        let option = found.map_or("", |setting| long(setting.axis.option));
        refuse!(found.is_some(), "--{option}: the cluster that these OSDs join decides this; leave it out");
        Ok(())
    }

    /// Fails if something is asked for that a peer does not have.
    ///
    /// # Errors
    /// Names the option.
    pub fn refuse_unless_of_peers(&self) -> Result<()> {
        for setting in self.given() {
            let option = long(setting.axis.option);
            refuse!(!setting.peer, "--{option}: a peer has no such setting; leave it out");
        }
        Ok(())
    }

    /// Reads options of `up`, without the program's and the command's name.
    ///
    /// # Errors
    /// The first line of the parser's error.
    pub fn from_words(words: impl IntoIterator<Item = String>) -> Result<Self> {
        let parsed = Words::try_parse_from(words);
        let wish = parsed.map(|words| words.wish);
        wish.map_err(|e| usage!("{}", e.to_string().lines().next().unwrap_or_default()))
    }

    /// Reads a specification in TOML or JSON: its names are those of `plan --print-spec`, its values those of the options. One
    /// file serves a testbed and its peer: settings that a peer does not have are left out for it.
    ///
    /// # Errors
    /// The file cannot be read, or has something that is not a setting.
    pub fn from_file(path: &Path, kind: BedKind) -> Result<Self> {
        let wrong = |why: String| usage!("--spec {}: {why}", path.display());
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        let mut parsed: Map<String, Value> = match text.trim_start().starts_with('{') {
            true => serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?,
            false => toml::from_str(&text).map_err(|e| wrong(e.to_string()))?,
        };
        if kind == BedKind::Peer {
            not_of_peers().for_each(|name| _ = parsed.remove(name));
        }
        let tuning = parsed.get(TUNING_PART).and_then(Value::as_object);
        let own = parsed.iter().filter(|(name, _)| tuning.is_none() || *name != TUNING_PART);
        let own = own.map(|(name, value)| options(PLACES, name, value));
        let of_blue = tuning.into_iter().flatten().map(|(name, value)| options(TUNING, name, value));
        let words = own.chain(of_blue).collect::<std::result::Result<Vec<_>, _>>().map_err(wrong)?.concat();
        Self::from_words(words).map_err(|e| wrong(e.to_string()))
    }
}

/// A setting of a specification as options.
fn options(table: &[Setting], name: &str, value: &Value) -> std::result::Result<Vec<String>, String> {
    let setting = table.iter().find(|setting| setting.axis.name == name);
    let setting = setting
        .ok_or_else(|| format!("there is no setting `{name}`; `carmine plan --print-spec` shows all"))?;
    let word = |value: &Value| format!("--{}={}", long(setting.axis.option), plain(value));
    match value {
        Value::Object(_) => Err(format!("{name} is not a table")),
        Value::Array(list) if name == "osd_env" => Ok(list.iter().map(word).collect()),
        value if value.is_null() || value.as_array().is_some_and(Vec::is_empty) => Ok(Vec::new()),
        value => Ok(vec![word(value)]),
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
        // These are texts, numbers and lists of them, none of which JSON can refuse.
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
            let option = axis.option;
            refuse!(!(min..=max).contains(&number), "{option} {number}: take {min} to {max}");
            let is_free = !matches!(axis.kind, Kind::PowerOfTwo { .. });
            refuse!(!is_free && !number.is_power_of_two(), "{option} {number}: take a power of two");
        }
        Ok(())
    }

    /// Fails if `next` differs in anything that the data depends on.
    pub(crate) fn refuse_other_data(&self, next: &Self, kind: BedKind) -> Result<()> {
        let (json, other, command) = (self.json(), next.json(), kind.command());
        for Setting { axis: Axis { name, option, role, .. }, .. } in PLACES {
            refuse!(
                *role == Role::Layout && json[name] != other[name],
                "{option} {}: this {kind} was made with {}; leave the option out, or make another {kind} in another --dir \
                 (`{command} destroy` removes this one)",
                shown(name, &other[name]),
                shown(name, &json[name])
            );
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
        let given: Vec<String> = self.given().iter().map(|s| format!("--{}", long(s.axis.option))).collect();
        let unused = store != StoreKind::Blue && !given.is_empty();
        refuse!(unused, "{}: the store {store} uses no device", given.join(", "));
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

    /// The threshold for a class of drives: on a rotating drive, a small write is expensive where it belongs and cheap behind the
    /// one before it (BlueStore's `bluestore_prefer_deferred_size_hdd`, 64 KiB). On flash only writes of less than a block are deferred: there
    /// the rest of the block is read and written with it anyway, and BlueStore's 0 defers the same; and blocks that come one after another, which the log makes
    /// durable in one write in place of two.
    #[must_use]
    pub fn prefer_deferred_bytes(&self, class: DeviceClass) -> u64 {
        self.prefer_deferred_bytes.value().unwrap_or(match class {
            DeviceClass::Hdd => 64 << 10,
            DeviceClass::Ssd | DeviceClass::Nvme => 4 << 10,
        })
    }
}

/// A path, made absolute: the daemons that open it run in another folder, and a later command may too.
///
/// # Errors
/// The path is empty, or the current folder is gone.
pub fn parse_path(text: &str) -> std::result::Result<PathBuf, String> {
    std::path::absolute(text).map_err(|e| e.to_string())
}

fn parse_addr(text: &str) -> std::result::Result<SocketAddr, String> {
    let any_port = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    any_port.or_else(|_| text.parse()).map_err(|_| "write an IP address, or IP:PORT".to_owned())
}

/// A network as its first address and the length of its prefix.
pub(crate) fn parse_network(text: &str) -> std::result::Result<IpNet, String> {
    let network = text.trim().parse::<IpNet>();
    network.map(|network| network.trunc()).map_err(|_| "write a network such as 10.0.0.0/24".to_owned())
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
        let ip = |text: &str| parse_addr(text).map(|addr| addr.to_string());
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
            again.apply(&Wish::from_file(&path, BedKind::Testbed).unwrap());
            assert_eq!(again, spec, "{text}");
        }
        for (text, part) in [
            ("osd = 3", "there is no setting `osd`"),
            ("[tuning]\nosds = 3", "there is no setting `osds`"),
            ("osds = \"many\"", "--osds"),
            ("osds = ", "--spec"),
        ] {
            std::fs::write(&path, text).unwrap();
            let error = Wish::from_file(&path, BedKind::Testbed).unwrap_err();
            assert!(error.is_usage() && error.to_string().contains(part), "{error}");
        }
        // Options come first.
        std::fs::write(&path, "osds = 3\nreactors = 2\n").unwrap();
        let read = |kind| Wish { osds: Some(1), ..Wish::default() }.or(Wish::from_file(&path, kind).unwrap());
        let wish = read(BedKind::Testbed);
        assert_eq!((wish.osds, wish.reactors), (Some(1), Some(2)));
        assert_eq!(read(BedKind::Peer).reactors, None);
    }

    #[test]
    fn a_peer_has_the_settings_of_a_testbed_that_are_marked_so() {
        #[derive(clap::Parser)]
        #[command(mut_args(hide_unless_of_peers))]
        struct Peer {
            #[command(flatten)]
            settings: Wish,
        }
        let help = <Peer as clap::CommandFactory>::command().render_long_help().to_string();
        assert!(help.contains("--client-cpus") && !help.contains("--reactors"), "{help}");
        let parse = |words: &str| {
            let peer = Peer::try_parse_from(words.split(' ')).unwrap();
            peer.settings.refuse_unless_of_peers().map(|()| peer.settings.osds)
        };
        assert_eq!(parse("peer --osds 2").unwrap(), Some(2));
        let error = parse("peer --reactors 2").unwrap_err().to_string();
        assert!(error.contains("--reactors: a peer has no such setting"), "{error}");
        assert!(peer_axes().all(|axis| help.contains(axis.option)), "{help}");
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
