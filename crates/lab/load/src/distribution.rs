//! How often a random load touches each block: fio's words for its option `random_distribution`.

use std::fmt;
use std::str::FromStr;

/// Zipf's exponent, at most: above it a single block gets nearly everything.
const THETA_MAX: f64 = 10.0;

/// The popularity of a load's blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// All blocks are equally popular.
    #[default]
    Random,
    /// The n-th most popular block gets 1/n^theta of what the first gets.
    Zipf(f64),
    /// Self-similar: the part `h` of the blocks gets the part `1 - h` of the operations, and the same holds within that part.
    Pareto(f64),
    /// Popularity falls off as a normal distribution, whose standard deviation is this percentage of the blocks.
    Normal(f64),
    /// Neighbouring parts of the data, from its beginning, each with a share of the operations. Percentages add up to 100.
    Zoned(Vec<Zone>),
}

/// A part of the data within which all blocks are equally popular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Percentage of the operations.
    pub ops_percent: u8,
    /// Percentage of the blocks.
    pub blocks_percent: u8,
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Distribution, String> {
        let (word, given) = text.split_once(':').unwrap_or((text, ""));
        let number = |is_valid: fn(f64) -> bool, takes: &str| {
            let number = given.parse().ok().filter(|number| is_valid(*number));
            number.ok_or_else(|| format!("`{text}`: {takes}; a centre (a second number) is not supported"))
        };
        match word {
            "random" if text == word => Ok(Distribution::Random),
            "zipf" => {
                let is_theta = |theta| theta > 0.0 && theta <= THETA_MAX && theta != 1.0;
                let takes = "zipf takes a theta above 0, up to 10, but not 1, as in zipf:1.2";
                number(is_theta, takes).map(Distribution::Zipf)
            }
            "pareto" => {
                let takes =
                    "pareto takes a number between 0 and 1, as in pareto:0.2 (20 % of the blocks get 80 %)";
                number(|h| h > 0.0 && h < 1.0, takes).map(Distribution::Pareto)
            }
            "normal" => {
                let takes = "normal takes a deviation above 0 and below 100 percent, as in normal:10";
                number(|percent| percent > 0.0 && percent < 100.0, takes).map(Distribution::Normal)
            }
            "zoned" => zones(given).map(Distribution::Zoned).map_err(|why| format!("`{text}`: {why}")),
            _ => Err(format!(
                "`{text}` is no distribution; take random, zipf:THETA, pareto:H, normal:DEVIATION or zoned:OPS/SIZE:OPS/SIZE..."
            )),
        }
    }
}

/// The zones in `60/10:40/90`.
fn zones(text: &str) -> Result<Vec<Zone>, String> {
    let percent = |text: &str| text.parse().ok().filter(|percent| (1..=100).contains(percent));
    let zone = |text: &str| {
        let (ops, blocks) = text.split_once('/')?;
        Some(Zone { ops_percent: percent(ops)?, blocks_percent: percent(blocks)? })
    };
    let zones: Option<Vec<Zone>> = text.split(':').map(zone).collect();
    let sum = |part: fn(&Zone) -> u8| zones.iter().flatten().map(|zone| u32::from(part(zone))).sum::<u32>();
    if (sum(|zone| zone.ops_percent), sum(|zone| zone.blocks_percent)) != (100, 100) {
        return Err(
            "zones are OPS/SIZE, whole percentages from 1 on that each add up to 100, as in zoned:60/10:40/90; reads and \
             writes have the same"
                .to_owned(),
        );
    }
    Ok(zones.unwrap_or_default())
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Random => f.write_str("random"),
            Distribution::Zipf(theta) => write!(f, "zipf:{theta}"),
            Distribution::Pareto(h) => write!(f, "pareto:{h}"),
            Distribution::Normal(percent) => write!(f, "normal:{percent}"),
            Distribution::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|zone| write!(f, ":{}/{}", zone.ops_percent, zone.blocks_percent))
            }
        }
    }
}

carmine_types::as_text!(Distribution);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_fios() {
        for text in ["random", "zipf:1.2", "pareto:0.2", "normal:10", "zoned:60/10:30/20:10/70"] {
            assert_eq!(text.parse::<Distribution>().unwrap().to_string(), text);
        }
        let json = serde_json::to_value(Distribution::Zipf(0.9)).unwrap();
        assert_eq!(json, "zipf:0.9");
        assert_eq!(serde_json::from_value::<Distribution>(json).unwrap(), Distribution::Zipf(0.9));
        assert!(serde_json::from_str::<Distribution>("\"zipf:-1\"").is_err());
    }

    #[test]
    fn other_values_are_named_with_what_is_accepted() {
        for (text, part) in [
            ("", "zipf:THETA"),
            ("gauss:1", "zipf:THETA"),
            ("random:1", "zipf:THETA"),
            ("zoned_abs:95/50G:5/950G", "zipf:THETA"),
            ("zipf", "zipf:1.2"),
            ("zipf:1", "not 1"),
            ("zipf:0", "above 0"),
            ("zipf:nan", "above 0"),
            ("zipf:1.2:0.25", "a centre"),
            ("pareto:1", "between 0 and 1"),
            ("normal:100", "below 100"),
            ("zoned:60/10:40/80", "add up to 100"),
            ("zoned:60/10:40", "OPS/SIZE"),
            ("zoned:100/50:0/50", "from 1 on"),
            ("zoned:60/10:40/90,50/50:50/50", "have the same"),
        ] {
            let error = text.parse::<Distribution>().unwrap_err();
            assert!(error.contains(part) && error.contains(&format!("`{text}`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_back_or_refused(text in "(zipf|pareto|normal|zoned)?[:/0-9.]{0,12}") {
            if let Ok(distribution) = text.parse::<Distribution>() {
                prop_assert_eq!(distribution.to_string().parse(), Ok(distribution));
            }
        }
    }
}
