//! The decision table. `carmine help verdicts` prints it, and `docs/verdicts.md` holds what it prints.

use std::fmt;

use super::Limiter::{
    self, Alien, Client, Contended, Device, Imbalanced, Net, Osd, Qd, Quota, Shared, Unknown, Wait,
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
        match self {
            Yes(figure) => write!(f, "{figure}"),
            No(figure) => write!(f, "not: {figure}"),
            AtLeast(figure, least) => write!(f, "{figure}: {least}{} or more", figure.unit()),
            Below(figure, limit) => write!(f, "{figure}: less than {limit}{}", figure.unit()),
        }
    }
}

/// A row: if all cells hold, the limiter is this one.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) limiter: Limiter,
    pub(super) cells: &'static [Cell],
    say: &'static str,
    pub(super) next: &'static str,
}

/// A row that has no words yet.
const fn on(limiter: Limiter, cells: &'static [Cell]) -> Row {
    Row { limiter, cells, say: "", next: "" }
}

impl Row {
    /// The limit of the load in words: `{FIGURE}` is a figure's value, and `{@FIGURE}` is what that figure is of.
    const fn says(self, say: &'static str) -> Row {
        Row { say, ..self }
    }

    /// The next thing to try.
    const fn next(self, next: &'static str) -> Row {
        Row { next, ..self }
    }

    pub(super) fn holds(&self, facts: &Facts) -> bool {
        self.cells.iter().all(|cell| cell.holds(facts))
    }

    pub(super) fn reason(&self, facts: &Facts) -> String {
        let fill = |text: String, figure: &Figure| {
            let text = text.replace(&format!("{{{figure:?}}}"), &facts.percent(*figure));
            text.replace(&format!("{{@{figure:?}}}"), facts.name(*figure))
        };
        let say = self.say.replace("{nothing}", &nothing(facts)).replace("{places}", &places(facts));
        Figure::ALL.iter().fold(say, fill)
    }
}

/// A reactor, an alien, a generator or a CPU that is busy for this percentage of the window is the limit.
const SATURATED: f64 = 90.0;
/// One reactor of several that is this busy holds the others back.
const ONE_SATURATED: f64 = 97.0;
/// This percentage of a raw baseline is what the drive or the network gives. How long a device was busy says nothing: one
/// that takes many requests side by side is busy with the first. Only the depth at which it does most tells its limit: at a lower
/// one both wait for single requests.
const RAW_REACHED: f64 = 90.0;
/// Noise apart, nothing does more than a raw baseline of the same requests to the drive; what does was answered by a cache, or asked the
/// drive for less.
pub(crate) const RAW_WRONG: f64 = 110.0;
/// A part of the OSDs' operations, or of the drives' bytes, that is not the load's and changes what is measured.
pub(crate) const FOREIGN: f64 = 10.0;
/// Time without a CPU that disturbs a window, and CPU time of others that explains it: a reactor that sleeps is without a CPU
/// while an idle CPU wakes up, too.
pub(crate) const DISTURBED: f64 = 10.0;
/// Time without a CPU of one reactor that holds the others back.
const STARVED: f64 = 25.0;
/// A reactor whose work or PGs are this many times the mean …
pub(crate) const UNEVEN: f64 = 1.25;
/// A place that has this much of an operation's latency is named.
const ONE_PLACE: f64 = 40.0;
/// Below this many operations in flight for each reactor, more depth is the first thing to try.
const DEEP: f64 = 32.0;

/// First come facts that make all others meaningless, then what is saturated, then what is left when nothing is. A row must not depend on
/// a difference that is noise: NET comes after QD because at a low depth both the load and its baseline wait for single
/// messages, and after the rows for saturated CPUs because on loopback messages cost the same CPUs.
pub(super) const ROWS: &[Row] = &[
    on(Shared, &[Yes(Figure::Shared)]).says("CPUs are shared, so nothing can be told apart").next(
        "give each thread a CPU of its own: fewer reactors or OSDs, more CPUs, or \
             --in-process, which needs no generator",
    ),
    on(Unknown, &[Below(Figure::Seconds, 0.001)]).says("the window is empty").next("take a longer --runtime"),
    on(Qd, &[Yes(Figure::RateMet)])
        .says("the offered rate was met, so more can be asked")
        .next("raise --rate until it is no longer met"),
    on(Contended, &[AtLeast(Figure::ForeignOps, FOREIGN)])
        .says("other clients had {@ForeignOps} that the OSDs answered, {ForeignOps} of all")
        .next("stop the other clients: `carmine admin --osd 0 dump_historic_ops` shows what they ask"),
    on(Contended, &[AtLeast(Figure::ForeignBytes, FOREIGN)])
        .says("the drives moved {@ForeignBytes} for other programs, {ForeignBytes} of all")
        .next("stop the programs that use the OSDs' drives (`iotop` or `pidstat -d` names them)"),
    on(Quota, &[AtLeast(Figure::Throttled, DISTURBED)])
        .says("the CPU quota of {@Throttled} was used up, and stopped it for {Throttled} of the window")
        .next("raise --confine-cpus, or compare with --confine-cpus none"),
    on(Client, &[AtLeast(Figure::ClientThrottled, DISTURBED)])
        .says("the generator's CPU quota{@ClientThrottled} stopped it for {ClientThrottled} of the window")
        .next("raise the CPU quota of the generator's control group (cpu.max, or cpu.cfs_quota_us)"),
    on(Client, &[AtLeast(Figure::ClientThread, SATURATED), No(Figure::Refuted)])
        .says("the hottest generator thread{@ClientThread} was busy or without a CPU {ClientThread} of the window")
        .next("give the generator more CPUs (--client-cpus of `carmine up`, or more --load-hosts) and more --numjobs"),
    on(Client, &[AtLeast(Figure::ClientCpus, SATURATED), No(Figure::Refuted)])
        .says("the generator used {@ClientCpus}")
        .next("give the generator more CPUs (--client-cpus of `carmine up`)"),
    on(Imbalanced, &[HOT, AtLeast(Figure::HotRatio, UNEVEN), AtLeast(Figure::PgRatio, UNEVEN)])
        .says(HOT_REACTOR)
        .next("raise --pgs of `carmine up`, so that each reactor owns the same number"),
    // A neighbour on one reactor's CPU makes the load uneven as well.
    on(Imbalanced, &[HOT, AtLeast(Figure::HotRatio, UNEVEN), Below(Figure::Waiting, DISTURBED)])
        .says(HOT_REACTOR)
        .next("spread the load over more objects (--size) and connections (--numjobs)"),
    on(Osd, &[AtLeast(Figure::ReactorMean, SATURATED)]).says(REACTORS).next(MORE_REACTORS),
    on(Osd, &[AtLeast(Figure::ReactorMax, ONE_SATURATED)]).says(REACTORS).next(MORE_REACTORS),
    on(Alien, &[AtLeast(Figure::OsdCpus, SATURATED), AtLeast(Figure::AlienPart, 50.0)])
        .says(OSD_CPUS)
        .next("give the aliens CPUs of their own (--alien-cpus of `carmine up`)"),
    on(Osd, &[AtLeast(Figure::OsdCpus, SATURATED)]).says(OSD_CPUS).next(MORE_REACTORS),
    on(Osd, &[AtLeast(Figure::CpusUsed, SATURATED)])
        .says("the OSDs used {CpusUsed} of the {@CpusUsed} that they were given")
        .next("give the OSDs more CPUs (--cores-per-osd of `carmine peer up`)"),
    on(Contended, &[AtLeast(Figure::Waiting, DISTURBED), AtLeast(Figure::Others, DISTURBED)])
        .says(DISTURBANCE)
        .next(NO_NEIGHBOURS),
    on(Alien, &[AtLeast(Figure::AlienCpus, SATURATED)])
        .says("the alien CPUs of {@AlienCpus} were busy {AlienCpus} of the window")
        .next("give the aliens more CPUs (--alien-cpus of `carmine up`)"),
    on(Alien, &[AtLeast(Figure::AlienThread, SATURATED)])
        .says("{@AlienThread} was busy {AlienThread} of the window")
        .next(
            "take more threads (--alien-threads of `carmine up`), or see what the thread does: \
             --profile oncpu",
        ),
    on(Contended, &[AtLeast(Figure::WaitingMost, STARVED), AtLeast(Figure::Others, DISTURBED)])
        .says(DISTURBANCE)
        .next(NO_NEIGHBOURS),
    on(
        Device,
        &[AtLeast(Figure::OfDevice, RAW_REACHED), Below(Figure::OfDevice, RAW_WRONG), No(Figure::Helped)],
    )
    .says("{OfDevice} of what the raw device does at its best depth was reached")
    .next("faster drives, or more of them (--devs)"),
    on(Qd, &[Below(Figure::Depth, DEEP), No(Figure::RateAsked), No(Figure::Refuted)])
        .says("nothing is saturated, and the load keeps {@Depth}{places}")
        .next("raise --iodepth or --numjobs"),
    on(Qd, &[Yes(Figure::Helped)])
        .says("nothing is saturated, and more load gave more{places}")
        .next("raise --iodepth or --numjobs"),
    on(Net, &[AtLeast(Figure::OfMessenger, RAW_REACHED), Below(Figure::OfMessenger, RAW_WRONG)])
        .says("{OfMessenger} of the raw messenger was reached")
        .next("take more connections (--numjobs, --reactors) or a faster network"),
    on(Wait, &[AtLeast(Figure::InOnePlace, ONE_PLACE), Yes(Figure::DriveUnmeasured)])
        .says(WAITS)
        .next(MEASURE_DRIVE),
    on(Wait, &[AtLeast(Figure::InOnePlace, ONE_PLACE), No(Figure::Confirmed)])
        .says(WAITS)
        .next("repeat with --confirm, which tells whether more load gives more; --stages shows every stage"),
    on(Wait, &[AtLeast(Figure::InOnePlace, ONE_PLACE)])
        .says(WAITS)
        .next("--stages shows every stage, and --profile offcpu what the OSDs' threads wait for"),
    on(Unknown, &[AtLeast(Figure::AboveBaseline, RAW_WRONG)])
        .says("{nothing}; the load did {AboveBaseline} of a raw baseline, which is therefore no limit of it")
        .next(
            "`blue` writes what lies side by side as one: for small writes compare the MB/s with those of \
             `carmine baseline --bs 64k`; else measure the baseline again, just before the load",
        ),
    on(Unknown, &[Yes(Figure::DriveUnmeasured)])
        .says("{nothing}; without a raw baseline, the drive cannot be excluded")
        .next(MEASURE_DRIVE),
    on(Unknown, &[No(Figure::Confirmed)])
        .says("{nothing}")
        .next("repeat with --confirm, which loads once more with twice the threads"),
    // Holds always.
    on(Unknown, &[]).says("{nothing}").next("see what the OSDs' threads wait for: --profile offcpu"),
];

const MEASURE_DRIVE: &str = "measure the drive (`carmine baseline --json FILE`, with the load's options) and repeat with --baseline FILE";
const MORE_REACTORS: &str =
    "give the OSDs more reactors (--reactors of `carmine up`), or see where their time goes: --stages";
const NO_NEIGHBOURS: &str = "stop the other processes or keep them off the OSDs' CPUs; `carmine doctor` and `carmine top` show busy CPUs";

const HOT: Cell = AtLeast(Figure::HotReactor, SATURATED);
const HOT_REACTOR: &str =
    "{@HotReactor} had work for {HotReactor} of its time, the mean is {@HotRatio}; {@PgRatio}";
const REACTORS: &str =
    "the OSDs' reactors were busy {ReactorMean} of the window on average, {ReactorMax} at most";
const OSD_CPUS: &str =
    "the CPUs of {@OsdCpus} were busy {OsdCpus} of the window with reactors and aliens together";
const DISTURBANCE: &str = "other processes kept the reactors from their CPUs for {Waiting} of the window on average, {@WaitingMost} \
                           for {WaitingMost}";

const WAITS: &str = "{nothing}{places}";

/// The place where most of an operation's latency passes, if that is known.
fn places(f: &Facts) -> String {
    let place = f.get(Figure::InOnePlace).map(|_| f.name(Figure::InOnePlace));
    place.map(|place| format!("; {} {place}", f.percent(Figure::InOnePlace))).unwrap_or_default()
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
        let cells = row.cells.iter().map(Cell::to_string).collect::<Vec<_>>().join("; **and** ");
        let cells = if cells.is_empty() { "none of the above holds" } else { &cells };
        text += &format!("| {at} | {} | {cells} | {} |\n", row.limiter, row.next);
    }
    text + super::CURVES_PAGE
}
