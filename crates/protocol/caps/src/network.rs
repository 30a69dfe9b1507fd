//! Networks that a grant is limited to.

use std::fmt;
use std::net::IpAddr;

/// An address and a length. One that Ceph cannot read contains nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    text: String,
    parsed: Option<(IpAddr, u32)>,
}

impl Network {
    pub(crate) fn new(text: &str) -> Network {
        let parsed = text.split_once('/').and_then(|(addr, length)| {
            let is_number = !length.is_empty() && length.bytes().all(|c| c.is_ascii_digit());
            // A length beyond the address is the whole address.
            is_number.then(|| Some((addr.parse().ok()?, length.parse().unwrap_or(u32::MAX))))?
        });
        Network { text: text.to_owned(), parsed }
    }

    /// Whether an address is in it. An unknown address is in none.
    pub(crate) fn contains(&self, addr: Option<IpAddr>) -> bool {
        match (self.parsed, addr) {
            (Some((IpAddr::V4(net), length)), Some(IpAddr::V4(addr))) => {
                (net.to_bits() ^ addr.to_bits()).leading_zeros() >= length.min(32)
            }
            (Some((IpAddr::V6(net), length)), Some(IpAddr::V6(addr))) => {
                (net.to_bits() ^ addr.to_bits()).leading_zeros() >= length.min(128)
            }
            _ => false,
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_contains_what_shares_its_bits() {
        let is_in = |net: &str, addr: &str| Network::new(net).contains(addr.parse().ok());
        assert!(is_in("10.1.0.0/16", "10.1.2.3") && !is_in("10.1.0.0/16", "10.2.2.3"));
        assert!(is_in("10.1.2.3/32", "10.1.2.3") && !is_in("10.1.2.2/32", "10.1.2.3"));
        assert!(is_in("10.1.2.3/99999999999", "10.1.2.3") && !is_in("10.1.2.2/33", "10.1.2.3"));
        assert!(
            is_in("0.0.0.0/0", "10.1.2.3") && !is_in("0.0.0.0/0", "::1") && !is_in("0.0.0.0/0", "nobody")
        );
        assert!(is_in("fd00::/8", "fd01::1") && !is_in("fd00::/8", "fe80::1"));
        for nonsense in ["10.1.2.3", "10.1.2.3/", "10.1.2.3/8a", "/8", "[::1]/128", "a", ""] {
            assert!(!is_in(nonsense, "10.1.2.3") && !is_in(nonsense, "::1"), "{nonsense}");
        }
    }
}
