//! File names that carry the point.

use super::Config;

/// A value as part of a file name: letters, digits, `.` and `-`; anything else becomes `-`.
pub fn stem_word(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' }).collect()
}

/// Axes that every stem shows, in its head.
const HEAD: [&str; 7] = ["store", "osds", "reactors", "balance", "size", "workload", "iodepth"];

/// The stem of a point: head, then `_{axis}{value}` of the other axes that vary in this plan, then the repeat.
pub fn stem(config: &Config, varying: &[String], repeat: u32, again: bool) -> String {
    let value =
        |axis: &str, default: &str| stem_word(&config.show(axis).unwrap_or_else(|| default.to_owned()));
    let mut text = format!(
        "{}_{}osd_{}reactor_{}_size{}_{}_qd{}",
        value("store", "blue"),
        value("osds", "1"),
        value("reactors", "1"),
        value("balance", "default"),
        value("pool_size", "1"),
        value("workload", "none"),
        value("iodepth", "1"),
    );
    for axis in varying.iter().filter(|axis| !HEAD.contains(&axis.as_str()) && *axis != "pool_size") {
        if let Some(value) = config.show(axis) {
            text.push_str(&format!("_{}{}", stem_word(axis).replace('.', "-"), stem_word(&value)));
        }
    }
    text.push_str(&format!("_r{repeat}"));
    if again {
        text.push_str("_again");
    }
    text
}

/// True if the text is a file name that stays in its folder.
pub(super) fn is_stem(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text.len() <= 240 && !text.starts_with('.') && text.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::default();
        for (axis, value) in [("osds", 3), ("reactors", 2), ("pool_size", 3), ("iodepth", 16)] {
            config.set(axis, value);
        }
        for (axis, value) in
            [("store", "blue"), ("balance", "osd"), ("workload", "randwrite4k"), ("poll", "adaptive:10")]
        {
            config.set(axis, value);
        }
        config
    }

    #[test]
    fn the_stem_of_the_page() {
        let varying = vec!["osds".to_owned(), "iodepth".to_owned()];
        assert_eq!(stem(&config(), &varying, 0, false), "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_r0");
    }

    #[test]
    fn other_axes_that_vary_follow() {
        let text = stem(&config(), &["poll".to_owned()], 1, true);
        assert_eq!(text, "blue_3osd_2reactor_osd_size3_randwrite4k_qd16_polladaptive-10_r1_again");
        assert!(is_stem(&text));
    }

    #[test]
    fn a_stem_stays_in_its_folder() {
        for bad in ["", "../a", "a/b", ".hidden", "a b", "ü"] {
            assert!(!is_stem(bad), "{bad}");
        }
    }
}
