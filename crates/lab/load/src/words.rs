//! Every word that results, reports and messages use in a sense of their own, defined once. `carmine help words` prints them,
//! the report explains from them, and `docs/words.md` is that print.

use std::fmt::Write as _;

use serde::Serialize;

carmine_types::words! {
    /// What a word stands for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
    #[serde(rename_all = "lowercase")]
    pub enum WordKind: "kind of word" {
        /// It names what limited a load.
        Verdict = "verdict",
        /// It begins a remark that says how far a result can be trusted.
        Mark = "mark",
        /// Any other.
        Term = "term",
    }
}

/// A word and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Word {
    pub name: &'static str,
    pub kind: WordKind,
    /// One or more sentences.
    pub meaning: &'static str,
}

macro_rules! glossary {
    ($($kind:ident { $($name:literal: $meaning:literal;)+ })+) => {
        /// All words: the verdicts in order of the decision table, the marks, and the terms in alphabetical order.
        pub const WORDS: &[Word] = &[$($(Word { name: $name, kind: WordKind::$kind, meaning: $meaning }),+),+];
    };
}

glossary! {
    Verdict {
        "SHARED": "OSDs, aliens or clients share CPUs, so the limit cannot be told and figures per core are left out.";
        "QD": "Too little was asked: too few operations were in flight, or the offered rate was met. The OSDs can do more.";
        "QUOTA": "The CPU quota of the OSDs' cgroup was used up, and the kernel stopped the OSDs for part of the window.";
        "CLIENT": "The load generator had no CPU time left. The figures say nothing about the OSDs.";
        "DEVICE": "The drive: the load reached what the drive does without an OSD, at the same block size and depth.";
        "IMBALANCED": "One reactor had more work than the others, and the load waited for it.";
        "OSD": "The OSDs used all CPU time that they have. This is the verdict to aim for when the OSDs are measured.";
        "ALIEN": "Blocking work beside the reactors: RocksDB, or a commit thread.";
        "CONTENDED": "Other processes kept the reactors from their CPUs.";
        "NET": "The messenger: the load reached what messages of this size do without an OSD.";
        "UNKNOWN": "Nothing that was measured was at its limit. The verdict says what to measure next.";
    }
    Mark {
        "SMOKE": "The window was shorter than 60 s. The result shows that the set-up works, not how fast it is.";
        "NOISY": "Other processes took CPU time from the OSDs or the generator. Time in which a quota stopped the OSDs does not \
                  count. Slopes leave the point out.";
        "UNSTEADY": "IOPS rose or fell steadily during the window. Slopes leave the point out.";
        "SHARED": "OSDs, aliens, clients or the sampler share CPUs. Figures per core are left out, and so is the point in slopes.";
        "IMBALANCED": "The PGs are dealt unevenly: one reactor owns at least a quarter more than the mean.";
        "LITTLE": "Little's law does not hold: IOPS x mean latency is not the number of operations that the load keeps in flight.";
        "ABOVE": "The load did more than 110 % of its raw baseline. A cache answered, or the baseline is wrong.";
        "CONFOUNDED": "The arms of a comparison differ in more than the axis that is compared. The differences follow.";
    }
    Term {
        "alien": "A thread of an OSD for work that may block, such as RocksDB. Reactors never block; they send such work to aliens.";
        "allocated": "CPUs that the OSDs have: those of reactors and aliens, or the CPU time of a quota. IOPS per core allocated \
                      falls when cores are idle.";
        "arm": "One of the alternatives that a comparison sets side by side, such as one placement strategy.";
        "axis": "A setting that a plan varies. Each of its values makes points.";
        "balance": "How reactors are dealt to sockets: default, osd, socket, l3 or none.";
        "baseline": "What the drive or the messenger does without an OSD, measured by `carmine baseline`.";
        "busy": "CPU time in which a reactor worked; spinning is not in it. IOPS per core busy is what a fully used core would do.";
        "client": "The load generator: `carmine bench` itself, or fio or rados bench started by it. It has CPUs of its own.";
        "controller": "The process that starts the load, moves it through its phases and reads the counters.";
        "core": "A physical core. With SMT it is two CPUs (hardware threads); without, one. Figures per core are \
                 per CPU second, because the kernel accounts for CPUs.";
        "CPU": "A hardware thread: what the kernel schedules on. CPU lists such as 0-3,8 name CPUs.";
        "drain": "Work that the OSDs still did for a load when its window had ended, such as compaction. Its CPU time counts \
                  in every figure per operation, per core used and per core busy.";
        "drift": "How far the first point of a run differs when it is measured again later.";
        "flush mode": "How writes become durable: flush (a flush of the drive's cache), dsync, or none.";
        "grid": "The table that shows which thread sits on which CPU.";
        "hardware thread": "See CPU.";
        "hop": "A message from one reactor to another. An operation that arrives on a reactor that does not own its PG hops.";
        "in flight": "Sent and not yet answered.";
        "in-process": "A load that is made inside an OSD, without sockets. Its CPU time is part of the OSD's.";
        "interval": "The 95 % confidence interval of a figure.";
        "iodepth": "Operations that each job keeps in flight.";
        "job": "A thread of the generator with its own connections.";
        "knee": "The last size before the first step that gains less than half of what each unit gave at the start.";
        "machine": "CPU time of all CPUs, less what the machine used before the load, the generator, the controller and the monitor.";
        "mark": "A remark on a result. A mark begins with its word and a colon; other remarks are notes.";
        "pair": "Two measurements, one of each arm, made close together in time. Comparisons use the ratios of pairs.";
        "peer": "A real Ceph on loopback, measured in the same way.";
        "PG": "Placement group: the unit in which objects are dealt to OSDs and, within an OSD, to reactors.";
        "point": "One configuration and one load of a study, measured one or more times.";
        "prefill": "Writing the objects that a load needs, before it is measured.";
        "quota": "A limit of CPU time that a cgroup gives to an OSD in every 100 ms, as containers do.";
        "ramp": "Load before the window. It is not counted.";
        "reactor": "A thread of an OSD with its own CPU, its own io_uring and its own PGs.";
        "repeat": "One of several measurements of the same point.";
        "route": "How clients reach reactors: direct (a connection for each reactor) or single (one for each OSD, as stock clients).";
        "slice": "CPUs that are set apart for one purpose: system, OSDs, clients, aliens or neighbours.";
        "slope": "IOPS that one more unit (reactor, CPU or OSD) adds, from the clean points up to the knee.";
        "spin": "CPU time in which a reactor looked for work and found none.";
        "throttled": "Time in which a used-up quota kept an OSD from running, added up over its CPUs.";
        "tolerance": "The largest loss that a comparison accepts.";
        "used": "CPU time that the kernel counted for the OSDs, spinning included. IOPS per core used is 1,000,000 / OSD CPU us per operation.";
        "verdict": "What limited a load. docs/verdicts.md has the decision table.";
        "wait": "Time in which a thread was ready to run and had no CPU.";
        "window": "The measured part of a load.";
    }
}

/// The word of this name; its first meaning if it is both a verdict and a mark.
pub fn word(name: &str) -> Option<&'static Word> {
    WORDS.iter().find(|word| word.name == name)
}

/// All words as markdown: what `carmine help words` prints.
pub fn page() -> String {
    let mut text =
        "# Words\n\nPrinted by `carmine help words`. Terminal, report and JSON use these words.\n".to_owned();
    let heads = [
        (
            WordKind::Verdict,
            "Verdicts",
            "What limited a load. [verdicts.md](verdicts.md) says when each is given.",
        ),
        (WordKind::Mark, "Marks", "How far a result can be trusted."),
        (WordKind::Term, "Terms", "Everything else."),
    ];
    for (kind, title, about) in heads {
        let _ = write!(text, "\n## {title}\n{about}\n\n");
        for word in WORDS.iter().filter(|word| word.kind == kind) {
            let _ = writeln!(text, "- **{}**: {}", word.name, word.meaning);
        }
    }
    text
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test reads the page")]
mod tests {
    use super::*;
    use crate::verdict::Limiter;

    #[test]
    fn the_page_is_what_is_printed() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/words.md");
        let kept = std::fs::read_to_string(path).unwrap_or_default();
        assert!(kept == page(), "docs/words.md differs; write it again: carmine help words > docs/words.md");
    }

    #[test]
    fn every_limiter_is_a_word_and_each_is_defined_once() {
        let of = |kind| WORDS.iter().filter(move |word| word.kind == kind).map(|word| word.name);
        let mut verdicts: Vec<&str> = of(WordKind::Verdict).collect();
        let mut limiters = Limiter::WORDS.to_vec();
        verdicts.sort_unstable();
        limiters.sort_unstable();
        assert_eq!(verdicts, limiters);
        let mut keys: Vec<_> = WORDS.iter().map(|word| (word.kind.word(), word.name)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), WORDS.len(), "a word is defined twice");
        let terms: Vec<String> = of(WordKind::Term).map(str::to_lowercase).collect();
        assert!(terms.is_sorted(), "{terms:?}");
        assert!(WORDS.iter().all(|word| word.meaning.ends_with('.') && !word.meaning.contains("  ")));
        assert_eq!(word("NOISY").map(|word| word.kind), Some(WordKind::Mark));
        assert_eq!(word("hum"), None);
    }
}
