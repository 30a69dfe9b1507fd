//! Numbers as people read them.

use std::time::{Duration, UNIX_EPOCH};

use carmine_load::show_bytes;

/// With thousands separated by commas and `digits` after the point: `182,400.5`.
pub(crate) fn grouped(value: f64, digits: usize) -> String {
    let text = plain(value, digits);
    let (sign, text) = text.strip_prefix('-').map_or(("", text.as_str()), |rest| ("−", rest));
    let (whole, fraction) = text.split_at(text.find('.').unwrap_or(text.len()));
    let thousands = whole.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    format!("{sign}{}{fraction}", thousands.collect::<Vec<_>>().join(","))
}

/// With `digits` after the point; never `-0`.
pub(crate) fn plain(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let zero = text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
    if zero { text.trim_start_matches('-').to_owned() } else { text }
}

/// With as many digits as a reader wants to hear: `64,419`, `12.5`, `0.123`.
pub(crate) fn figure(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1_000.0 || v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    grouped(value, digits)
}

/// Short, for ticks and labels: `1.5k`, `20M`, `0.25`.
pub(crate) fn short(value: f64) -> String {
    let units = [(1e9, "G"), (1e6, "M"), (1e3, "k")];
    let unit = units.into_iter().find(|(size, _)| value.abs() >= 0.9995 * size);
    let (size, unit) = unit.unwrap_or((1.0, ""));
    // Three digits, without zeros at the end.
    let digits = (2.0 - (value / size).abs().log10().floor()).clamp(0.0, 9.0);
    let text = plain(value / size, digits as usize);
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{}{unit}", text.replacen('-', "−", 1))
}

/// A ratio as a difference in percent.
pub(crate) fn percent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0).replace('-', "−")
}

/// Bytes with a unit of 1024 where it is whole: `4K`, `4M`, `512`.
pub(crate) fn bytes(value: f64) -> String {
    let text = show_bytes(value as u64).to_uppercase();
    if text.ends_with(char::is_alphabetic) { text } else { short(value) }
}

/// Seconds as people write them: `3m 20s`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.clamp(0.0, 1e9).round() as u64 } else { 0 };
    humantime::format_duration(Duration::from_secs(seconds)).to_string()
}

/// Seconds since 1970 as a date and time in UTC; a value beyond the calendar is written as a number.
pub(crate) fn date(unix_s: u64) -> String {
    // humantime ends with the year 9999.
    const YEAR_10000: u64 = 253_402_300_800;
    if unix_s >= YEAR_10000 {
        return format!("{unix_s} s after 1970");
    }
    let time = UNIX_EPOCH + Duration::from_secs(unix_s);
    humantime::format_rfc3339_seconds(time).to_string().replace('T', " ").replace('Z', " UTC")
}

/// The text, or its first `most` characters and an ellipsis.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}…", text[..at].trim_end()),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(grouped(1_234_567.0, 0), "1,234,567");
        assert_eq!(grouped(-1234.56, 1), "−1,234.6");
        assert_eq!(grouped(-0.04, 1), "0.0");
        assert_eq!(grouped(999.0, 0), "999");
    }

    #[test]
    fn figures_in_words() {
        let of = [64_419.4, 12.54, 3.0, 1.234, 0.0456].map(figure);
        assert_eq!(of, ["64,419", "12.5", "3", "1.23", "0.046"]);
    }

    #[test]
    fn short_numbers() {
        let cases = [
            (0.0, "0"),
            (0.25, "0.25"),
            (0.0125, "0.0125"),
            (1.0, "1"),
            (12.5, "12.5"),
            (999.0, "999"),
            (999.9, "1k"),
            (1500.0, "1.5k"),
            (200_000.0, "200k"),
            (25_500_000.0, "25.5M"),
            (-3.0, "−3"),
            (0.6000000000000001, "0.6"),
        ];
        for (value, want) in cases {
            assert_eq!(short(value), want, "{value}");
        }
    }

    #[test]
    fn sizes_and_times() {
        assert_eq!([bytes(4096.0), bytes(4194304.0), bytes(1000.0)], ["4K", "4M", "1k"]);
        assert_eq!([duration(45.2), duration(200.0), duration(f64::NAN)], ["45s", "3m 20s", "0s"]);
        assert_eq!(date(1_700_000_000), "2023-11-14 22:13:20 UTC");
        assert!(date(u64::MAX).ends_with("s after 1970"));
    }
}
