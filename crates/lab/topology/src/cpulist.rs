//! CPU lists as Linux and taskset write them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A topology that cannot be read, or a plan that does not fit it. The message names the value and what to change.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TopologyError(pub(crate) String);

macro_rules! wrong {
    ($($text:tt)*) => { $crate::TopologyError(format!($($text)*)) };
}
/// Returns with an error if the condition holds.
macro_rules! refuse {
    ($broken:expr, $($why:tt)*) => {
        if $broken {
            return Err($crate::cpulist::wrong!($($why)*));
        }
    };
}
pub(crate) use {refuse, wrong};

/// The highest CPU number that is accepted: a typing error must not allocate gigabytes.
pub(crate) const CPU_NUMBER_MAX: usize = 65_535;

/// A set of CPU numbers, shown and serialised in Linux's list form (`0-3,8`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(BTreeSet<usize>);

impl CpuList {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().copied()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cpu: usize) -> bool {
        self.0.contains(&cpu)
    }

    /// CPUs in both lists.
    pub fn intersection(&self, other: &CpuList) -> CpuList {
        CpuList(&self.0 & &other.0)
    }

    /// CPUs of this list that are not in `other`.
    pub fn difference(&self, other: &CpuList) -> CpuList {
        CpuList(&self.0 - &other.0)
    }

    /// CPUs in either list.
    pub fn union(&self, other: &CpuList) -> CpuList {
        CpuList(&self.0 | &other.0)
    }

    /// The CPUs as a vector, ascending, as `carmine_reactor::Config` takes them.
    pub fn to_vec(&self) -> Vec<usize> {
        self.iter().collect()
    }
}

impl FromIterator<usize> for CpuList {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        CpuList(cpus.into_iter().collect())
    }
}

impl FromStr for CpuList {
    type Err = TopologyError;

    /// Parses `0-3,8`. Blanks around parts are allowed; an empty text is the empty list (as sysfs has it).
    fn from_str(text: &str) -> Result<Self, TopologyError> {
        let bad = |why: String| wrong!("CPU list `{}`: {why}; write it as in 0-3,8", text.trim());
        let number = |digits: &str| match digits.trim().parse::<usize>() {
            Err(_) => Err(bad(format!("`{digits}` is not a number"))),
            Ok(cpu) if cpu > CPU_NUMBER_MAX => Err(bad(format!("CPU {cpu} is above {CPU_NUMBER_MAX}"))),
            Ok(cpu) => Ok(cpu),
        };
        let mut cpus = BTreeSet::new();
        for part in text.trim().split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(bad(format!("{first} is above {last}")));
            }
            cpus.extend(first..=last);
        }
        Ok(CpuList(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let run = |run: &[usize]| match run {
            [first, .., last] => format!("{first}-{last}"),
            one => one.iter().map(usize::to_string).collect(),
        };
        let cpus = self.to_vec();
        f.write_str(&cpus.chunk_by(|cpu, next| cpu + 1 == *next).map(run).collect::<Vec<_>>().join(","))
    }
}

carmine_types::as_text!(CpuList);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn parses_and_prints_linux_lists() {
        let list: CpuList = " 0-3, 8,10-10\n".parse().unwrap();
        assert_eq!(list.to_vec(), [0, 1, 2, 3, 8, 10]);
        assert_eq!(list.to_string(), "0-3,8,10");
        assert!("".parse::<CpuList>().unwrap().is_empty());
    }

    #[test]
    fn names_what_is_wrong() {
        for (text, part) in
            [("0-x", "`x`"), ("4-2", "4 is above 2"), ("99999999", "99999999"), ("1-2-3", "`2-3`")]
        {
            let error = text.parse::<CpuList>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(text), "{error}");
        }
    }

    proptest! {
        #[test]
        fn round_trips(cpus in proptest::collection::btree_set(0usize..300, 0..80)) {
            let list: CpuList = cpus.iter().copied().collect();
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn never_panics(text in ".{0,40}") {
            let _ = text.parse::<CpuList>();
        }
    }
}
