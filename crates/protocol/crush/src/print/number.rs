//! Numbers and times as C++ streams and Ceph print them.

use std::fmt;

use carmine_types::UTime;

/// Seconds below which Ceph prints a time as a plain number: ten years.
const RAW_TIME_MAX_S: u32 = 60 * 60 * 24 * 365 * 10;

/// A float as C's `%g`, the default of C++ streams: six significant digits, no trailing zeros.
pub(super) struct General(pub(super) f64);

impl fmt::Display for General {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: i32 = 6;
        let v = self.0;
        if v.is_nan() {
            // 0/0, the only one that occurs, has its sign bit set on x86.
            return f.write_str("-nan");
        }
        if v.is_infinite() {
            return f.write_str(if v > 0.0 { "inf" } else { "-inf" });
        }
        // The exponent after rounding to six digits: 999999.7 becomes 1e+06.
        let scientific = format!("{v:.5e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let exponent: i32 = exponent.parse().unwrap_or(0);
        if !(-4..DIGITS).contains(&exponent) {
            let sign = if exponent < 0 { '-' } else { '+' };
            return write!(f, "{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
        }
        let decimals = (DIGITS - 1 - exponent) as usize;
        f.write_str(trimmed(&format!("{v:.decimals$}")))
    }
}

/// Without trailing zeros behind a decimal point, and without a bare point.
fn trimmed(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// A 16.16 fixed-point weight.
pub(super) fn weight(fixed: u32) -> General {
    General((fixed as f32 / 65536.0).into())
}

/// A ratio as stored.
pub(super) fn ratio(value: f32) -> General {
    General(value.into())
}

/// A time in UTC: `2026-11-21T01:41:31.719600+0000`; small values as plain seconds.
pub(super) struct Time(pub(super) UTime);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sec, micros) = (self.0.sec, self.0.nsec / 1000);
        if sec < RAW_TIME_MAX_S {
            return write!(f, "{sec}.{micros:06}");
        }
        let (year, month, day) = civil_date(sec / 86400);
        let (hour, minute, second) = (sec / 3600 % 24, sec / 60 % 60, sec % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}+0000")
    }
}

/// A time in UTC as Ceph prints it: `2026-11-21T01:41:31.719600+0000`.
pub fn time(time: UTime) -> String {
    Time(time).to_string()
}

/// Year, month and day of a number of days since 1970-01-01.
fn civil_date(mut days: u32) -> (u32, u32, u32) {
    let mut year = 1970;
    loop {
        let length = 365 + u32::from(leap(year));
        if days < length {
            break;
        }
        days -= length;
        year += 1;
    }
    let lengths = [31, 28 + u32::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

fn leap(year: u32) -> bool {
    year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_floats() {
        for (v, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.25, "1.25"),
            (2.309_401_07, "2.3094"),
            (0.096_479_3, "0.0964793"),
            (0.949_999_988, "0.95"),
            (23.956_9, "23.9569"),
            (100_000.0, "100000"),
            (999_999.7, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_012_3, "1.23e-05"),
            (-0.5, "-0.5"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(General(v).to_string(), text);
        }
    }

    #[test]
    fn times() {
        let at = |sec| Time(UTime { sec, nsec: 719_600_999 }).to_string();
        assert_eq!(at(0), "0.719600");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00.719600+0000");
        assert_eq!(at(1_795_225_291), "2026-11-21T01:41:31.719600+0000");
        assert_eq!(at(u32::MAX), "2106-02-07T06:28:15.719600+0000");
    }
}
