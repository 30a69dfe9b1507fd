//! Operations of several lengths: fio's `bssplit`.

use std::fmt;
use std::str::FromStr;

use fastrand::Rng;

use crate::pattern::draw_part;
use crate::spec::{BS_MAX, parse_bytes, show_bytes};

/// The lengths of a load's operations and how often each is drawn. Each length is a multiple of the shortest, which is the unit of
/// the load's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockSplit {
    reads: Vec<Part>,
    writes: Vec<Part>,
}

/// One length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bytes: u64,
    percent: u8,
}

impl BlockSplit {
    /// The shortest length, in bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.lengths().min().unwrap_or(1)
    }

    /// The longest length, in bytes.
    pub fn longest_bytes(&self) -> u64 {
        self.lengths().max().unwrap_or(1)
    }

    /// The mean length of reads or of writes, in bytes.
    pub fn mean_bytes(&self, read: bool) -> f64 {
        self.parts(read).iter().map(|part| part.bytes as f64 * f64::from(part.percent) / 100.0).sum()
    }

    /// The mean length of reads or of writes, in their shortest.
    pub(crate) fn mean_in_shortest(&self, read: bool) -> f64 {
        let shortest = self.parts(read).iter().map(|part| part.bytes).min();
        self.mean_bytes(read) / shortest.unwrap_or(1) as f64
    }

    /// Length of the next operation, in bytes.
    pub(crate) fn draw(&self, read: bool, rng: &mut Rng) -> u64 {
        let parts = self.parts(read);
        parts[draw_part(parts.iter().map(|part| part.percent), rng)].bytes
    }

    fn parts(&self, read: bool) -> &[Part] {
        if read { &self.reads } else { &self.writes }
    }

    fn lengths(&self) -> impl Iterator<Item = u64> {
        self.reads.iter().chain(&self.writes).map(|part| part.bytes)
    }
}

impl FromStr for BlockSplit {
    type Err = String;

    fn from_str(text: &str) -> Result<BlockSplit, String> {
        let wrong = |why: &str| {
            format!("`{text}`: {why}; write lengths as 4k/60:64k/40, or reads,writes as 4k/100,64k/100")
        };
        let lists: Vec<Vec<Part>> =
            text.split(',').map(list).collect::<Result<_, _>>().map_err(|why| wrong(&why))?;
        let (reads, writes) = match lists.as_slice() {
            [both] => (both.clone(), both.clone()),
            [reads, writes] => (reads.clone(), writes.clone()),
            _ => return Err(wrong("there are only reads and writes")),
        };
        let split = BlockSplit { reads, writes };
        let unit = split.unit_bytes();
        let odd = split.lengths().find(|bytes| !bytes.is_multiple_of(unit));
        let odd = odd.map(|bytes| wrong(&format!("{bytes} bytes is not a multiple of the shortest, {unit}")));
        odd.map_or(Ok(split), Err)
    }
}

/// The lengths in `4k/60:64k/40`.
fn list(text: &str) -> Result<Vec<Part>, String> {
    let part = |text: &str| {
        let (bytes, percent) = text.split_once('/').ok_or("each length needs its percentage")?;
        let bytes = parse_bytes(bytes)?;
        if !(1..=BS_MAX).contains(&bytes) {
            return Err(format!("{bytes} bytes is not 1 byte to 16 MiB"));
        }
        let percent = percent.parse().map_err(|_| format!("`{percent}` is no whole percentage"))?;
        Ok(Part { bytes, percent })
    };
    let parts: Vec<Part> = text.split(':').map(part).collect::<Result<_, String>>()?;
    let sum: u32 = parts.iter().map(|part| u32::from(part.percent)).sum();
    if sum == 100 { Ok(parts) } else { Err(format!("the percentages add up to {sum}, not to 100")) }
}

impl fmt::Display for BlockSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |parts: &[Part]| {
            let parts = parts.iter().map(|part| format!("{}/{}", show_bytes(part.bytes), part.percent));
            parts.collect::<Vec<_>>().join(":")
        };
        f.write_str(&list(&self.reads))?;
        if self.writes == self.reads { Ok(()) } else { write!(f, ",{}", list(&self.writes)) }
    }
}

carmine_types::as_text!(BlockSplit);

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    #[test]
    fn lists_are_fios() {
        let split: BlockSplit = "4k/60:64k/40".parse().unwrap();
        assert_eq!(
            (split.unit_bytes(), split.longest_bytes(), split.to_string()),
            (4096, 65536, "4k/60:64k/40".into())
        );
        assert!((split.mean_bytes(true) - (0.6 * 4096.0 + 0.4 * 65536.0)).abs() < 1e-6);
        let split: BlockSplit = "8k/100,4k/50:16k/50".parse().unwrap();
        assert_eq!((split.mean_bytes(true), split.mean_bytes(false)), (8192.0, 10240.0));
        assert_eq!((split.unit_bytes(), split.to_string()), (4096, "8k/100,4k/50:16k/50".into()));
        assert_eq!((split.mean_in_shortest(true), split.mean_in_shortest(false)), (1.0, 2.5));
    }

    #[test]
    fn other_values_are_named_with_what_is_accepted() {
        for (text, part) in [
            ("", "percentage"),
            ("4k", "percentage"),
            ("4k/60:64k", "percentage"),
            ("4k/60:64k/", "whole percentage"),
            ("4k/60:64k/30", "add up to 90"),
            ("4q/100", "unknown unit"),
            ("0/100", "16 MiB"),
            ("32m/100", "16 MiB"),
            ("4k/50:6k/50", "6144 bytes is not a multiple"),
            ("4k/100,8k/100,8k/100", "only reads and writes"),
        ] {
            let error = text.parse::<BlockSplit>().unwrap_err();
            assert!(error.contains(part) && error.contains("4k/60:64k/40"), "{text}: {error}");
        }
    }

    #[test]
    fn lengths_come_as_often_as_they_should() {
        let split: BlockSplit = "4k/60:64k/40,8k/100".parse().unwrap();
        let mut rng = Rng::with_seed(1);
        let long = (0..100_000).filter(|_| split.draw(true, &mut rng) == 65536).count();
        assert!((39_000..41_000).contains(&long), "{long}");
        assert!((0..1000).all(|_| split.draw(false, &mut rng) == 8192));
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_or_refused(text in "([0-9]{0,3}[km]?/(100|50|[0-9]{0,2})[:,]?){0,4}") {
            if let Ok(split) = text.parse::<BlockSplit>() {
                prop_assert_eq!(split.to_string().parse(), Ok(split));
            }
        }
    }
}
