//! The kernel's accounting of OSDs, machine and tool at both ends of the window.

use std::time::Duration;

use crate::bench::bed::{Bed, Reading};
use crate::sample::{Sampler, Snapshot, WatchedOsd};
use carmine_load::ClientClocks;
use carmine_load::window::{ProcessWindow, Window};

use super::process::Clients;

/// Time that the machine's idle baseline is measured for.
const BASELINE: Duration = Duration::from_millis(400);

/// Reads at both ends of a window.
pub(super) struct Meter<'a> {
    bed: &'a Bed,
    baseline_cores: f64,
}

/// One reading, of the tool, too: its processes are watched like OSDs, by a sampler of their own.
pub(super) struct Readings {
    bed: Reading,
    clients: Snapshot,
    sampler: Sampler,
}

/// What was read.
pub(super) struct Metered {
    pub(super) window: Window,
    /// Of the tool's busiest thread.
    pub(super) client: ClientClocks,
}

impl<'a> Meter<'a> {
    /// Measures what the machine does anyway; nothing may load it yet.
    pub(super) fn new(bed: &'a Bed) -> anyhow::Result<Meter<'a>> {
        let before = bed.sampler.sample()?;
        std::thread::sleep(BASELINE);
        let after = bed.sampler.sample()?;
        Ok(Meter { bed, baseline_cores: bed.sampler.baseline_cores(&before, &after) })
    }

    /// The OSDs' clocks first and then the kernel's, at both ends alike.
    pub(super) fn read(&self, clients: &Clients) -> anyhow::Result<Readings> {
        let osds = self.bed.dumps();
        let watched = clients.pids().zip(0..).map(|(pid, id)| WatchedOsd { id, pid, alien_cpus: 0 });
        let sampler = Sampler::new(watched.collect(), None, Vec::new());
        let bed = Reading { osds, kernel: self.bed.sampler.sample()? };
        Ok(Readings { bed, clients: sampler.sample()?, sampler })
    }

    /// What happened between two readings.
    pub(super) fn metered(&self, begin: &Readings, end: &Readings) -> Metered {
        let mut window = self.bed.window(&begin.bed, &end.bed, self.baseline_cores);
        let tool = end.sampler.window(&begin.clients, &end.clients, 0.0);
        let processes: Vec<&ProcessWindow> = tool.osds.iter().map(|o| &o.process).collect();
        window.machine.generator_ns += processes.iter().map(|p| p.cpu_ns).sum::<u64>();
        Metered { client: hottest(&processes, window.wall_ns), window }
    }
}

/// The thread that was closest to having no time left: busy, or ready without a CPU.
fn hottest(processes: &[&ProcessWindow], wall_ns: u64) -> ClientClocks {
    let threads = processes.iter().flat_map(|p| &p.threads);
    let Some(thread) = threads.max_by_key(|t| t.cpu_ns + t.wait_ns) else { return ClientClocks::default() };
    ClientClocks { wall_ns, busy_ns: thread.cpu_ns, wait_ns: thread.wait_ns }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_load::window::ThreadWindow;

    #[test]
    fn waiting_for_a_cpu_counts_as_hot() {
        let thread = |cpu_ns, wait_ns| ThreadWindow { cpu_ns, wait_ns, ..ThreadWindow::default() };
        let process =
            ProcessWindow { threads: vec![thread(50, 0), thread(30, 40)], ..ProcessWindow::default() };
        let clocks = hottest(&[&process], 100);
        assert_eq!((clocks.busy_ns, clocks.wait_ns), (30, 40));
        assert_eq!(hottest(&[], 100), ClientClocks::default());
    }
}
