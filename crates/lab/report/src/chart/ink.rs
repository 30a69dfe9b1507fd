//! Colours of charts. A chart is drawn in the light theme's colours: a downloaded file stands alone. On the page
//! a style sheet made from the same table repaints each colour, so every ink has a light value of its own.

use std::fmt::Write as _;

/// Each ink's name, and its colour in the light and in the dark theme. First those that tell series apart, also for the
/// colour-blind and on both backgrounds; then the steps of a heat map, from nothing to all.
const INKS: [(&str, u32, u32); SERIES + Ink::HEAT_STEPS + 5] = [
    ("series-0", 0x2a78d6, 0x4a94ee),
    ("series-1", 0xeb6834, 0xe8743f),
    ("series-2", 0x1baf7a, 0x23b585),
    ("series-3", 0xeda100, 0xd9a019),
    ("series-4", 0x4a3aa7, 0x9d92f0),
    ("series-5", 0xe34948, 0xef6f6e),
    ("series-6", 0xe87ba4, 0xdf6b97),
    ("series-7", 0x008300, 0x3da53d),
    ("heat-0", 0xf1f5fb, 0x1d232c),
    ("heat-1", 0xd9e6f7, 0x20324a),
    ("heat-2", 0xbcd5f2, 0x234468),
    ("heat-3", 0x9bc0ec, 0x275788),
    ("heat-4", 0x76a8e4, 0x2f6ca8),
    ("heat-5", 0x5290db, 0x4083c6),
    ("heat-6", 0x3377c8, 0x5c9cdc),
    ("heat-7", 0x205ba5, 0x86b9ec),
    ("heat-8", 0x123f7a, 0xb9dafb),
    ("text", 0x24292f, 0xe2e6ea),
    ("muted", 0x626b75, 0x9aa4af),
    ("grid", 0xe3e7eb, 0x2c333b),
    ("axis", 0x8c959f, 0x5b6570),
    ("paper", 0xfefefe, 0x161b22),
];
/// Colours of series.
const SERIES: usize = 8;

/// A colour, by its place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ink(usize);

impl Ink {
    /// How many steps a heat map has.
    pub(crate) const HEAT_STEPS: usize = 9;
    pub(crate) const TEXT: Ink = Ink(17);
    pub(crate) const MUTED: Ink = Ink(18);
    pub(crate) const GRID: Ink = Ink(19);
    pub(crate) const AXIS: Ink = Ink(20);
    /// The background.
    pub(crate) const PAPER: Ink = Ink(21);

    /// Of a series by its number; more than there are colours start again.
    pub(crate) fn series(number: usize) -> Ink {
        Ink(number % SERIES)
    }

    /// Of a heat map's step, 0 to [`Ink::HEAT_STEPS`] − 1.
    pub(crate) fn heat(step: usize) -> Ink {
        Ink(SERIES + step.min(Ink::HEAT_STEPS - 1))
    }

    /// The colour in the light theme as CSS has it.
    pub(crate) fn hex(self) -> String {
        format!("#{:06X}", INKS[self.0].1)
    }

    /// Name of the colour's variable in the page's style sheet.
    pub(crate) fn variable(self) -> String {
        format!("--{}", INKS[self.0].0)
    }
}

/// The style sheet's colours: variables for both themes, and the rules that repaint charts with them.
pub(crate) fn style_sheet() -> String {
    let (mut light, mut dark, mut paint) = (String::new(), String::new(), String::new());
    for (name, on_light, on_dark) in INKS {
        let _ = write!(light, "--{name}:#{on_light:06x};");
        let _ = write!(dark, "--{name}:#{on_dark:06x};");
        let _ = write!(paint, ".chart [fill=\"#{on_light:06X}\"]{{fill:var(--{name})}}");
        let _ = write!(paint, ".chart [stroke=\"#{on_light:06X}\"]{{stroke:var(--{name})}}");
    }
    format!(
        ":root{{{light}color-scheme:light}}\
         :root[data-theme=dark]{{{dark}color-scheme:dark}}\
         @media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}color-scheme:dark}}}}\n{paint}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_ink_can_be_told_by_its_light_colour() {
        let all: Vec<String> = (0..INKS.len()).map(|n| Ink(n).hex()).collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "two inks share a colour: the theme can't repaint them apart");
    }

    #[test]
    fn both_themes_define_every_variable() {
        let sheet = style_sheet();
        for ink in (0..INKS.len()).map(Ink) {
            let set = format!("{}:#", ink.variable());
            assert_eq!(
                sheet.matches(&set).count(),
                3,
                "{set} in :root, the dark theme and the dark preference"
            );
        }
    }
}
