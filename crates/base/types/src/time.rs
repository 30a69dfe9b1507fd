//! Wall-clock time as Ceph writes it.

use std::fmt;
use std::time::Duration;

/// Seconds and nanoseconds since 1970. Wraps in 2106, as Ceph's does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UTime {
    pub sec: u32,
    /// Below 10^9 when we make it; a peer may send anything.
    pub nsec: u32,
}

impl UTime {
    pub const ZERO: UTime = UTime { sec: 0, nsec: 0 };

    /// From the time since 1970; seconds beyond 32 bits are cut off.
    pub fn from_unix(since_1970: Duration) -> UTime {
        UTime { sec: since_1970.as_secs() as u32, nsec: since_1970.subsec_nanos() }
    }

    /// The time since 1970.
    pub fn to_unix(self) -> Duration {
        Duration::from_secs(self.sec.into()) + Duration::from_nanos(self.nsec.into())
    }
}

impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_both_ways() {
        let time = Duration::new(1_795_000_000, 987_654_321);
        assert_eq!(UTime::from_unix(time).to_unix(), time);
        assert_eq!(UTime { sec: 7, nsec: 5 }.to_string(), "7.000000005");
        assert_eq!(UTime { sec: 1, nsec: u32::MAX }.to_unix(), Duration::new(5, 294_967_295));
    }
}
