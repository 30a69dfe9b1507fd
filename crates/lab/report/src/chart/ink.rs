//! Colours of charts. A chart is drawn in the light theme's colours: a downloaded file stands alone. On the page
//! a style sheet made from the same table repaints each colour, so every ink has a light value of its own.

use std::fmt::Write as _;

/// Colours that tell series apart, also for the colour-blind and on both backgrounds: (light theme, dark theme).
const SERIES: [(u32, u32); 8] = [
    (0x2a78d6, 0x4a94ee),
    (0xeb6834, 0xe8743f),
    (0x1baf7a, 0x23b585),
    (0xeda100, 0xd9a019),
    (0x4a3aa7, 0x9d92f0),
    (0xe34948, 0xef6f6e),
    (0xe87ba4, 0xdf6b97),
    (0x008300, 0x3da53d),
];
/// Steps of a heat map, from nothing to all.
const HEAT: [(u32, u32); 9] = [
    (0xf1f5fb, 0x1d232c),
    (0xd9e6f7, 0x20324a),
    (0xbcd5f2, 0x234468),
    (0x9bc0ec, 0x275788),
    (0x76a8e4, 0x2f6ca8),
    (0x5290db, 0x4083c6),
    (0x3377c8, 0x5c9cdc),
    (0x205ba5, 0x86b9ec),
    (0x123f7a, 0xb9dafb),
];

/// The use of a colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Series by number; more than there are colours start again.
    Series(usize),
    /// A heat map's step, 0 to [`Ink::HEAT_STEPS`] − 1.
    Heat(usize),
    Text,
    Muted,
    Grid,
    Axis,
    /// The background.
    Paper,
}

impl Ink {
    /// How many steps a heat map has.
    pub(crate) const HEAT_STEPS: usize = HEAT.len();

    /// Its colours in the light and the dark theme, and its name.
    fn parts(self) -> ((u32, u32), String) {
        match self {
            Ink::Series(n) => (SERIES[n % SERIES.len()], format!("series-{}", n % SERIES.len())),
            Ink::Heat(n) => {
                let step = n.min(HEAT.len() - 1);
                (HEAT[step], format!("heat-{step}"))
            }
            Ink::Text => ((0x24292f, 0xe2e6ea), "text".into()),
            Ink::Muted => ((0x626b75, 0x9aa4af), "muted".into()),
            Ink::Grid => ((0xe3e7eb, 0x2c333b), "grid".into()),
            Ink::Axis => ((0x8c959f, 0x5b6570), "axis".into()),
            Ink::Paper => ((0xfefefe, 0x161b22), "paper".into()),
        }
    }

    /// The colour in the light theme as CSS has it.
    pub(crate) fn hex(self) -> String {
        format!("#{:06X}", self.parts().0.0)
    }

    /// Name of the colour's variable in the page's style sheet.
    pub(crate) fn variable(self) -> String {
        format!("--{}", self.parts().1)
    }

    fn all() -> impl Iterator<Item = Ink> {
        let series = (0..SERIES.len()).map(Ink::Series);
        let heat = (0..HEAT.len()).map(Ink::Heat);
        series.chain(heat).chain([Ink::Text, Ink::Muted, Ink::Grid, Ink::Axis, Ink::Paper])
    }
}

/// The style sheet's colours: variables for both themes, and the rules that repaint charts with them.
pub(crate) fn style_sheet() -> String {
    let (mut light, mut dark, mut paint) = (String::new(), String::new(), String::new());
    for ink in Ink::all() {
        let (((on_light, on_dark), _), name, hex) = (ink.parts(), ink.variable(), ink.hex());
        let _ = write!(light, "{name}:#{on_light:06x};");
        let _ = write!(dark, "{name}:#{on_dark:06x};");
        let _ = write!(paint, ".chart [fill=\"{hex}\"]{{fill:var({name})}}");
        let _ = write!(paint, ".chart [stroke=\"{hex}\"]{{stroke:var({name})}}");
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
        let all: Vec<String> = Ink::all().map(Ink::hex).collect();
        let distinct: BTreeSet<&String> = all.iter().collect();
        assert_eq!(all.len(), distinct.len(), "two inks share a colour: the theme can't repaint them apart");
    }

    #[test]
    fn both_themes_define_every_variable() {
        let sheet = style_sheet();
        for ink in Ink::all() {
            let set = format!("{}:#", ink.variable());
            assert_eq!(
                sheet.matches(&set).count(),
                3,
                "{set} in :root, the dark theme and the dark preference"
            );
        }
    }
}
