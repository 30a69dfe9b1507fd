//! The addresses on which daemons listen, where the user names networks in place of addresses (`--public-network`, `--cluster-network`).

use std::net::IpAddr;

use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;

use crate::error::{Result, failed, refuse, usage};
use crate::plan::Plan;
use crate::spec::{TestbedSpec, Wish};

impl TestbedSpec {
    /// Finds this machine's addresses in the networks that are named: it takes over the one in the public network, and returns the one
    /// in the cluster network. Nothing is looked up for a machine that is only described (`is_live` is false).
    ///
    /// # Errors
    /// No network interface has such an address, or another option contradicts.
    pub(crate) fn settle_addresses(&mut self, wish: &Wish, is_live: bool) -> Result<Option<IpAddr>> {
        let (public, cluster) = (&self.public_network, &self.cluster_network);
        refuse!(
            self.namespaces && !(public.is_empty() && cluster.is_empty()),
            "--namespaces: each daemon has an address of its own, so leave --public-network and --cluster-network out"
        );
        if let Some(addr) = wish.addr.filter(|addr| !public.is_empty() && !is_in(public, addr.ip())) {
            let (networks, ip) = (list(public), addr.ip());
            return Err(usage!(
                "--addr {ip}: it is not in --public-network {networks}; leave one of them out"
            ));
        }
        if !is_live || (public.is_empty() && cluster.is_empty()) {
            return Ok(None);
        }
        let own = own_addresses()?;
        if !public.is_empty() && wish.addr.is_none() {
            self.addr.set_ip(pick("--public-network", public, &own, Some(self.addr.ip()))?);
        }
        (!cluster.is_empty()).then(|| pick("--cluster-network", cluster, &own, None)).transpose()
    }
}

impl Plan {
    /// The lines of `ceph.conf` about heartbeats, which must be the same on all hosts.
    pub(crate) fn heartbeats(&self) -> String {
        let (grace, interval) = (self.osd_heartbeat_grace_s, self.osd_heartbeat_interval_s);
        format!("osd heartbeat grace = {grace}\nosd heartbeat interval = {interval}\n")
    }

    /// The networks that are named, by the names of Ceph's options.
    pub(crate) fn networks(&self) -> impl Iterator<Item = (&'static str, String)> {
        let named = [("public_network", &self.public_network), ("cluster_network", &self.cluster_network)];
        named.into_iter().filter(|(_, all)| !all.is_empty()).map(|(name, all)| (name, list(all)))
    }
}

fn is_in(networks: &[IpNet], ip: IpAddr) -> bool {
    networks.iter().any(|network| network.contains(&ip))
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// The addresses of this machine's interfaces, or of those of the network namespace in which this process runs. An address that is of use
/// only with the name of an interface is left out.
fn own_addresses() -> Result<Vec<IpAddr>> {
    let interfaces = getifaddrs().map_err(|e| failed!("cannot list the addresses of this machine: {e}"))?;
    let addrs = interfaces.filter_map(|interface| {
        let addr = interface.address?;
        let v4 = addr.as_sockaddr_in().map(|addr| IpAddr::from(addr.ip()));
        v4.or_else(|| addr.as_sockaddr_in6().map(|addr| addr.ip().into()))
    });
    let is_whole = |addr: &IpAddr| !matches!(addr, IpAddr::V6(addr) if addr.is_unicast_link_local());
    Ok(addrs.filter(is_whole).collect())
}

/// The address of this machine in one of the networks: the one that it had, if there are several.
fn pick(option: &str, networks: &[IpNet], own: &[IpAddr], before: Option<IpAddr>) -> Result<IpAddr> {
    let mut fit = own.iter().copied().filter(|ip| is_in(networks, *ip));
    let kept = before.filter(|before| fit.clone().any(|ip| ip == *before));
    kept.or_else(|| fit.next()).ok_or_else(|| {
        usage!(
            "{option} {}: no network interface of this machine has an address in it; it has {}",
            list(networks),
            list(own)
        )
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn networks(text: &str) -> Vec<IpNet> {
        text.split(',').map(|network| network.parse().unwrap()).collect()
    }

    #[test]
    fn an_address_of_this_machine_is_taken_from_the_network() {
        let own = ["127.0.0.1", "10.0.0.7", "10.0.1.7", "10.0.1.8", "fd00::7"].map(|ip| ip.parse().unwrap());
        let of = |text: &str, before: Option<&str>| {
            pick("--public-network", &networks(text), &own, before.map(|ip| ip.parse().unwrap()))
                .map(|ip| ip.to_string())
        };
        assert_eq!(of("10.0.1.0/24", None).unwrap(), "10.0.1.7");
        assert_eq!(of("10.0.1.0/24", Some("10.0.1.8")).unwrap(), "10.0.1.8", "it stays");
        assert_eq!(of("10.0.1.0/24", Some("10.0.1.9")).unwrap(), "10.0.1.7", "it is not there any more");
        assert_eq!(of("192.0.2.0/24,fd00::/64", None).unwrap(), "fd00::7");
        let error = of("192.0.2.0/24", None).unwrap_err();
        assert!(error.is_usage(), "{error}");
        for part in ["--public-network 192.0.2.0/24", "10.0.0.7"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn options_must_not_contradict() {
        let settle = |mut spec: TestbedSpec, wish: &Wish| spec.settle_addresses(wish, true);
        let public = TestbedSpec { public_network: networks("127.0.0.0/8"), ..TestbedSpec::default() };
        let at = |addr: &str| Wish { addr: Some(addr.parse().unwrap()), ..Wish::default() };
        assert_eq!(settle(public.clone(), &at("127.0.0.1:0")).unwrap(), None);
        let error = settle(public, &at("192.0.2.1:0")).unwrap_err().to_string();
        assert!(error.contains("--addr 192.0.2.1"), "{error}");
        let own = TestbedSpec { cluster_network: networks("127.0.0.0/8"), ..TestbedSpec::default() };
        assert_eq!(settle(own.clone(), &Wish::default()).unwrap(), Some(Ipv4Addr::LOCALHOST.into()));
        let error =
            settle(TestbedSpec { namespaces: true, ..own }, &Wish::default()).unwrap_err().to_string();
        assert!(error.contains("--namespaces"), "{error}");
        assert_eq!(settle(TestbedSpec::default(), &at("192.0.2.1:0")).unwrap(), None);
    }
}
