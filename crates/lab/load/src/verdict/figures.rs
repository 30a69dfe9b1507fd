//! The figures that the decision table compares, computed once from a window and what is known beside it.

use carmine_types::counted;

use super::{Evidence, MoreLoad};
use crate::window::{OsdWindow, ReactorWindow, Window};

/// More load that gains this many percent shows that the load was the limit; less refutes it.
pub(super) const GAIN_PERCENT: f64 = 5.0;

carmine_types::words! {
    /// A figure of a window. One without a unit of its own is in percent of the window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Figure: "figure" {
        Shared = "CPUs are shared",
        Seconds = "the window's length",
        RateAsked = "a rate was offered",
        RateMet = "the offered rate was met",
        Throttled = "an OSD was stopped by its CPU quota",
        ClientThread = "the hottest generator thread was busy or without a CPU",
        ClientCpus = "the generator used its CPUs",
        /// Only more load from CPUs that were free can refute that the generator or the depth was the limit.
        Refuted = "--confirm: more load from free CPUs gained less than 5 %",
        Helped = "--confirm: more load gained 5 % or more",
        Confirmed = "--confirm was given",
        OfDevice = "the part of the raw device that was reached",
        OfMessenger = "the part of the raw messenger that was reached",
        AboveBaseline = "the part of a raw baseline that was reached",
        DriveUnmeasured = "the store is on a drive, and there is no baseline of it",
        /// Of the time that it had its CPU: time without one is nobody's load.
        HotReactor = "the hottest reactor's work, of the time that it had its CPU",
        HotRatio = "the hottest reactor's work, compared with the mean",
        PgRatio = "the most PGs of a reactor, compared with the mean",
        ReactorMean = "the reactors were busy on average",
        ReactorMax = "the busiest reactor was busy",
        OsdCpus = "an OSD's CPUs were busy with its reactors and aliens",
        AlienPart = "the aliens' part of that work",
        CpusUsed = "OSDs without clocks (Ceph's) used the CPUs that they were given",
        Waiting = "the reactors were without a CPU on average",
        WaitingMost = "a reactor was without a CPU",
        Others = "other processes used, of one CPU",
        AlienCpus = "an OSD's alien CPUs were busy",
        AlienThread = "a thread beside the reactors was busy",
        Depth = "operations in flight that the load keeps for each reactor",
    }
}

impl Figure {
    /// What stands behind its value; `None` for those that are yes or no.
    pub(super) fn unit(self) -> Option<&'static str> {
        use Figure::{
            Confirmed, Depth, DriveUnmeasured, Helped, HotRatio, PgRatio, RateAsked, RateMet, Refuted,
            Seconds, Shared,
        };
        match self {
            Shared | RateAsked | RateMet | Refuted | Helped | Confirmed | DriveUnmeasured => None,
            Seconds => Some(" s"),
            HotRatio | PgRatio => Some(" times"),
            Depth => Some(""),
            _ => Some(" %"),
        }
    }
}

/// The figures of a window; those that do not apply or are not known have no value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    values: [Option<f64>; Figure::ALL.len()],
    /// The thread, reactor or OSD that a figure is of.
    names: [String; Figure::ALL.len()],
    pub(super) more_load: Option<MoreLoad>,
}

impl Facts {
    pub(crate) fn of(window: &Window, evidence: &Evidence) -> Facts {
        let mut facts = Facts { more_load: evidence.more_load.clone(), ..Facts::default() };
        let flag = |is: bool| Some(f64::from(u8::from(is)));
        let gain = evidence.more_load.as_ref().map(|more| (more.gain_percent(), more.own_cpus));
        let percents = [evidence.percent_of_device, evidence.percent_of_messenger];
        for (figure, value) in [
            (Figure::Shared, flag(evidence.shared)),
            (Figure::Seconds, Some(window.wall_ns as f64 / 1e9)),
            (Figure::RateAsked, flag(evidence.rate_met.is_some())),
            (Figure::RateMet, flag(evidence.rate_met == Some(true))),
            (Figure::ClientThread, evidence.client_busy.map(|part| part * 100.0)),
            (
                Figure::ClientCpus,
                evidence.client_cpus.map(|(used, cpus)| used / f64::from(cpus.max(1)) * 100.0),
            ),
            (Figure::Refuted, flag(gain.is_some_and(|(gain, own_cpus)| gain < GAIN_PERCENT && own_cpus))),
            (Figure::Helped, flag(gain.is_some_and(|(gain, _)| gain >= GAIN_PERCENT))),
            (Figure::Confirmed, flag(gain.is_some())),
            (Figure::OfDevice, percents[0]),
            (Figure::OfMessenger, percents[1]),
            (Figure::AboveBaseline, percents.into_iter().flatten().reduce(f64::max)),
            (Figure::DriveUnmeasured, flag(evidence.on_drive && percents[0].is_none())),
        ] {
            facts.set(figure, value, String::new());
        }
        if let Some((used, cpus)) = evidence.client_cpus {
            facts.names[Figure::ClientCpus as usize] =
                format!("{used:.2} of its {}", counted(cpus as usize, "CPU"));
        }
        if window.wall_ns > 0 {
            facts.reactors(window, evidence);
            window.osds.iter().for_each(|osd| facts.osd(osd, window.wall_ns as f64));
        }
        facts
    }

    pub(crate) fn get(&self, figure: Figure) -> Option<f64> {
        self.values.get(figure as usize).copied().flatten()
    }

    /// What a figure is of; empty if that is clear.
    pub(crate) fn name(&self, figure: Figure) -> &str {
        self.names.get(figure as usize).map_or("", String::as_str)
    }

    /// `95 %`
    pub(crate) fn percent(&self, figure: Figure) -> String {
        format!("{:.0} %", self.get(figure).unwrap_or(0.0))
    }

    pub(super) fn set(&mut self, figure: Figure, value: Option<f64>, name: String) {
        let at = figure as usize;
        (self.values[at], self.names[at]) = (value, name);
    }

    /// Keeps the largest value.
    fn raise(&mut self, figure: Figure, value: f64, name: impl FnOnce() -> String) {
        if self.get(figure).is_none_or(|most| value > most) {
            self.set(figure, Some(value), name());
        }
    }

    /// Figures over all reactors.
    fn reactors(&mut self, window: &Window, evidence: &Evidence) {
        let wall = window.wall_ns as f64;
        let reactors = || window.osds.iter().flat_map(|osd| osd.reactors.iter().map(move |r| (osd, r)));
        let count = reactors().count() as f64;
        let machine = &window.machine;
        if machine.cpus > 0 {
            let osds: u64 = window.osds.iter().map(|osd| osd.process.cpu_ns).sum();
            let others_ns = machine.busy_ns.saturating_sub(osds + machine.generator_ns + machine.mon_ns);
            self.set(Figure::Others, Some(others_ns as f64 / wall * 100.0), String::new());
        }
        let depth = evidence.depth / count.max(1.0);
        let raw = |percent: Option<f64>, what| percent.map(|n| format!("{n:.0} % of the raw {what}"));
        let raw =
            [raw(evidence.percent_of_device, "device"), raw(evidence.percent_of_messenger, "messenger")];
        let raw = raw.into_iter().flatten().collect::<Vec<_>>().join(" and ");
        let gave = if raw.is_empty() { raw } else { format!(", which gave {raw}") };
        let text = format!("{depth:.1} operations in flight for each reactor{gave}");
        self.set(Figure::Depth, Some(depth), text);
        if window.osds.iter().any(|osd| osd.reactors.is_empty()) && evidence.allocated_cores > 0.0 {
            let used: u64 = window.osds.iter().map(|osd| osd.process.cpu_ns).sum();
            let part = used as f64 / (wall * evidence.allocated_cores);
            self.set(Figure::CpusUsed, Some(part * 100.0), format!("{} CPUs", evidence.allocated_cores));
        }
        if count == 0.0 {
            return;
        }
        let mean = |of: &dyn Fn(&OsdWindow, &ReactorWindow) -> f64| {
            reactors().map(|(osd, r)| of(osd, r)).sum::<f64>() / count
        };
        let work = |_: &OsdWindow, r: &ReactorWindow| {
            let had = r.busy_ns + r.spin_ns + r.sleep_ns;
            if had == 0 { 0.0 } else { r.busy_ns as f64 / had as f64 * 100.0 }
        };
        let pgs = |_: &OsdWindow, r: &ReactorWindow| f64::from(r.pgs.unwrap_or(0));
        let (mean_work, mean_pgs) = (mean(&work), mean(&pgs));
        let part = 100.0 / wall;
        self.set(Figure::ReactorMean, Some(mean(&|_, r| r.busy_ns as f64 * part)), String::new());
        self.set(Figure::Waiting, Some(mean(&|osd, r| disturbed_ns(osd, r) * part)), String::new());
        for (osd, reactor) in reactors() {
            let name = || format!("reactor {} of OSD {}", reactor.shard, osd.id);
            let (busy, waiting) = (reactor.busy_ns as f64 * part, disturbed_ns(osd, reactor) * part);
            self.raise(Figure::ReactorMax, busy, name);
            self.raise(Figure::WaitingMost, waiting, name);
            let most = pgs(osd, reactor);
            if count >= 2.0 {
                let owned = || format!("a reactor owns {}", counted(most as usize, "PG"));
                let (ratio, text) = match mean_pgs > 0.0 {
                    true => (most / mean_pgs, format!("{}, the mean is {mean_pgs:.1}", owned())),
                    false => (1.0, "how many PGs each owns is not known".to_owned()),
                };
                self.raise(Figure::PgRatio, ratio, || text);
            }
            // In-process load is made on each reactor alike.
            let work = work(osd, reactor);
            if count >= 2.0 && mean_work > 0.0 && evidence.client_busy.is_some() {
                self.raise(Figure::HotReactor, work, name);
                self.raise(Figure::HotRatio, work / mean_work, || format!("{mean_work:.0} %"));
            }
        }
    }

    /// Figures of one OSD, kept if no other's is larger.
    fn osd(&mut self, osd: &OsdWindow, wall: f64) {
        let reactors = osd.reactors.len().max(1) as f64;
        let name = || format!("OSD {}", osd.id);
        if let Some(throttled_ns) = osd.process.throttled_ns {
            // The kernel adds it up over the CPUs on which threads were stopped.
            let part = (throttled_ns as f64 / (wall * reactors)).min(1.0);
            self.raise(Figure::Throttled, part * 100.0, name);
        }
        if osd.reactors.is_empty() {
            return;
        }
        let aliens = osd.alien_ns() as f64;
        if osd.alien_cpus > 0 {
            self.raise(Figure::AlienCpus, aliens / (wall * f64::from(osd.alien_cpus)) * 100.0, name);
        } else {
            // Aliens on the reactors' CPUs take what the reactors miss.
            let work = osd.reactors.iter().map(|r| r.busy_ns).sum::<u64>() as f64 + aliens;
            let part = work / (wall * reactors) * 100.0;
            if self.get(Figure::OsdCpus).is_none_or(|most| part > most) {
                self.set(Figure::OsdCpus, Some(part), name());
                self.set(Figure::AlienPart, (work > 0.0).then(|| aliens / work * 100.0), String::new());
            }
        }
        for thread in osd.process.threads.iter().filter(|t| !osd.reactors.iter().any(|r| r.tid == t.tid)) {
            let name = || format!("OSD {}'s thread {}", osd.id, thread.name);
            self.raise(Figure::AlienThread, thread.cpu_ns as f64 / wall * 100.0, name);
        }
    }
}

/// Time in which other processes kept a reactor from its CPU: what the kernel counts as waiting, less the time in which a used-up
/// quota stopped the OSD, and less that of its own aliens where they share the reactors' CPUs.
fn disturbed_ns(osd: &OsdWindow, reactor: &ReactorWindow) -> f64 {
    let waited: u64 = osd.reactors.iter().map(|r| r.wait_ns).sum();
    let own = osd.process.throttled_ns.unwrap_or(0) + if osd.alien_cpus == 0 { osd.alien_ns() } else { 0 };
    if waited == 0 {
        return 0.0;
    }
    reactor.wait_ns as f64 * (waited.saturating_sub(own) as f64 / waited as f64)
}
