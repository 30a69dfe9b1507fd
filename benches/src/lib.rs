//! Helpers that the benches share: reactors on named CPUs and a written test file.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // benches take real time and make real files

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use carmine_reactor::{Config, PollPolicy};
use criterion::Criterion;

/// Ten samples in two seconds: all benches together take about a minute, with `--quick` less.
pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
}

/// Spinning reactors pinned to CPUs 0..`shards` (unpinned if the machine has fewer).
pub fn reactors(shards: usize) -> Config {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let pin = |cpu| (shards <= cpus).then_some(cpu);
    Config {
        name: "bench".into(),
        cpus: (0..shards).map(pin).collect(),
        poll: PollPolicy::Poll,
        ..Config::default()
    }
}

/// Writes `len_bytes` of incompressible data to `path` and syncs it, so that reads find written extents.
pub fn write_file(path: &Path, len_bytes: u64) -> std::io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chunk = vec![0u8; 1 << 20];
    for _ in 0..len_bytes.div_ceil(chunk.len() as u64) {
        for word in chunk.chunks_exact_mut(8) {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            word.copy_from_slice(&state.to_le_bytes());
        }
        file.write_all(&chunk)?;
    }
    file.sync_all()
}
