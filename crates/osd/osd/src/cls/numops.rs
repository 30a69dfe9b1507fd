//! Class `numops`: arithmetic on numbers stored as text in the omap.

use carmine_types::errno;

use super::handle::{Handle, decode};
use super::{Done, Method, write};
use crate::error::OpError;

pub(super) const METHODS: &[Method] = &[
    write("add", |h, input| change(h, input, |stored, operand| stored + operand)),
    write("mul", |h, input| change(h, input, |stored, operand| stored * operand)),
];

/// Digits of a result.
const DIGITS: usize = 10;

fn change(h: &mut Handle<'_, '_>, input: &[u8], operation: impl Fn(f64, f64) -> f64) -> Done {
    let (key, operand) = decode(input, |d| Ok((d.blob()?, d.blob()?)))?;
    let operand = number(operand).ok_or(OpError::new(errno::EINVAL))?;
    let stored = h.omap(key).unwrap_or_default();
    let stored = number(&stored).ok_or(OpError::new(errno::EBADMSG))?;
    h.set_omap(key, format_number(operation(stored, operand)).into_bytes());
    Ok(Vec::new())
}

/// A number as `strtod` reads it; an empty text is 0.
fn number(text: &[u8]) -> Option<f64> {
    if text.is_empty() {
        return Some(0.0);
    }
    std::str::from_utf8(text).ok()?.trim_ascii_start().parse().ok()
}

/// As `%g` of C, with [`DIGITS`] digits.
fn format_number(number: f64) -> String {
    if !number.is_finite() {
        return number.to_string().to_lowercase();
    }
    let scientific = format!("{number:.*e}", DIGITS - 1);
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS as i32).contains(&exponent) {
        let decimals = (DIGITS as i32 - 1 - exponent) as usize;
        return without_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

fn without_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spelt_as_in_c() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (0.1 + 0.2, "0.3"),
            (100.0, "100"),
            (123_456_789.123, "123456789.1"),
            (1_234_567_890.5, "1234567890"),
            (99_999_999_999.0, "1e+11"),
            (9_999_999_999.9, "1e+10"),
            (1e-4, "0.0001"),
            (1.25e-5, "1.25e-05"),
            (2e300, "2e+300"),
            (1e-310, "1e-310"),
            (f64::INFINITY, "inf"),
            (f64::NEG_INFINITY, "-inf"),
            (f64::NAN, "nan"),
        ] {
            assert_eq!(format_number(number), text);
        }
    }
}
