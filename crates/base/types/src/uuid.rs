//! 128-bit identifiers (cluster fsid, OSD uuid).

use std::fmt;
use std::str::FromStr;

/// 16 raw bytes, printed in the usual 8-4-4-4-12 form.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// A version 4 (random) uuid out of 128 random bits. The randomness is the caller's.
    pub fn from_random(high: u64, low: u64) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }

    pub fn is_nil(&self) -> bool {
        self.0 == [0; 16]
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a uuid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadUuid(pub String);

impl fmt::Display for BadUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a uuid: expected 32 hex digits, with dashes as 8-4-4-4-12", self.0)
    }
}

impl std::error::Error for BadUuid {}

impl FromStr for Uuid {
    type Err = BadUuid;

    fn from_str(text: &str) -> Result<Uuid, BadUuid> {
        let bad = || BadUuid(text.to_owned());
        let dashes_ok = text.len() == 36 && [8, 13, 18, 23].iter().all(|&i| text.as_bytes()[i] == b'-');
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if !dashes_ok || digits.len() != 32 || !digits.bytes().all(|c| c.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u128::from_str_radix(&digits, 16).map(|n| Uuid(n.to_be_bytes())).map_err(|_| bad())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses() {
        let text = "b79dd65e-35b4-47de-95c3-97d67e42c11d";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.0[..4], [0xb7, 0x9d, 0xd6, 0x5e]);
        assert_eq!(uuid.to_string(), text);
        for bad in [
            "",
            "b79dd65e35b447de95c397d67e42c11d",
            "b79dd65e-35b4-47de-95c3-97d67e42c11",
            "ü79dd65e-35b4-47de-95c3-97d67e42c1",
        ] {
            assert!(bad.parse::<Uuid>().is_err(), "{bad}");
        }
    }

    #[test]
    fn random_ones_are_version_4() {
        let text = Uuid::from_random(u64::MAX, 0).to_string();
        assert_eq!(text, "ffffffff-ffff-4fff-8000-000000000000");
    }
}
