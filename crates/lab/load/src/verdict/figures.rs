//! The figures that the decision table compares, computed once from a window and what is known beside it.

use carmine_types::counted;

use super::{Evidence, MoreLoad};
use crate::window::{DeviceWindow, OsdWindow, ProcessWindow, ReactorWindow, Window};

/// If more load gains this many percent, the load was the limit; a smaller gain refutes that.
pub(super) const GAIN_PERCENT: f64 = 5.0;
/// Bytes that a file system and a quiet system move for themselves, a second.
const FOREIGN_BYTES_PER_S: f64 = 8e6;

carmine_types::words! {
    /// A figure of a window. One without a unit of its own is in percent of the window.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Figure: "figure" {
        Shared = "CPUs are shared",
        Seconds = "the window's length",
        RateAsked = "a rate was offered",
        RateMet = "the offered rate was met",
        Throttled = "an OSD was stopped by its CPU quota",
        ForeignOps = "operations of the OSDs that are not the load's, of all of them",
        ForeignBytes = "bytes that the drives moved for other programs, of all of them",
        ClientThrottled = "the generator was stopped by its CPU quota",
        ClientThread = "the hottest generator thread was busy or without a CPU",
        ClientCpus = "the generator used its CPUs",
        /// Only more load from CPUs that were free can refute that the generator or the depth was the limit.
        Refuted = "--confirm: more load from free CPUs gained less than 5 %",
        Helped = "--confirm: more load gained 5 % or more",
        Confirmed = "--confirm was given",
        OfDevice = "the part of what the raw device does at its best depth that was reached",
        OfMessenger = "the part of the raw messenger that was reached",
        AboveBaseline = "the part of a raw baseline that was reached",
        DriveUnmeasured = "the store is on a drive, and there is no baseline of it",
        /// Of the time that it had its CPU: time without one is no load.
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
        InOnePlace = "the part of an operation's latency that passes in the place that has most of it",
        Depth = "operations in flight that the load keeps for each reactor",
    }
}

impl Figure {
    /// The unit behind its value, if it has one: some are yes or no.
    pub(super) fn unit(self) -> &'static str {
        match self {
            Figure::Seconds => " s",
            Figure::HotRatio | Figure::PgRatio => " times",
            Figure::Depth => "",
            _ => " %",
        }
    }
}

/// The figures of a window; those that do not apply or are not known have no value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The value of each figure, and the thread, reactor or OSD that it is of.
    values: [Option<(f64, String)>; Figure::ALL.len()],
    pub(super) more_load: Option<MoreLoad>,
}

impl Facts {
    pub(crate) fn new(window: &Window, evidence: &Evidence) -> Facts {
        let mut facts = Facts { more_load: evidence.more_load.clone(), ..Facts::default() };
        let more = evidence.more_load.as_ref().map(|more| (more.gain_percent(), more.own_cpus));
        let (limit, messenger) = (evidence.percent_of_device_limit, evidence.percent_of_messenger);
        let device = limit.or(evidence.percent_of_device);
        let is = |is: bool| Some(f64::from(u8::from(is)));
        for (figure, value) in [
            (Figure::Shared, is(evidence.shared)),
            (Figure::RateAsked, is(evidence.rate_met.is_some())),
            (Figure::RateMet, is(evidence.rate_met == Some(true))),
            (Figure::Refuted, is(more.is_some_and(|(gain, own_cpus)| gain < GAIN_PERCENT && own_cpus))),
            (Figure::Helped, is(more.is_some_and(|(gain, _)| gain >= GAIN_PERCENT))),
            (Figure::Confirmed, is(more.is_some())),
            (Figure::DriveUnmeasured, is(evidence.on_drive && limit.is_none())),
            (Figure::Seconds, Some(window.wall_ns as f64 / 1e9)),
            (Figure::OfDevice, limit),
            (Figure::OfMessenger, messenger),
            (Figure::AboveBaseline, device.into_iter().chain(messenger).reduce(f64::max)),
        ] {
            value.into_iter().for_each(|value| facts.set(figure, value, String::new()));
        }
        for (figure, part, host) in [
            (Figure::ClientThread, evidence.client_busy, &evidence.client_host),
            (Figure::ClientThrottled, evidence.client_throttled, &evidence.throttled_host),
        ] {
            let name = host.as_ref().map(|host| format!(" of load host {host}")).unwrap_or_default();
            part.into_iter().for_each(|part| facts.set(figure, part * 100.0, name.clone()));
        }
        if let Some((used, cpus)) = evidence.client_cpus {
            let name = format!("{used:.2} of its {}", counted(cpus as usize, "CPU"));
            facts.set(Figure::ClientCpus, used / f64::from(cpus.max(1)) * 100.0, name);
        }
        facts.places(evidence);
        if window.wall_ns > 0 {
            facts.cluster(window, evidence);
            facts.foreign(window, evidence);
            facts.reactors(window, evidence.client_busy.is_some());
            window.osds.iter().for_each(|osd| facts.osd(osd, window.wall_ns as f64));
        }
        facts
    }

    pub(crate) fn get(&self, figure: Figure) -> Option<f64> {
        self.values[figure as usize].as_ref().map(|(value, _)| *value)
    }

    /// The subject of a figure; empty if that is clear.
    pub(crate) fn name(&self, figure: Figure) -> &str {
        self.values[figure as usize].as_ref().map_or("", |(_, name)| name)
    }

    /// `95 %`
    pub(crate) fn percent(&self, figure: Figure) -> String {
        format!("{:.0} %", self.get(figure).unwrap_or(0.0))
    }

    pub(super) fn set(&mut self, figure: Figure, value: f64, name: String) {
        self.values[figure as usize] = Some((value, name));
    }

    /// Keeps the largest value; true if that is this one.
    fn raise(&mut self, figure: Figure, value: f64, name: &str) -> bool {
        let is_most = self.get(figure).is_none_or(|most| value > most);
        if is_most {
            self.set(figure, value, name.to_owned());
        }
        is_most
    }

    /// Figures of all OSDs and the machine together.
    fn cluster(&mut self, window: &Window, evidence: &Evidence) {
        let (wall, machine, osds_ns) = (window.wall_ns as f64, &window.machine, window.osds_ns());
        if machine.cpus > 0 {
            let others_ns = machine.busy_ns.saturating_sub(osds_ns + machine.generator_ns + machine.mon_ns);
            self.set(Figure::Others, others_ns as f64 / wall * 100.0, String::new());
        }
        let reactors: usize = window.osds.iter().map(|osd| osd.reactors.len()).sum();
        let depth = evidence.depth / reactors.max(1) as f64;
        let raw = [("device", evidence.percent_of_device), ("messenger", evidence.percent_of_messenger)];
        let raw = raw.iter().filter_map(|(what, part)| Some(format!("{:.0} % of the raw {what}", (*part)?)));
        let raw = raw.collect::<Vec<_>>().join(" and ");
        let gave = if raw.is_empty() { raw } else { format!(", which gave {raw}") };
        self.set(Figure::Depth, depth, format!("{depth:.1} operations in flight for each reactor{gave}"));
        let cores = evidence.allocated_cores;
        if cores > 0.0 && window.osds.iter().any(|osd| osd.reactors.is_empty()) {
            self.set(Figure::CpusUsed, osds_ns as f64 / (wall * cores) * 100.0, format!("{cores} CPUs"));
        }
    }

    /// The place where most of an operation's latency passes.
    fn places(&mut self, evidence: &Evidence) {
        let most = evidence.places_us.iter().max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((latency_us, (place, us))) = evidence.latency_us.filter(|us| *us > 0.0).zip(most) else {
            return;
        };
        let name = format!("of an operation's {latency_us:.0} us pass {place}");
        self.set(Figure::InOnePlace, us / latency_us * 100.0, name);
    }

    /// Work of others: operations of other clients, and bytes that the drives moved beyond those of the OSDs.
    fn foreign(&mut self, window: &Window, evidence: &Evidence) {
        let counted: Option<u64> = window.osds.iter().map(|osd| osd.client_ops).sum();
        if let Some(all) = counted.map(|ops| ops as f64).filter(|ops| *ops > 0.0 && !window.osds.is_empty()) {
            // The window's two ends are not seen at the same moment by the OSDs and by the load.
            let foreign = (all - evidence.own_ops - 2.0 * evidence.depth).max(0.0);
            let name = format!("{foreign:.0} of {all:.0} operations");
            self.set(Figure::ForeignOps, foreign / all * 100.0, name);
        }
        let own = |of: fn(&ProcessWindow) -> u64| window.osds.iter().map(|osd| of(&osd.process)).sum::<u64>();
        let moved = |of: fn(&DeviceWindow) -> u64| window.devices.iter().map(of).sum::<u64>();
        let (reads, own_reads) = (moved(|device| device.read_bytes), own(|osd| osd.device_read_bytes));
        let (writes, own_writes) = (moved(|device| device.write_bytes), own(|osd| osd.device_write_bytes));
        // A process whose bytes cannot be read seems to have moved none.
        if own_reads + own_writes > 0 && reads + writes > 0 {
            let [foreign, all] =
                [reads.saturating_sub(own_reads) + writes.saturating_sub(own_writes), reads + writes]
                    .map(|bytes| bytes as f64);
            let is_much = foreign / (window.wall_ns as f64 / 1e9) >= FOREIGN_BYTES_PER_S;
            let part = if is_much { foreign / all * 100.0 } else { 0.0 };
            let name = format!("{:.0} of {:.0} MB", foreign / 1e6, all / 1e6);
            self.set(Figure::ForeignBytes, part, name);
        }
    }

    /// Figures over all reactors. In-process load is made on each reactor alike: none of them is `hot`.
    fn reactors(&mut self, window: &Window, may_be_hot: bool) {
        let reactors: Vec<(&OsdWindow, &ReactorWindow)> =
            window.osds.iter().flat_map(|osd| osd.reactors.iter().map(move |r| (osd, r))).collect();
        let (part, count) = (100.0 / window.wall_ns as f64, reactors.len() as f64);
        let work =
            |r: &ReactorWindow| r.busy_ns as f64 * 100.0 / (r.busy_ns + r.spin_ns + r.sleep_ns).max(1) as f64;
        let pgs = |r: &ReactorWindow| f64::from(r.pgs.unwrap_or(0));
        let mean = |of: &dyn Fn(&OsdWindow, &ReactorWindow) -> f64| {
            reactors.iter().map(|(osd, r)| of(osd, r)).sum::<f64>() / count
        };
        let (mean_work, mean_pgs) = (mean(&|_, r| work(r)), mean(&|_, r| pgs(r)));
        if count > 0.0 {
            self.set(Figure::ReactorMean, mean(&|_, r| r.busy_ns as f64 * part), String::new());
            self.set(Figure::Waiting, mean(&|osd, r| disturbed_ns(osd, r) * part), String::new());
        }
        for (osd, reactor) in &reactors {
            let name = format!("reactor {} of OSD {}", reactor.shard, osd.id);
            self.raise(Figure::ReactorMax, reactor.busy_ns as f64 * part, &name);
            self.raise(Figure::WaitingMost, disturbed_ns(osd, reactor) * part, &name);
            if count < 2.0 {
                continue;
            }
            let (most, work) = (pgs(reactor), work(reactor));
            let owned = counted(most as usize, "PG");
            if mean_pgs > 0.0 {
                let text = format!("a reactor owns {owned}, the mean is {mean_pgs:.1}");
                self.raise(Figure::PgRatio, most / mean_pgs, &text);
            } else {
                self.raise(Figure::PgRatio, 1.0, "how many PGs each owns is not known");
            }
            if mean_work > 0.0 && may_be_hot {
                self.raise(Figure::HotReactor, work, &name);
                self.raise(Figure::HotRatio, work / mean_work, &format!("{mean_work:.0} %"));
            }
        }
    }

    /// Figures of one OSD, kept if no other's is larger.
    fn osd(&mut self, osd: &OsdWindow, wall: f64) {
        let reactors = osd.reactors.len().max(1) as f64;
        let name = format!("OSD {}", osd.id);
        if let Some(throttled_ns) = osd.process.throttled_ns {
            // The kernel adds it up over the CPUs on which threads were stopped.
            let part = (throttled_ns as f64 / (wall * reactors)).min(1.0);
            self.raise(Figure::Throttled, part * 100.0, &name);
        }
        if osd.reactors.is_empty() {
            return;
        }
        let aliens = osd.alien_ns() as f64;
        // Aliens on the reactors' CPUs take what the reactors miss.
        let work = osd.sum(|r| r.busy_ns) as f64 + aliens;
        if osd.alien_cpus > 0 {
            self.raise(Figure::AlienCpus, aliens / (wall * f64::from(osd.alien_cpus)) * 100.0, &name);
        } else if self.raise(Figure::OsdCpus, work / (wall * reactors) * 100.0, &name) && work > 0.0 {
            self.set(Figure::AlienPart, aliens / work * 100.0, String::new());
        }
        for thread in osd.others() {
            let name = format!("{name}'s thread {}", thread.name);
            self.raise(Figure::AlienThread, thread.cpu_ns as f64 / wall * 100.0, &name);
        }
    }
}

/// Time in which other processes kept a reactor from its CPU: what the kernel counts as waiting, less the time in which a used-up
/// quota stopped the OSD, and less that of its own aliens where they share the reactors' CPUs.
fn disturbed_ns(osd: &OsdWindow, reactor: &ReactorWindow) -> f64 {
    let waited = osd.sum(|r| r.wait_ns);
    let own = osd.process.throttled_ns.unwrap_or(0) + if osd.alien_cpus == 0 { osd.alien_ns() } else { 0 };
    reactor.wait_ns as f64 * waited.saturating_sub(own) as f64 / waited.max(1) as f64
}
