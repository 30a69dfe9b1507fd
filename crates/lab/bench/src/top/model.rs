//! The view: the difference of two readings, for people and as JSON.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, Plan, http_addr};
use carmine_topology::Grid;
use carmine_types::OsdId;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Table};
use serde::Serialize;
use serde_json::Value;

use crate::sample::{IDLE, Ticks, difference, percentile, ticks};

/// Everything of one second.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct View {
    pub(super) osds: Vec<OsdView>,
    pub(super) cpus: Vec<CpuView>,
}

/// One OSD.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct OsdView {
    pub(super) osd: usize,
    /// Why nothing else is known.
    pub(super) problem: Option<String>,
    /// By the keys of [`FIGURES`].
    #[serde(flatten)]
    pub(super) figures: BTreeMap<&'static str, Option<f64>>,
}

/// A figure of an OSD: its key in JSON; its column's title, width, digits behind the point, and unit; its metrics.
pub(super) type Figure = (&'static str, &'static str, u16, usize, f64, Of);

/// Metrics that a figure is made of.
pub(super) enum Of {
    /// Growth of their sum per second, in units of so many.
    Rate(&'static [&'static str], f64),
    /// The present sum over the shards.
    Level(&'static str),
    /// Mean in us of the times of operations that ended; absent if none did.
    Mean(&'static str),
    /// Their 99th percentile.
    P99(&'static str),
}

use Of::{Level, Mean, P99, Rate};

pub(super) const FIGURES: [Figure; 14] = [
    ("read_iops", "reads/s", 8, 0, 1.0, Rate(&["osd_read_ops"], 1.0)),
    ("write_iops", "writes/s", 8, 0, 1.0, Rate(&["osd_write_ops"], 1.0)),
    ("bytes_per_s", "MB/s", 8, 1, 1e6, Rate(&["osd_read_bytes", "osd_write_bytes"], 1.0)),
    ("read_mean_us", "read us", 8, 0, 1.0, Mean("osd_read_latency_ns")),
    ("read_p99_us", "p99 us", 8, 0, 1.0, P99("osd_read_latency_ns")),
    ("write_mean_us", "write us", 8, 0, 1.0, Mean("osd_write_latency_ns")),
    ("write_p99_us", "p99 us", 8, 0, 1.0, P99("osd_write_latency_ns")),
    // Operations that the kernel works on: disk, and sends.
    ("io_in_flight", "I/Os", 5, 0, 1.0, Level("reactor_io_in_flight")),
    // Transactions that are not durable yet, and writes that are not durable on every replica yet.
    ("txns_in_flight", "txns", 5, 0, 1.0, Level("store_txns_in_flight")),
    ("writes_in_flight", "writes", 6, 0, 1.0, Level("osd_writes_in_flight")),
    // Operations that wait for a map or a PG.
    ("ops_waiting", "waiting", 7, 0, 1.0, Level("osd_ops_waiting")),
    ("hops_per_s", "hops/s", 8, 0, 1.0, Rate(&["smp_total_sent_messages"], 1.0)),
    ("alien_cores", "aliens", 6, 2, 1.0, Rate(&["alien_cpu_busy_ms"], 1e3)),
    ("alien_jobs_per_s", "jobs/s", 7, 0, 1.0, Rate(&["alien_jobs"], 1.0)),
];

impl Of {
    /// The figure between two readings; without them nothing was done.
    fn between(&self, both: Option<(&OsdSample, &OsdSample)>) -> Option<f64> {
        let Some((before, now)) = both else {
            return matches!(self, Rate(..) | Level(_)).then_some(0.0);
        };
        let seconds = (now.taken_at_ns - before.taken_at_ns) as f64 / 1e9;
        let rate = |name: &&str| ((now.sum(name) - before.sum(name)) / seconds).max(0.0);
        match self {
            Rate(names, unit) => Some(names.iter().map(rate).sum::<f64>() / unit),
            Level(name) => Some(now.sum(name)),
            Mean(name) => now.mean_since(before, name).map(|ns| ns / 1e3),
            P99(name) => now.percentile_since(before, name, 99.0).map(|ns| ns / 1e3),
        }
    }
}

/// One CPU.
#[derive(Clone, Debug, Default, Serialize, PartialEq)]
pub(super) struct CpuView {
    pub(super) cpu: usize,
    /// Reactors that are pinned here, `osd.0/1`; several where CPUs are overprovisioned.
    pub(super) reactors: Vec<String>,
    /// The reactors' own clocks; absent on CPUs without.
    pub(super) reactor: Option<ReactorShare>,
    /// Not idle, as the kernel counts it, whoever it was.
    pub(super) kernel_busy_percent: f64,
}

/// How the reactors of a CPU spent the time: with what is left they slept.
#[derive(Clone, Copy, Debug, Default, Serialize, PartialEq)]
pub(super) struct ReactorShare {
    pub(super) busy_percent: f64,
    pub(super) spin_percent: f64,
    /// Could have run, and something else had the CPU.
    pub(super) wait_percent: f64,
}

impl View {
    /// The difference of two readings of a testbed with this grid.
    pub(super) fn between(grid: &Grid, before: &Sample, now: &Sample) -> View {
        let osds = now.osds.iter().zip(&before.osds).enumerate();
        View {
            osds: osds.map(|(osd, (now, before))| osd_view(osd, before, now)).collect(),
            cpus: cpu_views(grid, before, now),
        }
    }
}

fn osd_view(osd: usize, before: &Result<OsdSample, String>, now: &Result<OsdSample, String>) -> OsdView {
    let both = match (before, now) {
        (Ok(before), Ok(now)) if now.taken_at_ns > before.taken_at_ns => Ok((before, now)),
        (_, Err(problem)) => Err(problem.clone()),
        // It has just answered for the first time, or began anew.
        _ => Err("has just started".to_owned()),
    };
    let both_or_none = both.as_ref().ok().copied();
    let figures = FIGURES.iter().map(|(key, .., of)| (*key, of.between(both_or_none)));
    OsdView { osd, figures: figures.collect(), problem: both.err() }
}

fn cpu_views(grid: &Grid, before: &Sample, now: &Sample) -> Vec<CpuView> {
    let cpus = now.cpus.iter().filter_map(|(cpu, ticks)| {
        let old = before.cpus.get(cpu)?;
        let spent: Vec<u64> = ticks.iter().zip(old).map(|(now, old)| now.saturating_sub(*old)).collect();
        let (all, idle) = (spent.iter().sum::<u64>(), spent.get(IDLE).copied().unwrap_or(0));
        let kernel_busy_percent = if all == 0 { 0.0 } else { 100.0 * (all - idle) as f64 / all as f64 };
        let view = CpuView { cpu: *cpu as usize, kernel_busy_percent, ..CpuView::default() };
        Some(with_reactors(view, grid, before, now))
    });
    cpus.collect()
}

fn with_reactors(mut view: CpuView, grid: &Grid, before: &Sample, now: &Sample) -> CpuView {
    for row in &grid.osds {
        for slot in row.reactors.iter().filter(|slot| slot.place.cpu == view.cpu) {
            view.reactors.push(format!("osd.{}/{}", row.osd, slot.reactor));
            let samples = before.osds.get(row.osd).zip(now.osds.get(row.osd));
            let Some((Ok(before), Ok(now))) = samples else { continue };
            let wall_ms = now.taken_at_ns.saturating_sub(before.taken_at_ns) as f64 / 1e6;
            let share = |name: &str| {
                let ms = now.of_shard(name, slot.reactor) - before.of_shard(name, slot.reactor);
                if wall_ms > 0.0 { (100.0 * ms / wall_ms).clamp(0.0, 100.0) } else { 0.0 }
            };
            let sum = view.reactor.get_or_insert_default();
            sum.busy_percent += share("reactor_cpu_busy_ms");
            sum.spin_percent += share("reactor_cpu_spin_ms");
            sum.wait_percent += share("reactor_cpu_steal_time_ms");
        }
    }
    view
}

// The view on a terminal.

/// Characters of a CPU's bar.
const BAR: usize = 20;
/// Characters of a CPU's cell, with the space after it.
const CELL: u16 = 64;
/// Lines of the head, and of a table's frame with its header.
const HEAD: u16 = 1;
const FRAME: u16 = 3;

/// Names of the numbers of a CPU.
const NUMBERS: [&str; 4] = ["busy", "spin", "wait", "other"];

/// The keys, behind the title on a terminal.
const KEYS: &str = "   q quits";

/// Draws everything for a terminal; what does not fit is cut off at the bottom.
pub(super) fn draw(frame: &mut Frame<'_>, title: &str, view: &View) {
    draw_under(frame, Line::from(vec![title.bold(), KEYS.dim()]), view);
}

fn draw_under(frame: &mut Frame<'_>, title: Line<'_>, view: &View) {
    let osds = view.osds.len() as u16 + FRAME;
    let [head, table, grid] = ratatui::layout::Layout::vertical([
        Constraint::Length(HEAD),
        Constraint::Length(osds),
        Constraint::Min(FRAME),
    ])
    .areas(frame.area());
    frame.render_widget(title, head);
    frame.render_widget(osd_table(view), table);
    draw_grid(frame, grid, &view.cpus);
}

fn osd_table(view: &View) -> Table<'_> {
    let titles = std::iter::once("OSD").chain(FIGURES.iter().map(|(_, title, ..)| *title));
    let widths = std::iter::once(6).chain(FIGURES.iter().map(|(_, _, width, ..)| *width));
    Table::new(view.osds.iter().map(osd_row), widths.map(Constraint::Length))
        .header(Row::new(titles).style(Style::new().add_modifier(Modifier::BOLD)))
        .block(Block::bordered().title(
            "OSDs: operations, latency, queues (I/Os, txns, writes, waiting), hops, cores that aliens use",
        ))
}

fn osd_row(osd: &OsdView) -> Row<'static> {
    let name = format!("osd.{}", osd.osd);
    if let Some(problem) = &osd.problem {
        return Row::new([name, problem.clone()]).style(Style::new().fg(Color::Red));
    }
    let cells = FIGURES.iter().map(|(key, _, _, digits, unit, _)| match osd.figures.get(key) {
        Some(Some(value)) => format!("{:.digits$}", value / unit),
        _ => "-".to_owned(),
    });
    Row::new(std::iter::once(name).chain(cells))
}

/// CPUs in as many columns as fit.
fn draw_grid(frame: &mut Frame<'_>, area: Rect, cpus: &[CpuView]) {
    let block = Block::bordered()
        .title("CPUs, percent: # busy  ~ spinning  ! waiting for the CPU  + other (kernel's account)");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let columns = usize::from((inner.width / CELL).max(1));
    let per_column = cpus.len().div_ceil(columns).max(1);
    for (column, part) in cpus.chunks(per_column).enumerate() {
        let x = column as u16 * CELL;
        let place = Rect { x: inner.x + x, width: inner.width.saturating_sub(x).min(CELL), ..inner };
        let titles =
            format!(" CPU {:<13}{:BAR$}{}", "reactor", "", NUMBERS.map(|n| format!("{n:>6}")).concat());
        let lines = std::iter::once(Line::from(titles.bold())).chain(part.iter().map(cpu_line));
        frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()), place);
    }
}

fn cpu_line(cpu: &CpuView) -> Line<'static> {
    let owner = match cpu.reactors.as_slice() {
        [] => "-".to_owned(),
        [one] => one.clone(),
        [one, more @ ..] => format!("{one} +{}", more.len()),
    };
    let share = cpu.reactor.unwrap_or_default();
    // Time that the kernel counts beyond the reactors: generators, aliens, interrupts.
    let others = (cpu.kernel_busy_percent - share.busy_percent - share.spin_percent).max(0.0);
    let mut spans = vec![Span::raw(format!("{:>4} {owner:<13}", cpu.cpu))];
    let mut free = BAR;
    for (sign, percent, color) in [
        ('#', share.busy_percent, Color::Green),
        ('~', share.spin_percent, Color::Blue),
        ('!', share.wait_percent, Color::Red),
        ('+', others, Color::DarkGray),
    ] {
        let cells = ((percent / 100.0 * BAR as f64).round() as usize).min(free);
        free -= cells;
        spans.push(Span::styled(sign.to_string().repeat(cells), Style::new().fg(color)));
    }
    spans.push(Span::raw(" ".repeat(free)));
    let numbers = [share.busy_percent, share.spin_percent, share.wait_percent, others];
    spans.push(Span::raw(numbers.map(|n| format!("{n:>6.0}")).concat()));
    Line::from(spans)
}

/// The same as plain text, for `--once`.
pub(super) fn plain(title: &str, view: &View) -> String {
    let width = 132;
    let columns = usize::from((width - 2) / CELL);
    let height = HEAD + 2 * FRAME + (view.osds.len() + view.cpus.len().div_ceil(columns)) as u16;
    let backend = ratatui::backend::TestBackend::new(width, height);
    let Ok(mut terminal) = ratatui::Terminal::new(backend);
    let Ok(_) = terminal.draw(|frame| draw_under(frame, Line::from(title), view));
    let lines = terminal.backend().buffer().content.chunks(usize::from(width)).map(|cells| {
        let line: String = cells.iter().map(|cell| cell.symbol()).collect();
        line.trim_end().to_owned() + "\n"
    });
    lines.collect()
}

// Where the figures come from: the metrics that each OSD serves, and the kernel's account of each CPU.

/// Time for an OSD's answer: longer than a busy reactor needs, shorter than a user's patience.
const LIMIT: Duration = Duration::from_millis(900);
/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Reads the figures of one testbed.
pub(super) struct Source {
    pub(super) layout: Layout,
    pub(super) plan: Plan,
}

impl Source {
    /// True as long as any process of the testbed lives.
    pub(super) fn is_alive(&self) -> bool {
        let mut daemons = (0..self.plan.osds()).map(|id| Daemon::Osd(OsdId(id))).chain([Daemon::Mon]);
        daemons.any(|daemon| matches!(ProcessId::running(&self.layout, daemon), Ok(Some(_))))
    }

    /// Asks all OSDs. One that does not answer is an error of its own row only.
    pub(super) fn sample(&self) -> Sample {
        let ids: Vec<OsdId> = (0..self.plan.osds()).map(OsdId).collect();
        // All at once: one that hangs costs its time limit, not everybody's.
        let osds = std::thread::scope(|scope| {
            let asked: Vec<_> = ids.iter().map(|id| scope.spawn(|| self.ask(*id))).collect();
            asked
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("the question failed".into())))
                .collect()
        });
        Sample { osds, cpus: ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default()) }
    }

    fn ask(&self, id: OsdId) -> Result<OsdSample, String> {
        let addr = http_addr(&self.layout, id).ok_or("it does not run")?;
        let body = get(addr, "/metrics.json").map_err(|e| carmine_testbed::output::chain(&*e))?;
        OsdSample::parse(&body).ok_or_else(|| "its answer is not understood".into())
    }
}

/// The JSON behind `http://ADDR/TARGET`.
fn get(addr: SocketAddr, target: &str) -> Result<Value> {
    let mut stream =
        TcpStream::connect_timeout(&addr, LIMIT).with_context(|| format!("cannot reach {addr}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("no answer in time")?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 200"), "{addr} answers {status}");
    serde_json::from_str(body).context("not JSON")
}

/// All OSDs, in order, and all CPUs of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The answer of each, or why it gave none.
    pub(super) osds: Vec<Result<OsdSample, String>>,
    pub(super) cpus: BTreeMap<u32, Ticks>,
}

/// The metrics of one OSD at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OsdSample {
    /// The OSD's clock.
    pub(super) taken_at_ns: u64,
    /// By name: the value of each shard, in their order; a number, or a distribution of times: `buckets` of the upper bound `le`
    /// in ns with the `count` of values up to it, and `sum` and `count` of all values.
    metrics: BTreeMap<String, Vec<Value>>,
}

impl OsdSample {
    /// Reads an answer of `/metrics.json`; metrics that are strange are left out.
    pub(super) fn parse(answer: &Value) -> Option<OsdSample> {
        let of_metric = |metric: &Value| {
            let values = metric["values"].as_array()?.iter().map(|series| series["value"].clone());
            Some((metric["name"].as_str()?.to_owned(), values.collect()))
        };
        let metrics = answer["metrics"].as_array()?.iter().filter_map(of_metric).collect();
        Some(OsdSample { taken_at_ns: answer["taken_at_ns"].as_u64()?, metrics })
    }

    fn values(&self, name: &str) -> &[Value] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of one shard; 0 if there is none.
    pub(super) fn of_shard(&self, name: &str, shard: usize) -> f64 {
        self.values(name).get(shard).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// The sum over all shards.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.sum_at(name, "")
    }

    /// The sum over all shards of a number within their values.
    fn sum_at(&self, name: &str, place: &str) -> f64 {
        self.values(name).iter().filter_map(|value| value.pointer(place)?.as_f64()).sum()
    }

    fn growth(&self, before: &OsdSample, name: &str, place: &str) -> f64 {
        (self.sum_at(name, place) - before.sum_at(name, place)).max(0.0)
    }

    /// The mean of the values of a distribution that came since `before`; `None` if none did.
    pub(super) fn mean_since(&self, before: &OsdSample, name: &str) -> Option<f64> {
        let count = self.growth(before, name, "/count");
        (count > 0.0).then(|| self.growth(before, name, "/sum") / count)
    }

    /// The value that `percent` % of those since `before` do not exceed, interpolated within its bucket.
    pub(super) fn percentile_since(&self, before: &OsdSample, name: &str, percent: f64) -> Option<f64> {
        let both = before.values(name).iter().zip(self.values(name));
        percentile(&both.map(|(old, now)| difference(old, now)).collect::<Vec<_>>(), percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_topology::{PlanRequest, Topology};
    use serde_json::json;

    /// A testbed of two OSDs with two reactors each on eight CPUs; the second OSD never answers.
    pub(crate) fn example() -> View {
        let machine = Topology::from_short("1x8x1").unwrap();
        let request = PlanRequest { osds: 2, reactors: 2, ..PlanRequest::default() };
        let grid = Grid::plan(&machine, &request).unwrap();
        View::between(&grid, &sample(0), &sample(1))
    }

    fn sample(second: u64) -> Sample {
        let metric = |name: &str, values: [u64; 2]| json!({ "name": name, "values": [{ "shard": "0", "value": values[0] }, { "shard": "1", "value": values[1] }] });
        let answer = json!({ "taken_at_ns": 1_000 + second * 500_000_000, "metrics": [
            metric("osd_read_ops", [second * 1_000, second * 500]),
            metric("reactor_cpu_busy_ms", [second * 400, second * 50]),
            metric("reactor_cpu_spin_ms", [second * 75, 0]),
            metric("smp_total_sent_messages", [second * 20, second * 30]),
            metric("alien_cpu_busy_ms", [second * 100, 0]),
            metric("store_txns_in_flight", [3, 4]),
        ]});
        let cpus = (0..8).map(|cpu| (cpu, [second * 25, 0, 0, 0, 0, second * 75]));
        Sample {
            osds: vec![OsdSample::parse(&answer).ok_or_else(String::new), Err("gone".into())],
            cpus: cpus.collect(),
        }
    }

    #[test]
    fn rates_and_shares() {
        let view = example();
        let osd = &view.osds[0];
        for (key, want) in [
            ("read_iops", Some(3_000.0)),
            ("hops_per_s", Some(100.0)),
            ("alien_cores", Some(0.2)),
            ("txns_in_flight", Some(7.0)),
            ("read_p99_us", None),
            ("write_iops", Some(0.0)),
        ] {
            assert_eq!(osd.figures[key], want, "{key}");
        }
        let json = serde_json::to_value(osd).unwrap();
        assert_eq!((&json["read_iops"], json.as_object().unwrap().len()), (&json!(3_000.0), 16));
        assert_eq!(view.osds[1].problem.as_deref(), Some("gone"));
        let cpu = view.cpus.iter().find(|cpu| cpu.reactors == ["osd.0/0"]).unwrap();
        assert_eq!(
            cpu.reactor,
            Some(ReactorShare { busy_percent: 80.0, spin_percent: 15.0, wait_percent: 0.0 })
        );
        assert_eq!(
            (view.cpus.len(), view.cpus[7].reactor, view.cpus[7].kernel_busy_percent),
            (8, None, 25.0)
        );
    }
}

#[cfg(test)]
mod draw_tests {
    use super::*;
    use crate::top::model::tests::example;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn rendered(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, "bed", &example())).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn shows_osds_and_cpus() {
        let screen = rendered(140, 20);
        let line = |part: &str| {
            screen
                .lines()
                .find(|l| l.contains(part))
                .unwrap_or_else(|| panic!("no {part} in\n{screen}"))
                .to_owned()
        };
        assert!(line("bed").contains("q quits"), "{screen}");
        assert!(line("osd.0 ").contains("3000"), "{screen}");
        assert!(line("osd.1 ").contains("gone"), "{screen}");
        // 80 % of 20 cells, then 15 %.
        assert!(line("osd.0/0").contains(&format!("{}~~~", "#".repeat(16))), "{screen}");
        assert!(line("osd.1/1").contains("+++++"), "others have 25 %: {screen}");
    }

    #[test]
    fn small_terminals_are_no_panic() {
        for (width, height) in [(1, 1), (20, 3), (57, 8), (300, 100)] {
            rendered(width, height);
        }
    }

    #[test]
    fn text_has_every_cpu() {
        let text = plain("bed", &example());
        assert!(text.starts_with("bed\n"), "nobody can press a key: {text}");
        assert_eq!(text.matches("osd.0/").count() + text.matches("osd.1/").count(), 4);
        assert!(text.contains("busy  spin  wait other"), "numbers have names: {text}");
    }
}

#[cfg(test)]
mod source_tests {
    use super::*;
    use serde_json::json;

    fn sample(count: u64) -> OsdSample {
        let latency = json!({ "sum": count * 40_000, "count": count, "buckets": [
            { "le": 30_000, "count": 0 }, { "le": 50_000, "count": count }, { "le": 70_000, "count": count } ]});
        let answer = json!({ "taken_at_ns": 5, "metrics": [
            { "name": "ops", "values": [{ "shard": "0", "value": count }, { "shard": "1", "value": 1 }] },
            { "name": "latency", "values": [{ "shard": "0", "value": latency }] },
            { "name": "odd", "values": [{ "value": "x" }, 3] },
        ]});
        OsdSample::parse(&answer).unwrap()
    }

    #[test]
    fn numbers_by_shard() {
        let s = sample(7);
        assert_eq!(
            (s.of_shard("ops", 0), s.of_shard("ops", 1), s.sum("ops"), s.sum("none")),
            (7.0, 1.0, 8.0, 0.0)
        );
        assert_eq!(OsdSample::parse(&json!({ "error": 1 })), None);
    }

    #[test]
    fn latency_is_that_of_the_time_between() {
        let (before, now) = (sample(100), sample(300));
        assert_eq!(now.mean_since(&before, "latency"), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 50.0), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 100.0), Some(50_000.0));
        assert_eq!(
            (now.mean_since(&now, "latency"), now.percentile_since(&now, "latency", 99.0)),
            (None, None)
        );
    }

    #[test]
    fn a_server_that_is_none_of_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 404 Not Found\r\n\r\n", "hello", "HTTP/1.1 200 OK\r\n\r\n{\"a\": 1}"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let n = stream.read(&mut request).unwrap();
                assert!(request[..n].starts_with(b"GET /x HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(get(addr, "/x").unwrap_err().to_string().contains("404"));
        assert!(get(addr, "/x").is_err());
        assert_eq!(get(addr, "/x").unwrap()["a"], 1);
        server.join().unwrap();
        assert!(get(addr, "/x").unwrap_err().to_string().contains("cannot reach"));
    }
}
