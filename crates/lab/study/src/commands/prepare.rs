//! Making a layout's folder: stores, data, age. It happens once in a run.

use std::path::Path;

use super::load::{client, volumes};
use super::start::{stop_step, up};
use super::step::{Step, What};
use super::{is_hosted, is_peer};
use crate::archive::Config;

/// Block file of an OSD if the plan does not name it.
const OSD_SIZE_BYTES: u64 = 4 << 30;
/// A prefill that is slower than this hangs.
const SLOW_BYTES_PER_S: f64 = 10e6;
const AROUND_S: f64 = 60.0;
/// Bound of a step on named devices, whose size is not known here.
const DEVICE_LIMIT_S: f64 = 86_400.0;

/// True if the store keeps its data over a restart, as a peer's does.
pub fn is_durable(config: &Config) -> bool {
    is_peer(config) || config.text("store") == Some("blue")
}

/// What a layout is made for.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The largest load that any point spreads over, bytes.
    pub size_bytes: u64,
    /// Of the writes that age the store: the same for all layouts of a run.
    pub seed: u64,
    /// Options of `up`.
    pub start: &'a [String],
    /// Points whose load another client makes, or in other volumes: each names its objects its own way.
    pub others: &'a [Config],
}

/// Steps that make a layout.
pub fn prepare_steps(layout: &Path, config: &Config, prepare: &Prepare<'_>) -> Vec<Step> {
    if !is_durable(config) {
        return Vec::new();
    }
    let count = |axis: &str| config.number(axis).filter(|n| *n > 0);
    let size = ["--size".to_owned(), prepare.size_bytes.to_string()];
    let filled = count("fill").map(|percent| ["--fill".to_owned(), percent.to_string()]);
    let by = |config: &Config, words: &[&str], size: &[String; 2], bytes: Option<u64>| {
        let limit_s = bytes.map_or(DEVICE_LIMIT_S, |bytes| AROUND_S + bytes as f64 / SLOW_BYTES_PER_S);
        bench(layout, config, words, size, limit_s)
    };
    let bench = |words: &[&str], size: &[String; 2], bytes| by(config, words, size, bytes);
    let bytes = filled_bytes(config, prepare);
    let copies = count("pool_size").unwrap_or(1);
    let once = |bytes: u64| bytes * copies;
    let write = ["--rw", "read", "--runtime", "1s", "--prefill"];
    let with = |word: &'static str| [&write[..], &[word]].concat();
    let mut steps = vec![up(What::Prepare, layout, config, prepare.start)];
    if let Some(filled) = &filled {
        steps.push(bench(&with("always"), filled, bytes.map(once)));
    }
    let rest = if filled.is_some() { "auto" } else { "always" };
    for config in std::iter::once(config).chain(prepare.others) {
        // What rados bench reads has the points' names: they write it themselves.
        if config.text("client") != Some("rados-bench") {
            steps.push(by(config, &with(rest), &size, Some(once(prepare.size_bytes))));
        }
    }
    if let Some(rounds) = count("age") {
        let (rounds_s, seed) = (rounds.to_string(), prepare.seed.to_string());
        let words = ["--age", &rounds_s, "--seed", &seed, "--prefill", "never"];
        let all = bytes.map(|bytes| once(bytes).saturating_mul(rounds));
        steps.push(bench(&words, filled.as_ref().unwrap_or(&size), all));
    }
    steps.push(Step { what: What::Prepare, ..stop_step(layout, config) });
    steps
}

/// Bytes that are filled, and overwritten by a round of aging; `None` on named devices.
fn filled_bytes(config: &Config, prepare: &Prepare<'_>) -> Option<u64> {
    let Some(percent) = config.number("fill").filter(|percent| *percent > 0) else {
        return Some(prepare.size_bytes);
    };
    let number = |axis: &str| config.number(axis).unwrap_or(1).max(1);
    let each = config.number("osd_size_bytes").unwrap_or(OSD_SIZE_BYTES);
    let on_files = !prepare.start.iter().any(|word| word == "--devs");
    on_files.then(|| each * number("osds") / number("pool_size") * percent / 100)
}

/// A load by the client that the points use: each names its objects its own way.
fn bench(layout: &Path, config: &Config, words: &[&str], size: &[String; 2], limit_s: f64) -> Step {
    let layout = layout.display().to_string();
    let head = ["carmine", "bench", "--dir", &layout, "--bs", "64k", "--iodepth", "16"];
    let words = head.iter().chain(words).map(|word| (*word).to_owned());
    let mut argv: Vec<String> = words.chain(size.iter().cloned()).collect();
    if is_hosted(config) {
        argv.extend(volumes(config));
    }
    argv.extend(client(config));
    Step::new(What::Prepare, argv, limit_s)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::shell_line;

    fn lines(axes: &[(&str, u64)], client: &str) -> Vec<String> {
        let mut config = Config::default();
        config.set("store", "blue");
        config.set("client", client);
        axes.iter().for_each(|(axis, value)| config.set(axis, *value));
        let mut other = Config::default();
        other.set("client", "fio-rados");
        let others = if client == "own" { vec![other] } else { Vec::new() };
        let prepare = Prepare { size_bytes: 1 << 26, seed: 7, start: &[], others: &others };
        let steps = prepare_steps(Path::new("/l"), &config, &prepare);
        steps.iter().map(|step| shell_line(&step.argv)).filter(|line| line.contains("bench ")).collect()
    }

    #[test]
    fn the_load_is_written_once_by_each_client() {
        let own = "carmine bench --dir /l --bs 64k --iodepth 16 --rw read --runtime 1s --prefill always";
        let wanted = [format!("{own} --size 67108864"), format!("{own} --size 67108864 --client fio-rados")];
        assert_eq!(lines(&[], "own"), wanted);
        assert!(lines(&[], "rados-bench").is_empty(), "its points have names of their own");
    }

    #[test]
    fn stores_are_filled_and_then_aged_by_the_same_writes() {
        let lines = lines(&[("fill", 70), ("age", 2)], "fio-rbd");
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].contains("--prefill always --fill 70"), "{}", lines[0]);
        assert!(lines[1].contains("--prefill auto --size 67108864"), "{}", lines[1]);
        let aged = "carmine bench --dir /l --bs 64k --iodepth 16 --age 2 --seed 7 --prefill never --fill 70";
        assert!(lines[2].starts_with(aged) && lines[2].ends_with("--client fio-rbd"), "{}", lines[2]);
    }
}
