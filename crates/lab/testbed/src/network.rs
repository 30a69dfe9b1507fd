//! Networks of the daemons (`--namespaces`): each OSD and each real monitor has a network namespace and an address of its own. A bridge joins
//! them; clients and all other processes are at its end in the machine's own namespace. A daemon is cut off by setting its link down.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use carmine_types::{MonKind, OsdId};
use fs_err::{self as fs, File};
use nix::sched::{CloneFlags, setns};

use crate::error::{Result, TestbedError, failed, refuse, usage};
use crate::files;
use crate::folder::Testbed;
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
use crate::relay;
use crate::spec::TestbedSpec;

/// Named namespaces, as `ip netns` has them.
const NAMESPACES: &str = "/run/netns";
/// The machine's network interfaces.
const INTERFACES: &str = "/sys/class/net";
/// The last byte of the addresses: of the first monitor, of the first OSD, and of the bridge.
const FIRST_MON: u8 = 1;
const FIRST_OSD: u8 = 10;
const BRIDGE: u8 = 254;
/// OSDs that have an address.
pub(crate) const OSDS_MAX: u32 = (BRIDGE - FIRST_OSD) as u32;

/// MTUs that can be asked for, and the kernel's own: every host takes packets of 576 bytes, and no IP packet is longer than the last.
const MTU_MIN_BYTES: u64 = 576;
const MTU_MAX_BYTES: u64 = 65_535;
const MTU_DEFAULT_BYTES: u64 = 1500;

/// Rates that can be asked for: a packet of 64K takes a second at the least, and above the greatest a token bucket limits nothing any more.
const RATE_MIN_BYTES_PER_S: u64 = 64 << 10;
const RATE_MAX_BYTES_PER_S: u64 = 100 << 30;
/// Parts of a second in which a link may be ahead of its rate, and in which what waits for it is sent; more is dropped.
const BURST_PARTS: u64 = 200;
const QUEUE_PARTS: u64 = 20;
/// The least for both: a few of the largest packets.
const BURST_MIN_BYTES: u64 = 128 << 10;
const QUEUE_MIN_BYTES: u64 = 256 << 10;

/// The names and addresses of one testbed's network, which follow from the cluster's id.
struct Network<'a>(&'a Plan);

impl Network<'_> {
    /// Begins all names; an interface has 15 characters.
    fn prefix(&self) -> String {
        format!("cm{}", self.0.fsid.get(..6).unwrap_or_default())
    }

    /// An address of 198.18.0.0/15, which is for tests of networks and is used nowhere else.
    fn addr(&self, last: u8) -> Ipv4Addr {
        let number = u16::from_str_radix(self.0.fsid.get(..4).unwrap_or_default(), 16).unwrap_or(0);
        let [high, low] = number.to_be_bytes();
        Ipv4Addr::new(198, 18 + high % 2, low, last)
    }

    /// The last byte of a daemon's own address; none for a daemon in the machine's own namespace.
    fn last_byte(&self, daemon: Daemon) -> Option<u8> {
        match daemon {
            Daemon::Osd(OsdId(osd)) => Some(FIRST_OSD + u8::try_from(osd).ok()?),
            Daemon::Mon(mon) if self.0.mon == MonKind::Ceph => Some(FIRST_MON + mon),
            Daemon::Mon(_) | Daemon::Mgr => None,
        }
    }

    fn namespace(&self, daemon: Daemon) -> String {
        format!("{}-{daemon}", self.prefix())
    }

    /// The end of a daemon's link at the bridge.
    fn link(&self, last: u8) -> String {
        format!("{}-{last}", self.prefix())
    }

    /// The namespace of the relays.
    fn relays(&self) -> String {
        format!("{}-relay", self.prefix())
    }

    /// The relay's interfaces of a link that has one: towards the bridge, and towards the daemon.
    fn relay_ends(&self, daemon: Daemon, last: u8) -> Option<[String; 2]> {
        let is_delayed = matches!(daemon, Daemon::Osd(_)) && self.0.net_delay_us > 0;
        is_delayed.then(|| [format!("outer{last}"), format!("inner{last}")])
    }

    /// Makes the two halves of a link between which a relay is.
    fn add_relayed(&self, name: &str, link: &str, [outer, inner]: &[String; 2]) -> Result<()> {
        let relays = self.relays();
        if !Path::new(NAMESPACES).join(&relays).exists() {
            ip(&format!("netns add {relays}"))?;
        }
        ip(&format!("link add {link} type veth peer name {outer} netns {relays}"))?;
        ip(&format!("-n {relays} link add {inner} type veth peer name eth0 netns {name}"))?;
        for end in [outer, inner] {
            self.size_packets(&format!("-n {relays} link set {end}"))?;
            ip(&format!("-n {relays} link set {end} up"))?;
        }
        Ok(())
    }

    /// Makes a daemon's namespace with its link, unless it is there.
    fn add(&self, daemon: Daemon, last: u8) -> Result<PathBuf> {
        let (name, link, bridge) = (self.namespace(daemon), self.link(last), self.prefix());
        let path = Path::new(NAMESPACES).join(&name);
        if !path.exists() {
            ip(&format!("netns add {name}"))?;
            match self.relay_ends(daemon, last) {
                None => ip(&format!("link add {link} type veth peer name eth0 netns {name}"))?,
                Some(ends) => self.add_relayed(&name, &link, &ends)?,
            }
            ip(&format!("link set {link} master {bridge}"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", self.addr(last)))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        self.size_packets(&format!("-n {name} link set eth0"))?;
        self.size_packets(&format!("link set {link}"))?;
        self.size_packets(&format!("link set {bridge}"))?;
        if let (Daemon::Osd(_), rate @ 1..) = (daemon, self.0.net_rate_bytes_per_second) {
            limit_rate(&format!("-n {name}"), "eth0", rate)?;
            limit_rate("", &link, rate)?;
        }
        ip(&format!("link set {link} up"))?;
        Ok(path)
    }

    /// Gives a link, by the words of `ip` that change it, its MTU. TCP makes packets of many segments, which such links pass on whole: where
    /// an MTU is asked for, one segment is the most.
    fn size_packets(&self, words: &str) -> Result<()> {
        let (mtu, segments) = match self.0.net_mtu_bytes {
            0 => (MTU_DEFAULT_BYTES, u64::from(u16::MAX)),
            mtu => (mtu, 1),
        };
        ip(&format!("{words} mtu {mtu} gso_max_segs {segments}"))
    }
}

impl TestbedSpec {
    /// Fails if the networks of `--namespaces` cannot be as asked for.
    pub(crate) fn check_network(&self) -> Result<()> {
        let mtu = self.net_mtu_bytes;
        let is_possible = mtu == 0 || (MTU_MIN_BYTES..=MTU_MAX_BYTES).contains(&mtu);
        refuse!(
            !is_possible,
            "--net-mtu {mtu}: take {MTU_MIN_BYTES} to {MTU_MAX_BYTES}, or 0 for the kernel's"
        );
        let rate = self.net_rate_bytes_per_second;
        let is_possible = rate == 0 || (RATE_MIN_BYTES_PER_S..=RATE_MAX_BYTES_PER_S).contains(&rate);
        refuse!(!is_possible, "--net-rate {rate}: take 64k to 100g bytes in a second, or 0 for no limit");
        let delay = self.net_delay_us.into();
        for (option, value) in [("--net-mtu", mtu), ("--net-delay-us", delay), ("--net-rate", rate)] {
            let is_alone = value > 0 && !self.namespaces;
            refuse!(is_alone, "{option} {value}: only links of --namespaces have it; add that");
        }
        Ok(())
    }
}

impl Plan {
    /// The address of a daemon.
    pub fn ip_of(&self, daemon: Daemon) -> IpAddr {
        let network = Network(self);
        match network.last_byte(daemon) {
            _ if !self.namespaces => self.addr.ip(),
            last => network.addr(last.unwrap_or(BRIDGE)).into(),
        }
    }
}

/// Makes the bridge of a testbed that has namespaces, before its daemons start.
///
/// # Errors
/// A usage error that says what it takes.
pub(crate) fn prepare(layout: &Layout, plan: &Plan) -> Result<()> {
    remove(layout)?;
    if !plan.namespaces {
        return Ok(());
    }
    let (network, ip_of_bridge) = (Network(plan), plan.ip_of(Daemon::Mgr));
    let bridge = network.prefix();
    files::write_whole(&layout.network_file(), bridge.as_bytes())?;
    let made = ip(&format!("link add {bridge} type bridge"))
        .and_then(|()| ip(&format!("addr add {ip_of_bridge}/24 dev {bridge}")))
        .and_then(|()| ip(&format!("link set {bridge} up")));
    made.map_err(|e| {
        usage!("--namespaces: this takes root, the program `ip`, and a kernel with bridges and veth: {e}")
    })
}

/// Removes the namespaces and the bridge of a testbed whose daemons have ended.
///
/// # Errors
/// `ip` fails.
pub(crate) fn remove(layout: &Layout) -> Result<()> {
    let Ok(prefix) = fs::read_to_string(layout.network_file()) else { return Ok(()) };
    relay::stop_all(layout)?;
    let below = |folder: &str| {
        let names = fs::read_dir(folder).into_iter().flatten().flatten();
        let names = names.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name.starts_with(&prefix)).collect::<Vec<_>>()
    };
    // A link vanishes with its other end at once, but only some time after its namespace.
    below(INTERFACES).iter().try_for_each(|link| ip(&format!("link del {link}")))?;
    below(NAMESPACES).iter().try_for_each(|name| ip(&format!("netns del {name}")))?;
    files::remove_file(&layout.network_file())
}

/// Runs `start`, which starts a daemon, where that daemon's network is.
///
/// # Errors
/// Those of `start`, or its namespace cannot be made or entered.
pub(crate) fn within<R: Send>(
    plan: &Plan,
    daemon: Daemon,
    start: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let network = Network(plan);
    let Some(last) = network.last_byte(daemon).filter(|_| plan.namespaces) else { return start() };
    inside(&network.add(daemon, last)?, start)
}

/// Runs `start`, which starts the relay of a daemon, where its ends of the daemon's link are.
///
/// # Errors
/// As of [`within`].
pub(crate) fn within_relay<R: Send>(
    plan: &Plan,
    daemon: Daemon,
    start: impl FnOnce() -> Result<R> + Send,
) -> Result<R> {
    let network = Network(plan);
    let last = network.last_byte(daemon).ok_or_else(|| failed!("{daemon} has no network namespace"))?;
    network.add(daemon, last)?;
    inside(&Path::new(NAMESPACES).join(network.relays()), start)
}

/// The interfaces of an OSD's relay.
///
/// # Errors
/// Its link has none.
pub(crate) fn relay_ends(plan: &Plan, osd: OsdId) -> Result<[String; 2]> {
    let (network, daemon) = (Network(plan), Daemon::Osd(osd));
    let ends = network.last_byte(daemon).and_then(|last| network.relay_ends(daemon, last));
    ends.ok_or_else(|| failed!("the link of {osd} has no delay"))
}

/// Runs `start` in a namespace.
fn inside<R: Send>(namespace: &Path, start: impl FnOnce() -> Result<R> + Send) -> Result<R> {
    let file = File::open(namespace)?;
    // A child begins in the namespace of the thread that starts it.
    let enter_and_start = || {
        setns(&file, CloneFlags::CLONE_NEWNET)
            .map_err(|e| failed!("cannot enter the network namespace {}: {e}", namespace.display()))?;
        start()
    };
    std::thread::scope(|scope| scope.spawn(enter_and_start).join())
        .unwrap_or_else(|_| Err(failed!("the thread that starts a process has died")))
}

impl Testbed {
    /// Cuts a daemon that has a namespace off from all others, or ends that.
    ///
    /// # Errors
    /// It has none, or `ip` fails.
    pub fn set_link(&self, daemon: Daemon, is_up: bool) -> Result<()> {
        let network = Network(&self.plan);
        let last = network.last_byte(daemon).filter(|_| self.plan.namespaces);
        let last = last.ok_or_else(|| failed!("{daemon} has no network namespace"))?;
        ip(&format!("link set {} {}", network.link(last), if is_up { "up" } else { "down" }))
    }
}

/// Limits what goes out at an interface; `place` are the words of `tc` for its namespace.
fn limit_rate(place: &str, interface: &str, bytes_per_s: u64) -> Result<()> {
    let burst = (bytes_per_s / BURST_PARTS).max(BURST_MIN_BYTES);
    let queue = (bytes_per_s / QUEUE_PARTS).max(QUEUE_MIN_BYTES) + burst;
    // For `tc`, bps are bytes in a second, and numbers without a unit are bytes.
    let bucket = format!("tbf rate {bytes_per_s}bps burst {burst} limit {queue}");
    command("tc", &format!("{place} qdisc replace dev {interface} root {bucket}"))
        .map_err(|e| usage!("--net-rate: this takes the program `tc`, and a kernel with sch_tbf: {e}"))
}

/// Runs `ip` with these words.
fn ip(words: &str) -> Result<()> {
    command("ip", words)
}

/// Runs a program of iproute2 with these words.
fn command(program: &str, words: &str) -> Result<()> {
    let ran = Command::new(program).args(words.split_whitespace()).output();
    let out = ran.map_err(|e| failed!("cannot run `{program}`: {e}"))?;
    let said = String::from_utf8_lossy(&out.stderr).trim().to_owned();
    if out.status.success() {
        Ok(())
    } else {
        Err(TestbedError::Failed(format!("`{program} {words}`: {said}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Wish;
    use carmine_topology::Topology;

    #[test]
    fn each_daemon_has_an_address_and_a_short_name() {
        let wish = Wish {
            osds: Some(OSDS_MAX),
            namespaces: Some(true),
            overprovisioned: Some(true),
            mon: Some(MonKind::Ceph),
            mons: Some(3),
            ..Wish::default()
        };
        let topology = Topology::from_short("1x4x1").unwrap();
        let plan = Plan::new(&wish, &topology, "ab12cd34-0000-4000-8000-000000000000").unwrap();
        let last = OsdId(OSDS_MAX - 1);
        let ips = [Daemon::Mgr, Daemon::Mon(2), Daemon::Osd(OsdId(0)), Daemon::Osd(last)];
        let ips = ips.map(|daemon| plan.ip_of(daemon).to_string());
        assert_eq!(ips, ["198.19.18.254", "198.19.18.3", "198.19.18.10", "198.19.18.253"]);
        assert!(Network(&plan).link(253).len() <= 15);
        let many = Wish { osds: Some(OSDS_MAX + 1), ..wish.clone() };
        assert!(Plan::new(&many, &topology, "f").unwrap_err().to_string().contains("--namespaces"));
        let plain = Wish { namespaces: None, ..wish };
        assert!(Plan::new(&plain, &topology, "f").unwrap().ip_of(Daemon::Mon(1)).is_loopback());
    }

    #[test]
    fn what_networks_cannot_be_is_refused() {
        let check = |words: &str| {
            let wish = Wish::from_words(words.split(' ').map(str::to_owned)).unwrap();
            let mut spec = TestbedSpec::default();
            spec.apply(&wish);
            spec.check_network().map_err(|e| e.to_string()).err().unwrap_or_default()
        };
        assert_eq!(check("--namespaces --net-mtu 9000"), "");
        assert!(check("--net-mtu 9000").contains("add that"));
        assert!(check("--namespaces --net-mtu 500").contains("576"));
        assert!(check("--namespaces --net-mtu 64k").contains("65535"));
        assert_eq!(check("--net-mtu 0 --net-rate 0"), "");
        assert_eq!(check("--namespaces --net-rate 100m"), "");
        assert!(check("--net-rate 1g").contains("add that"));
        assert!(check("--namespaces --net-rate 1k").contains("64k"));
    }
}
