//! Whether a peer is considered alive, and the reports about it to the monitor.

use std::time::Duration;

use carmine_wire::osd_msg::Failure;

/// Times are those of the reactor's clock.
#[derive(Debug)]
pub(super) struct Watch {
    /// When it last answered, by network.
    heard_ns: [u64; 2],
    /// It has answered at all.
    has_answered: [bool; 2],
    is_gone: bool,
    /// Flags of the last report that was sent; 0: no report, or a withdrawn one.
    reported: u8,
    /// A report was sent, and perhaps withdrawn since.
    was_reported: bool,
    /// Whether the monitors have the last report is not known: what is true now must be sent.
    is_unsure: bool,
}

/// A report to the monitor about a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Report {
    /// As in [`Failure::flags`].
    pub(super) flags: u8,
    /// How long it has not answered.
    pub(super) silent: Duration,
}

impl Watch {
    /// For a peer that is considered alive.
    pub(super) fn new(now_ns: u64) -> Watch {
        Watch {
            heard_ns: [now_ns; 2],
            has_answered: [false; 2],
            is_gone: false,
            reported: 0,
            was_reported: false,
            is_unsure: false,
        }
    }

    /// Notes an answer.
    pub(super) fn note_answer(&mut self, network: usize, now_ns: u64) {
        self.is_gone = false;
        if let Some(heard_ns) = self.heard_ns.get_mut(network) {
            *heard_ns = now_ns;
        }
        if let Some(has_answered) = self.has_answered.get_mut(network) {
            *has_answered = true;
        }
    }

    /// Whether it has answered on both networks within the grace.
    pub(super) fn answers(&self, now_ns: u64, grace: Duration) -> bool {
        !self.is_gone && self.has_answered == [true; 2] && self.silent(now_ns) <= grace
    }

    /// How long it has not answered, on the network where that is longer.
    fn silent(&self, now_ns: u64) -> Duration {
        let heard_ns = self.heard_ns.iter().min().copied().unwrap_or_default();
        Duration::from_nanos(now_ns.saturating_sub(heard_ns))
    }

    /// Notes that its port refused a connection.
    pub(super) fn note_refused(&mut self) {
        self.is_gone = true;
    }

    /// This process did not run for the last `ns`: that time does not count as silence. An answer already processed since may be
    /// newer, so the times are capped at now.
    pub(super) fn discount_silence(&mut self, ns: u64, now_ns: u64) {
        self.heard_ns.iter_mut().for_each(|heard_ns| *heard_ns = (*heard_ns + ns).min(now_ns));
    }

    /// Another session with a monitor: the last report, or its withdrawal, may have been lost with the session before.
    pub(super) fn doubt_report(&mut self) {
        self.is_unsure = self.was_reported;
    }

    /// A report was sent.
    pub(super) fn note_reported(&mut self, report: Report) {
        self.reported = report.flags;
        self.was_reported |= report.flags != 0;
        self.is_unsure = false;
    }

    /// The report that is due, if any.
    pub(super) fn report(&self, now_ns: u64, grace: Duration) -> Option<Report> {
        let silent = self.silent(now_ns);
        let flags = match self.is_gone {
            true => Failure::FAILED | Failure::IMMEDIATE,
            false if silent > grace => Failure::FAILED,
            false => 0,
        };
        (flags != self.reported || self.is_unsure).then_some(Report { flags, silent })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(20);
    const SECOND: u64 = 1_000_000_000;

    /// Sends what is due.
    fn flags(watch: &mut Watch, at_s: u64) -> Option<u8> {
        let report = watch.report(at_s * SECOND, GRACE);
        report.iter().for_each(|report| watch.note_reported(*report));
        report.map(|report| report.flags)
    }

    #[test]
    fn silence_is_reported_once_and_taken_back() {
        let mut watch = Watch::new(0);
        watch.note_answer(0, 10 * SECOND);
        assert_eq!(flags(&mut watch, 20), None);
        let report = watch.report(21 * SECOND, GRACE).unwrap();
        watch.note_reported(report);
        assert_eq!(
            (report.flags, report.silent),
            (Failure::FAILED, Duration::from_secs(21)),
            "on one network"
        );
        assert_eq!(flags(&mut watch, 30), None, "it is known");
        watch.note_answer(1, 31 * SECOND);
        assert_eq!(flags(&mut watch, 31), None, "the other network is silent now");
        watch.note_answer(0, 32 * SECOND);
        assert_eq!(flags(&mut watch, 32), Some(0));
        assert_eq!(flags(&mut watch, 33), None);
    }

    #[test]
    fn who_answers_does_so_on_both_networks() {
        let mut watch = Watch::new(0);
        let answers = |watch: &Watch, at_s: u64| watch.answers(at_s * SECOND, GRACE);
        assert!(!answers(&watch, 1), "it is only assumed to be alive");
        watch.note_answer(0, SECOND);
        assert!(!answers(&watch, 1), "on one network");
        watch.note_answer(1, 2 * SECOND);
        assert!(answers(&watch, 2) && answers(&watch, 21) && !answers(&watch, 22));
        watch.note_answer(0, 22 * SECOND);
        assert!(answers(&watch, 22));
        watch.note_refused();
        assert!(!answers(&watch, 22));
    }

    #[test]
    fn a_refused_connection_needs_no_grace() {
        let mut watch = Watch::new(0);
        watch.note_refused();
        let gone = Some(Failure::FAILED | Failure::IMMEDIATE);
        assert_eq!(flags(&mut watch, 1), gone);
        assert_eq!(flags(&mut watch, 2), None);
        watch.doubt_report();
        assert_eq!(flags(&mut watch, 3), gone, "it may not have arrived");
        watch.note_answer(0, 4 * SECOND);
        assert_eq!(flags(&mut watch, 4), Some(0));
    }

    #[test]
    fn a_report_is_withdrawn_at_another_monitor() {
        let mut watch = Watch::new(0);
        watch.note_refused();
        assert!(flags(&mut watch, 1).is_some());
        watch.note_answer(0, 2 * SECOND);
        watch.doubt_report();
        let withdrawn = watch.report(2 * SECOND, GRACE).map(|report| report.flags);
        assert_eq!(withdrawn, Some(0), "the monitors may have it all the same");
        assert_eq!(flags(&mut watch, 3), Some(0), "it is due until it is sent");
        assert_eq!(flags(&mut watch, 4), None);
        watch.doubt_report();
        assert_eq!(flags(&mut watch, 5), Some(0), "the withdrawal may have been lost");
        let mut never = Watch::new(0);
        never.doubt_report();
        assert_eq!(flags(&mut never, 5), None);
    }

    #[test]
    fn what_was_slept_through_is_no_silence() {
        let mut watch = Watch::new(0);
        watch.discount_silence(100 * SECOND, 100 * SECOND);
        assert_eq!(flags(&mut watch, 110), None);
        assert_eq!(flags(&mut watch, 121), Some(Failure::FAILED));
    }

    #[test]
    fn an_answer_that_waited_meanwhile_counts_from_when_it_was_heard() {
        let mut watch = Watch::new(0);
        watch.note_answer(0, 13 * SECOND);
        watch.note_answer(1, 13 * SECOND);
        watch.discount_silence(13 * SECOND, 13 * SECOND);
        assert_eq!(flags(&mut watch, 33), None);
        assert_eq!(flags(&mut watch, 34), Some(Failure::FAILED));
    }
}
