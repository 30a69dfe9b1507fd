//! The decision table. `carmine help verdicts` prints it, and `docs/verdicts.md` is that print.

use std::fmt;

use super::Limiter::{
    self, Alien, Client, Contended, Device, Imbalanced, Net, Osd, Qd, Quota, Shared, Unknown,
};
use super::figures::{Facts, Figure};

/// One condition of a row. A figure that is not known meets none but `No`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cell {
    Yes(Figure),
    No(Figure),
    AtLeast(Figure, f64),
    Below(Figure, f64),
}
use Cell::{AtLeast, Below, No, Yes};

impl Cell {
    fn holds(self, facts: &Facts) -> bool {
        match self {
            Yes(figure) => facts.get(figure) == Some(1.0),
            No(figure) => facts.get(figure) != Some(1.0),
            AtLeast(figure, least) => facts.get(figure).is_some_and(|value| value >= least),
            Below(figure, limit) => facts.get(figure).is_some_and(|value| value < limit),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = |figure: Figure| figure.unit().unwrap_or_default();
        match self {
            Yes(figure) => write!(f, "{figure}"),
            No(figure) => write!(f, "not: {figure}"),
            AtLeast(figure, least) => write!(f, "{figure}: {least}{} or more", unit(*figure)),
            Below(figure, limit) => write!(f, "{figure}: less than {limit}{}", unit(*figure)),
        }
    }
}

/// A row: if all cells hold, the limiter is this one.
pub(super) struct Row {
    pub(super) limiter: Limiter,
    pub(super) cells: &'static [Cell],
    /// What bounded the load, with the figures.
    pub(super) say: fn(&Facts) -> String,
    pub(super) next: &'static str,
}

impl Row {
    pub(super) fn holds(&self, facts: &Facts) -> bool {
        self.cells.iter().all(|cell| cell.holds(facts))
    }
}

/// A reactor, an alien, a generator or a CPU that is busy for this percentage of the window is the limit.
const SATURATED: f64 = 90.0;
/// One reactor of several that is this busy holds the others back.
const ONE_SATURATED: f64 = 97.0;
/// This percentage of a raw baseline is what the drive or the network gives. How long a device was busy says nothing: one
/// that takes many requests side by side is busy with the first.
const RAW_REACHED: f64 = 90.0;
/// Nothing does more than its raw baseline, noise apart: then the baseline is of something else.
pub(crate) const RAW_WRONG: f64 = 110.0;
/// Time without a CPU that disturbs a window, and CPU time of others that explains it: a reactor that sleeps is without a CPU
/// while an idle CPU wakes up, too.
pub(crate) const DISTURBED: f64 = 10.0;
/// Time without a CPU of one reactor that holds the others back.
const STARVED: f64 = 25.0;
/// A reactor whose work or PGs are this many times the mean …
pub(crate) const UNEVEN: f64 = 1.25;
/// Below this many operations in flight for each reactor, more depth is the first thing to try.
const DEEP: f64 = 32.0;

/// From facts that make all others meaningless, over what is saturated, to what is left when nothing is. A row must not depend on
/// a difference that is noise: NET comes after QD because at a low depth both the load and its baseline wait for single
/// messages, and after the rows for saturated CPUs because on loopback messages cost the same CPUs.
pub(super) const ROWS: &[Row] = &[
    Row {
        limiter: Shared,
        cells: &[Yes(Figure::Shared)],
        say: |_| "CPUs are shared, so nothing can be told apart".into(),
        next: "give each thread a CPU of its own: fewer reactors or OSDs, more CPUs, or --in-process, which needs no generator",
    },
    Row {
        limiter: Unknown,
        cells: &[Below(Figure::Seconds, 0.001)],
        say: |_| "the window is empty".into(),
        next: "take a longer --runtime",
    },
    Row {
        limiter: Qd,
        cells: &[Yes(Figure::RateMet)],
        say: |_| "the offered rate was met, so more can be asked".into(),
        next: "raise --rate until it is no longer met",
    },
    Row {
        limiter: Quota,
        cells: &[AtLeast(Figure::Throttled, DISTURBED)],
        say: |f| {
            let (osd, part) = (f.name(Figure::Throttled), f.percent(Figure::Throttled));
            format!("the CPU quota of {osd} was used up, and stopped it for {part} of the window")
        },
        next: "raise --confine-cpus, or compare with --confine-cpus none",
    },
    Row {
        limiter: Client,
        cells: &[AtLeast(Figure::ClientThread, SATURATED), No(Figure::Refuted)],
        say: |f| {
            let part = f.percent(Figure::ClientThread);
            format!("the hottest generator thread was busy or without a CPU {part} of the window")
        },
        next: "give the generator more CPUs (--client-cpus of `carmine up`) and more --numjobs",
    },
    Row {
        limiter: Client,
        cells: &[AtLeast(Figure::ClientCpus, SATURATED), No(Figure::Refuted)],
        say: |f| format!("the generator used {}", f.name(Figure::ClientCpus)),
        next: "give the generator more CPUs (--client-cpus of `carmine up`)",
    },
    Row {
        limiter: Device,
        cells: &[AtLeast(Figure::OfDevice, RAW_REACHED), Below(Figure::OfDevice, RAW_WRONG)],
        say: |f| format!("{} of the raw device were reached", f.percent(Figure::OfDevice)),
        next: "raise --iodepth if `carmine baseline` gives more at a larger one; else take faster drives or more of them (--devs)",
    },
    Row {
        limiter: Imbalanced,
        cells: &[
            AtLeast(Figure::HotReactor, SATURATED),
            AtLeast(Figure::HotRatio, UNEVEN),
            AtLeast(Figure::PgRatio, UNEVEN),
        ],
        say: hot_reactor,
        next: "raise --pgs of `carmine up`, so that each reactor owns as many",
    },
    Row {
        limiter: Imbalanced,
        // A neighbour on one reactor's CPU makes the load uneven as well.
        cells: &[
            AtLeast(Figure::HotReactor, SATURATED),
            AtLeast(Figure::HotRatio, UNEVEN),
            Below(Figure::Waiting, DISTURBED),
        ],
        say: hot_reactor,
        next: "spread the load over more objects (--size) and connections (--numjobs)",
    },
    Row {
        limiter: Osd,
        cells: &[AtLeast(Figure::ReactorMean, SATURATED)],
        say: reactors,
        next: MORE_REACTORS,
    },
    Row {
        limiter: Osd,
        cells: &[AtLeast(Figure::ReactorMax, ONE_SATURATED)],
        say: reactors,
        next: MORE_REACTORS,
    },
    Row {
        limiter: Alien,
        cells: &[AtLeast(Figure::OsdCpus, SATURATED), AtLeast(Figure::AlienPart, 50.0)],
        say: osd_cpus,
        next: "give the aliens CPUs of their own (--alien-cpus of `carmine up`)",
    },
    Row { limiter: Osd, cells: &[AtLeast(Figure::OsdCpus, SATURATED)], say: osd_cpus, next: MORE_REACTORS },
    Row {
        limiter: Osd,
        cells: &[AtLeast(Figure::CpusUsed, SATURATED)],
        say: |f| {
            let (used, cpus) = (f.percent(Figure::CpusUsed), f.name(Figure::CpusUsed));
            format!("the OSDs used {used} of the {cpus} that they were given")
        },
        next: "give the OSDs more CPUs (--cores-per-osd of `carmine peer up`)",
    },
    Row {
        limiter: Contended,
        cells: &[AtLeast(Figure::Waiting, DISTURBED), AtLeast(Figure::Others, DISTURBED)],
        say: starved,
        next: NO_NEIGHBOURS,
    },
    Row {
        limiter: Alien,
        cells: &[AtLeast(Figure::AlienCpus, SATURATED)],
        say: |f| {
            let (osd, part) = (f.name(Figure::AlienCpus), f.percent(Figure::AlienCpus));
            format!("the alien CPUs of {osd} were busy {part} of the window")
        },
        next: "give the aliens more CPUs (--alien-cpus of `carmine up`)",
    },
    Row {
        limiter: Alien,
        cells: &[AtLeast(Figure::AlienThread, SATURATED)],
        say: |f| {
            let (thread, part) = (f.name(Figure::AlienThread), f.percent(Figure::AlienThread));
            format!("{thread} was busy {part} of the window")
        },
        next: "take more threads (--alien-threads of `carmine up`), or see what the thread does: --profile oncpu",
    },
    Row {
        limiter: Contended,
        cells: &[AtLeast(Figure::WaitingMost, STARVED), AtLeast(Figure::Others, DISTURBED)],
        say: starved,
        next: NO_NEIGHBOURS,
    },
    Row {
        limiter: Qd,
        cells: &[Below(Figure::Depth, DEEP), No(Figure::RateAsked), No(Figure::Refuted)],
        say: |f| {
            let depth = f.get(Figure::Depth).unwrap_or(0.0);
            let raw = |figure, what| f.get(figure).map(|n| format!("{n:.0} % of the raw {what}"));
            let raw = [raw(Figure::OfDevice, "device"), raw(Figure::OfMessenger, "messenger")];
            let raw: Vec<String> = raw.into_iter().flatten().collect();
            let at =
                if raw.is_empty() { String::new() } else { format!(", which gave {}", raw.join(" and ")) };
            format!(
                "nothing is saturated, and the load keeps {depth:.1} operations in flight for each reactor{at}"
            )
        },
        next: "raise --iodepth or --numjobs",
    },
    Row {
        limiter: Net,
        cells: &[AtLeast(Figure::OfMessenger, RAW_REACHED), Below(Figure::OfMessenger, RAW_WRONG)],
        say: |f| format!("{} of the raw messenger were reached", f.percent(Figure::OfMessenger)),
        next: "take more connections (--numjobs, --reactors) or a faster network",
    },
    Row {
        limiter: Unknown,
        cells: &[AtLeast(Figure::AboveBaseline, RAW_WRONG)],
        say: |f| {
            let part = f.percent(Figure::AboveBaseline);
            format!("{}; the load did {part} of a raw baseline, so that one is wrong", nothing(f))
        },
        next: "measure the baseline again with the same options, just before the load (`carmine baseline`)",
    },
    Row {
        limiter: Unknown,
        cells: &[Yes(Figure::DriveUnmeasured)],
        say: |f| format!("{}; without a raw baseline, the drive cannot be excluded", nothing(f)),
        next: "measure the drive (`carmine baseline --json FILE`, with the load's options) and repeat with --baseline FILE",
    },
    Row {
        limiter: Unknown,
        cells: &[No(Figure::Confirmed)],
        say: nothing,
        next: "repeat with --confirm, which loads once more with twice the threads",
    },
    LAST,
];

/// Holds always.
pub(super) const LAST: Row = Row {
    limiter: Unknown,
    cells: &[],
    say: nothing,
    next: "see what the OSDs' threads wait for: --profile offcpu",
};

const MORE_REACTORS: &str =
    "give the OSDs more reactors (--reactors of `carmine up`), or see where their time goes: --profile oncpu";
const NO_NEIGHBOURS: &str = "stop the other processes or keep them off the OSDs' CPUs; `carmine doctor` and `carmine top` show busy CPUs";

fn hot_reactor(f: &Facts) -> String {
    let (who, part, mean) =
        (f.name(Figure::HotReactor), f.percent(Figure::HotReactor), f.name(Figure::HotRatio));
    let pgs = f.name(Figure::PgRatio);
    let pgs = if pgs.is_empty() { String::new() } else { format!("; {pgs}") };
    format!("{who} had work for {part} of its time, the mean is {mean}{pgs}")
}

fn reactors(f: &Facts) -> String {
    let (mean, most) = (f.percent(Figure::ReactorMean), f.percent(Figure::ReactorMax));
    format!("the OSDs' reactors were busy {mean} of the window on average, {most} at most")
}

fn osd_cpus(f: &Facts) -> String {
    let (osd, part) = (f.name(Figure::OsdCpus), f.percent(Figure::OsdCpus));
    format!("the CPUs of {osd} were busy {part} of the window with reactors and aliens together")
}

fn starved(f: &Facts) -> String {
    let (mean, who, most) =
        (f.percent(Figure::Waiting), f.name(Figure::WaitingMost), f.percent(Figure::WaitingMost));
    format!(
        "other processes kept the reactors from their CPUs for {mean} of the window on average, {who} for {most}"
    )
}

/// Nothing is at its limit; the one that is closest is named.
fn nothing(f: &Facts) -> String {
    let near = [
        (Figure::ReactorMax, "the busiest reactor"),
        (Figure::CpusUsed, "the OSDs' CPUs"),
        (Figure::ClientThread, "the hottest generator thread"),
        (Figure::ClientCpus, "the generator's CPUs"),
        (Figure::AlienThread, "the busiest thread beside the reactors"),
    ];
    let near = near.into_iter().filter_map(|(figure, name)| Some((name, f.get(figure)?)));
    match near.reduce(|a, b| if b.1 > a.1 { b } else { a }) {
        Some((name, part)) => format!("nothing is saturated; {name} comes closest, at {part:.0} %"),
        None => "nothing is saturated".to_owned(),
    }
}

/// The table as markdown: what `carmine help verdicts` prints.
pub fn page() -> String {
    let mut text = "# Verdicts\n\n\
        Printed by `carmine help verdicts`. A verdict says what limited a load. It is the first row of this table whose \
        conditions all hold. Percentages are of the window unless a condition says otherwise; a condition on a figure that is not \
        known does not hold. Time without a CPU is what the kernel counts as waiting, less the time in which a used-up quota \
        stopped the OSD, and less the time of the OSD's own aliens where they share the reactors' CPUs. \
        [words.md](words.md) defines the words.\n\n\
        | | verdict | if | try next |\n|---|---|---|---|\n"
        .to_owned();
    for (row, at) in ROWS.iter().zip(1..) {
        let cells: Vec<String> = row.cells.iter().map(Cell::to_string).collect();
        let cells =
            if cells.is_empty() { "nothing of the above holds".to_owned() } else { cells.join("; **and** ") };
        text.push_str(&format!("| {at} | {} | {cells} | {} |\n", row.limiter, row.next));
    }
    text + super::curves::PAGE
}
