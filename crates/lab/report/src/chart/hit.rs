//! Marks of a chart that tell their figures when they are pointed at, or walked to with the arrow keys.

use std::fmt::Write as _;

use super::draw::{CHAR_WIDTH, WIDTH};
use crate::units::shortened;

/// Half of the least width and height that a finger or pointer finds.
const REACH: i32 = 12;
/// Text height in units.
const TIP: u32 = 20;
/// Characters of a text that fit over a chart; who listens hears all.
const SHOWN_MAX: usize = 76;

/// A mark's place and its figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Hit {
    /// Left, top, right, bottom in units of the drawing.
    place: [i32; 4],
    text: String,
}

impl Hit {
    /// Around a point.
    pub(crate) fn around(at: (i32, i32), text: String) -> Hit {
        Hit { place: [at.0 - REACH, at.1 - REACH, at.0 + REACH, at.1 + REACH], text }
    }

    /// Between two corners; what is very narrow is widened.
    pub(crate) fn between(a: (i32, i32), b: (i32, i32), text: String) -> Hit {
        let wide = |low: i32, high: i32| {
            if high - low < REACH { (low - REACH / 2, high + REACH / 2) } else { (low, high) }
        };
        let (left, right) = wide(a.0.min(b.0), a.0.max(b.0));
        let (top, bottom) = wide(a.1.min(b.1), a.1.max(b.1));
        Hit { place: [left, top, right, bottom], text }
    }
}

/// The elements that lie over a drawing. The text is above its mark, and within the drawing.
pub(crate) fn layer(hits: &[Hit]) -> String {
    let mut svg = String::new();
    for Hit { place: [left, top, right, bottom], text } in hits {
        let shown = shortened(text, SHOWN_MAX);
        let half = shown.chars().count() as f64 * f64::from(TIP) * CHAR_WIDTH / 2.0;
        let middle = f64::from(left + right) / 2.0;
        let x = middle
            .clamp(half.min(f64::from(WIDTH) / 2.0), (f64::from(WIDTH) - half).max(f64::from(WIDTH) / 2.0));
        let y = (top - 8).max(TIP as i32 + 2);
        let (label, shown) = (super::svg::escaped(text), super::svg::escaped(&shown));
        let (width, height) = (right - left, bottom - top);
        // Writing to a String does not fail.
        let _ = write!(
            svg,
            "<g class=\"hit\" role=\"img\" tabindex=\"-1\" aria-label=\"{label}\"><rect x=\"{left}\" y=\"{top}\" \
             width=\"{width}\" height=\"{height}\"/><text class=\"tip\" x=\"{x:.0}\" y=\"{y}\" text-anchor=\"middle\" \
             font-size=\"{TIP}\">{shown}</text></g>"
        );
    }
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stays_on_the_drawing_and_is_text() {
        let long = format!("a<b \"c\" {}", "x".repeat(200));
        let svg = layer(&[Hit::around((5, 5), long), Hit::between((955, 500), (950, 530), "IOPS 5".into())]);
        assert!(svg.contains("aria-label=\"a&lt;b &quot;c&quot; xxx") && svg.contains("…</text>"), "{svg}");
        assert!(svg.contains("y=\"22\""), "not above the drawing: {svg}");
        assert!(svg.contains("x=\"944\" y=\"500\" width=\"17\""), "{svg}");
        assert!(svg.contains("x=\"925\" y=\"492\""), "half of six characters from the edge: {svg}");
    }
}
