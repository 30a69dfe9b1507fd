//! Making a layout's folder: stores, data, age. It happens once in a run.

use std::path::Path;
use std::time::Duration;

use super::is_peer;
use super::load::client;
use super::start::{stop_step, up};
use super::step::{Step, What};
use crate::archive::Config;

/// Block file of an OSD unless the plan says otherwise.
const OSD_SIZE_BYTES: u64 = 4 << 30;
/// A prefill that is slower than this hangs.
const SLOW_BYTES_PER_S: f64 = 10e6;
const AROUND_S: f64 = 60.0;

/// True if the store keeps its data over a restart, as a peer's does.
pub fn is_durable(config: &Config) -> bool {
    is_peer(config) || config.text("store") == Some("blue")
}

/// Steps that make a layout. `size_bytes` is the largest load that any point spreads over; `start` are the options of `up`.
pub fn prepare_steps(layout: &Path, config: &Config, size_bytes: u64, start: &[String]) -> Vec<Step> {
    if !is_durable(config) {
        return Vec::new();
    }
    let osds = config.number("osds").unwrap_or(1);
    let copies = config.number("pool_size").unwrap_or(1).max(1);
    let device = config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES);
    let filled = device * osds / copies * config.number("fill").unwrap_or(0) / 100;
    let size = size_bytes.max(filled);
    let prefill_s = size as f64 * copies as f64 / SLOW_BYTES_PER_S;
    let mut steps = vec![
        up(What::Prepare, layout, config, start),
        bench(layout, config, ("read", "always"), size, Duration::from_secs(1), prefill_s),
    ];
    let age = Duration::from_secs(config.number("age").unwrap_or(0));
    if !age.is_zero() {
        steps.push(bench(layout, config, ("randwrite", "never"), size, age, 0.0));
    }
    steps.push(Step { what: What::Prepare, ..stop_step(layout, config) });
    steps
}

/// A load by the client that the points use: each names its objects its own way.
fn bench(
    layout: &Path,
    config: &Config,
    (rw, prefill): (&str, &str),
    size: u64,
    runtime: Duration,
    more_s: f64,
) -> Step {
    let layout = layout.display().to_string();
    let (size, seconds) = (size.to_string(), format!("{}s", runtime.as_secs()));
    let words = [
        "carmine",
        "bench",
        "--dir",
        &layout,
        "--rw",
        rw,
        "--bs",
        "64k",
        "--iodepth",
        "16",
        "--size",
        &size,
        "--prefill",
        prefill,
        "--runtime",
        &seconds,
    ];
    let argv = words.map(str::to_owned).into_iter().chain(client(config)).collect();
    Step::new(What::Prepare, argv, AROUND_S + more_s + runtime.as_secs_f64())
}
