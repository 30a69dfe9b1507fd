//! Sums of sampled CPU time against the kernel's own. A process of its own: threads of other tests would be in the sums.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "starts threads and reads clocks as the controller does"
)]

use std::time::{Duration, Instant};

use carmine_bench::sample::series::Recorder;
use carmine_bench::sample::{Sampler, WatchedOsd};

/// CPU time of this process by the kernel's exact clock.
fn kernel_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

carmine_testkit::measures!(sums_of_cpu_time_equal_the_kernels);

fn sums_of_cpu_time_equal_the_kernels() {
    let window = Duration::from_millis(2_150);
    // The threads outlive the window: those that end take their figures with them.
    let end = Instant::now() + window + Duration::from_millis(400);
    let burn = move || {
        while Instant::now() < end {
            std::hint::spin_loop();
        }
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(burn)).collect();
    let me = WatchedOsd { id: 0, pid: std::process::id(), alien_cpus: 0 };
    let sampler = Sampler::new(vec![me], vec![], vec![]);
    let before = kernel_ns();
    let recorder = Recorder::start(sampler, vec![], &[]).unwrap();
    std::thread::sleep(window);
    let samples = recorder.finish().unwrap();
    let kernel_s = (kernel_ns() - before) as f64 / 1e9;
    threads.into_iter().for_each(|t| t.join().unwrap());
    let by_threads: f64 = samples.threads.iter().map(|t| t.user_s + t.system_s).sum();
    assert!((by_threads / kernel_s - 1.0).abs() < 0.02, "threads {by_threads} s, kernel {kernel_s} s");
    let sampled: f64 = samples.series["osd_cores"].iter().flatten().sum();
    assert!(samples.t_ms.len() == 2 && sampled > 0.5 * kernel_s, "{samples:?}");
    for cpu in &samples.cpus {
        let rows = [&cpu.user, &cpu.system, &cpu.irq, &cpu.softirq, &cpu.steal, &cpu.idle];
        let sum: f64 = rows.iter().filter_map(|row| row[0]).sum();
        assert!((sum - 1.0).abs() < 0.02, "CPU {}: {sum}", cpu.cpu);
    }
    assert!(samples.instrument.cores < 0.5 && samples.cores_used_10ms.is_some_and(|c| c.max > 0.0));
}
