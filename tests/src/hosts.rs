//! Several hosts on this machine: network namespaces with an interface on a public network and one on a cluster network. Nothing of it is
//! in the machine's own namespace: the bridges that join the hosts are in a namespace of their own, too.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::OnceLock;
use std::time::Duration;

use carmine_testkit::{installed, skip};
use serde_json::Value;

use crate::{carmine_bin, kill_nine, run, succeed};

/// Longer than any command takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The networks of all hosts: how their addresses begin, and how `carmine` is told of them. No packet leaves the namespaces.
pub const PUBLIC: (&str, &str) = ("10.91.1.", "10.91.1.0/24");
pub const CLUSTER: (&str, &str) = ("10.91.2.", "10.91.2.0/24");

/// True if networks can be made here: this takes root.
#[must_use]
pub fn can_make_networks() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    let ip =
        |words: String| run(Path::new("ip"), &words.split(' ').collect::<Vec<_>>(), LIMIT).status.success();
    if !installed("ip", "iproute2") {
        return false;
    }
    let name = format!("cmt{}", std::process::id());
    let can =
        *CAN.get_or_init(|| ip(format!("link add {name} type bridge")) && ip(format!("link del {name}")));
    if !can {
        skip(format_args!("no networks can be made here: that takes root and bridges"));
    }
    can
}

/// The hosts; dropped, they are removed with all that runs in them.
pub struct Hosts {
    /// Begins the names of the namespaces.
    prefix: String,
    /// Files of the hosts, a folder each.
    root: PathBuf,
    names: Vec<&'static str>,
}

/// Runs `ip` with these words, which must succeed; its output.
fn ip(words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    succeed(run(Path::new("ip"), &words, LIMIT), &format!("ip {words:?}"))
}

impl Hosts {
    /// Makes hosts with these names; those of `only_public` have no interface on the cluster network.
    pub fn new(root: PathBuf, names: &[&'static str], only_public: &[&'static str]) -> Hosts {
        let prefix = format!("cmh{}", std::process::id());
        // Dropped also if one cannot be made.
        let mut hosts = Hosts { prefix, root, names: Vec::new() };
        let net = hosts.namespace("net");
        ip(&format!("netns add {net}"));
        for network in ["public", "cluster"] {
            ip(&format!("-n {net} link add {network} type bridge"));
            ip(&format!("-n {net} link set {network} up"));
        }
        for name in names.iter().chain(only_public) {
            hosts.names.push(name);
            let (host, last) = (hosts.namespace(name), hosts.names.len());
            ip(&format!("netns add {host}"));
            ip(&format!("-n {host} link set lo up"));
            for (network, (begin, _)) in [("public", PUBLIC), ("cluster", CLUSTER)] {
                if network == "cluster" && only_public.contains(name) {
                    continue;
                }
                let link = format!("{network}-{name}");
                ip(&format!("-n {net} link add {link} type veth peer name {network} netns {host}"));
                ip(&format!("-n {net} link set {link} master {network} up"));
                ip(&format!("-n {host} addr add {begin}{last}/24 dev {network}"));
                ip(&format!("-n {host} link set {network} up"));
            }
        }
        hosts
    }

    fn namespace(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// The folder of a host's testbed.
    pub fn dir(&self, host: &str) -> PathBuf {
        self.root.join(host)
    }

    /// Runs a program on a host.
    pub fn run(&self, host: &str, program: &str, args: &[&str]) -> Output {
        let net = format!("--net=/run/netns/{}", self.namespace(host));
        run(Path::new("nsenter"), &[&[&net, program], args].concat(), LIMIT)
    }

    /// Runs `carmine COMMAND --dir DIR WORDS` on a host, with the folder of that host.
    pub fn carmine(&self, host: &str, command: &str, words: &[&str]) -> Output {
        let (bin, dir) = (carmine_bin(), self.dir(host));
        let text = |path: &Path| path.to_str().expect("UTF-8").to_owned();
        let dir = text(&dir);
        self.run(host, &text(&bin), &[&[command, "--dir", &dir], words].concat())
    }

    /// Connects a host to one of the networks, or cuts it off, as pulling the cable at the switch does.
    pub fn set_link(&self, host: &str, network: &str, is_up: bool) {
        let (net, state) = (self.namespace("net"), if is_up { "up" } else { "down" });
        ip(&format!("-n {net} link set {network}-{host} {state}"));
    }

    /// Bytes that a host has sent on a network.
    pub fn sent_bytes(&self, host: &str, network: &str) -> u64 {
        let text = ip(&format!("-n {} -s -j link show {network}", self.namespace(host)));
        let shown: Value = serde_json::from_str(&text).expect("JSON of ip");
        shown[0]["stats64"]["tx"]["bytes"].as_u64().expect("a counter")
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Those that have joined go before the one with the monitor.
        for name in self.names.iter().rev() {
            if self.dir(name).exists() {
                let _ = self.carmine(name, "destroy", &["--yes-i-really-mean-it"]);
            }
        }
        for name in self.names.iter().copied().chain(["net"]) {
            let name = self.namespace(name);
            let pids = run(Path::new("ip"), &["netns", "pids", &name], LIMIT).stdout;
            let pids = String::from_utf8_lossy(&pids)
                .lines()
                .filter_map(|pid| pid.trim().parse().ok())
                .collect::<Vec<i32>>();
            kill_nine(&pids);
            let _ = run(Path::new("ip"), &["netns", "del", &name], LIMIT);
        }
    }
}
