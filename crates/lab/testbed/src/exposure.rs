//! Daemons that other machines can reach. They listen on anything but loopback only if they let in none but who has a key
//! (`--auth cephx`), or if the user says so (`--insecure`).

use std::collections::BTreeSet;
use std::net::IpAddr;

use carmine_types::{AuthKind, MsMode};

use crate::error::{Result, refuse};
use crate::plan::Plan;

impl Plan {
    /// The addresses on which its daemons listen and which other machines may reach. Those of the testbed's own network
    /// namespaces are not among them: no network interface of the machine is at their bridge.
    fn exposed(&self) -> Option<String> {
        let all = [Some(self.addr.ip()), self.cluster_ip].into_iter().flatten();
        let all: BTreeSet<IpAddr> = all.filter(|ip| !self.namespaces && !ip.is_loopback()).collect();
        let all: Vec<String> = all.iter().map(ToString::to_string).collect();
        (!all.is_empty()).then(|| all.join(" and "))
    }

    /// Fails if daemons would listen where others reach them, and the user has not agreed to it.
    ///
    /// # Errors
    /// Names the addresses.
    pub fn refuse_exposure(&self) -> Result<()> {
        let exposed = self.exposed().filter(|_| !self.insecure && self.auth == AuthKind::None);
        refuse!(
            exposed.is_some(),
            "the daemons would listen on {}, where nothing is encrypted and nobody is authenticated: whoever gets there can read and \
             destroy all data. Take --auth cephx; if you trust all who can reach them, give `carmine up` or `carmine join` --insecure; \
             else take --addr 127.0.0.1",
            exposed.unwrap_or_default()
        );
        Ok(())
    }

    /// What the user should know before the daemons start; `None` if nobody else reaches them.
    pub fn exposure_warning(&self) -> Option<String> {
        let exposed = self.exposed()?;
        match (self.auth, self.ms_mode) {
            (AuthKind::None, _) => Some(format!(
                "--insecure: the daemons listen on {exposed}; nothing is encrypted and nobody is authenticated, so whoever gets there \
                 can read and destroy all data"
            )),
            (AuthKind::Cephx, MsMode::Crc) => Some(format!(
                "the daemons listen on {exposed}; nothing is encrypted, so whoever is between them and a client can read and change \
                 what they say; --ms-mode secure encrypts it"
            )),
            (AuthKind::Cephx, MsMode::Secure) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use carmine_topology::Topology;

    use super::*;
    use crate::Wish;

    #[test]
    fn other_machines_reach_a_daemon_only_if_the_user_agrees() {
        let made = |wish: Wish| Plan::new(&wish, &Topology::from_short("1x4x1").unwrap(), "f").unwrap();
        let plan = |addr: &str, insecure: bool, namespaces: bool| {
            let addr = Some(addr).filter(|addr| !addr.is_empty()).map(|addr| addr.parse().unwrap());
            made(Wish { addr, insecure: Some(insecure), namespaces: Some(namespaces), ..Wish::default() })
        };
        for safe in [plan("", false, false), plan("[::1]:0", false, false), plan("", false, true)] {
            assert!(safe.refuse_exposure().is_ok() && safe.exposure_warning().is_none(), "{}", safe.addr);
        }
        let error = plan("192.0.2.1:0", false, false).refuse_exposure().unwrap_err();
        assert!(error.is_usage(), "{error}");
        for part in ["192.0.2.1", "--insecure", "nothing is encrypted and nobody is authenticated"] {
            assert!(error.to_string().contains(part) && error.to_string().lines().count() == 1, "{error}");
        }
        let apart = Plan { cluster_ip: Some("192.0.2.9".parse().unwrap()), ..plan("", false, false) };
        assert!(apart.refuse_exposure().unwrap_err().to_string().contains("192.0.2.9"));
        let agreed = plan("192.0.2.1:0", true, false);
        assert!(agreed.refuse_exposure().is_ok() && agreed.exposure_warning().unwrap().contains("192.0.2.1"));
        let with_keys = |mode| {
            let addr = Some("192.0.2.1:0".parse().unwrap());
            made(Wish { addr, auth: Some(AuthKind::Cephx), ms_mode: Some(mode), ..Wish::default() })
        };
        let readable = with_keys(MsMode::Crc);
        assert!(readable.refuse_exposure().is_ok());
        assert!(readable.exposure_warning().unwrap().contains("nothing is encrypted"));
        let secure = with_keys(MsMode::Secure);
        assert!(secure.refuse_exposure().is_ok() && secure.exposure_warning().is_none());
    }
}
