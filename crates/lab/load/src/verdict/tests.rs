use super::figures::{Facts, Figure};
use super::table::Cell::{self, AtLeast, Below, No, Yes};
use super::table::ROWS;
use super::{Evidence, LevelCurve, Limiter, MoreLoad, curves, level, page};
use crate::window::{
    DeviceWindow, MachineWindow, OsdWindow, ProcessWindow, ReactorWindow, ThreadWindow, Window,
};

const WALL: u64 = 1_000_000_000;

fn verdict(window: &Window, evidence: &Evidence) -> (Limiter, String) {
    let verdict = super::verdict(window, evidence);
    assert!(!verdict.next.is_empty());
    (verdict.limiter, verdict.reason)
}

/// Facts under which only the last row holds.
fn nothing() -> Facts {
    let mut facts = Facts::default();
    for figure in Figure::ALL {
        let value = match figure {
            Figure::Seconds => 60.0,
            Figure::Depth => 64.0,
            Figure::Confirmed => 1.0,
            _ => 0.0,
        };
        facts.set(*figure, value, String::new());
    }
    facts
}

/// Makes a cell hold, or just miss.
fn put(facts: &mut Facts, cell: Cell, hit: bool) {
    let (figure, value) = match cell {
        Yes(figure) => (figure, f64::from(u8::from(hit))),
        No(figure) => (figure, f64::from(u8::from(!hit))),
        AtLeast(figure, least) => (figure, if hit { least } else { least - 1e-6 }),
        Below(figure, limit) => (figure, if hit { limit - 1e-6 } else { limit }),
    };
    facts.set(figure, value, String::new());
}

#[test]
fn each_row_is_hit_by_its_cells_and_missed_without_any_one_of_them() {
    let first = |facts: &Facts| ROWS.iter().position(|row| row.holds(facts));
    assert_eq!(first(&nothing()), Some(ROWS.len() - 1));
    for (at, row) in ROWS.iter().enumerate() {
        let mut hit = nothing();
        row.cells.iter().for_each(|cell| put(&mut hit, *cell, true));
        assert_eq!(first(&hit), Some(at), "{:?}", row.cells);
        let verdict = hit.verdict();
        assert_eq!(verdict.limiter, row.limiter);
        assert!(verdict.reason.len() > 10 && !verdict.reason.ends_with('.'), "{}", verdict.reason);
        for cell in row.cells {
            let mut missed = hit.clone();
            put(&mut missed, *cell, false);
            assert!(!row.holds(&missed), "row {at} holds without {cell}");
            assert_ne!(first(&missed), Some(at));
        }
    }
    // With everything at its limit the order decides, from the first row to the last.
    let mut all = nothing();
    for row in ROWS.iter().rev() {
        row.cells.iter().for_each(|cell| put(&mut all, *cell, true));
    }
    assert_eq!(first(&all), Some(0));
}

#[test]
fn a_figure_that_is_not_known_meets_no_condition_but_a_negative_one() {
    let facts = Facts::default();
    for row in ROWS {
        let negative = row.cells.iter().all(|cell| matches!(cell, No(_)));
        assert_eq!(row.holds(&facts), negative, "{:?}", row.cells);
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test reads the page")]
fn the_page_is_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/verdicts.md");
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page(), "docs/verdicts.md differs: carmine help verdicts > docs/verdicts.md");
}

fn osd(busy: &[f64], alien: f64, alien_cpus: u32) -> OsdWindow {
    let reactors: Vec<ReactorWindow> = busy
        .iter()
        .zip(1u32..)
        .map(|(b, tid)| ReactorWindow {
            tid,
            shard: tid - 1,
            busy_ns: (b * 1e9) as u64,
            sleep_ns: ((1.0 - b) * 1e9) as u64,
            ..ReactorWindow::default()
        })
        .collect();
    let mut threads: Vec<ThreadWindow> = reactors
        .iter()
        .map(|r| ThreadWindow { tid: r.tid, cpu_ns: r.busy_ns, ..ThreadWindow::default() })
        .collect();
    let alien_ns = (alien * 1e9) as u64;
    threads.push(ThreadWindow {
        tid: 100,
        name: "osd-alien-0".into(),
        cpu_ns: alien_ns,
        ..ThreadWindow::default()
    });
    let cpu_ns = threads.iter().map(|t| t.cpu_ns).sum();
    let process = ProcessWindow { cpu_ns, threads, ..ProcessWindow::default() };
    OsdWindow { process, reactors, alien_cpus, ..OsdWindow::default() }
}

fn window(osds: Vec<OsdWindow>, device_busy: f64, device_depth: f64) -> Window {
    let device = DeviceWindow {
        name: "vda".into(),
        busy_ns: (device_busy * 1e9) as u64,
        weighted_ns: (device_depth * 1e9) as u64,
        ..DeviceWindow::default()
    };
    // Others use a fifth of a CPU.
    let busy_ns = 200_000_000 + osds.iter().map(|osd: &OsdWindow| osd.process.cpu_ns).sum::<u64>();
    let machine = MachineWindow { cpus: 4, busy_ns, ..MachineWindow::default() };
    Window { wall_ns: WALL, osds, machine, devices: vec![device], ..Window::default() }
}

fn evidence(client: f64, depth: f64) -> Evidence {
    Evidence { client_busy: Some(client), depth, ..Evidence::default() }
}

fn raw(device: Option<f64>, messenger: Option<f64>) -> Evidence {
    Evidence { percent_of_device_limit: device, percent_of_messenger: messenger, ..evidence(0.2, 64.0) }
}

fn more(ratio: f64, own_cpus: bool) -> Option<MoreLoad> {
    Some(MoreLoad { what: "numjobs 2".into(), iops: 1000.0 * ratio, ratio, own_cpus })
}

/// `blue` randrw at iodepth 1 did what the drive does at that depth, and 11 times as much at iodepth 64.
#[test]
fn what_a_drive_does_at_a_low_depth_is_no_limit_of_it() {
    let idle = window(vec![osd(&[0.5], 0.0, 1)], 0.0, 0.0);
    let shallow = Evidence { percent_of_device: Some(96.0), depth: 1.0, ..raw(Some(9.0), None) };
    let (limiter, why) = verdict(&idle, &shallow);
    assert!(limiter == Limiter::Qd && why.contains("96 % of the raw device"), "{why}");
}

#[test]
fn a_drive_is_no_limit_where_more_load_gains_or_others_have_the_cpus() {
    let idle = window(vec![osd(&[0.5], 0.0, 1)], 0.0, 0.0);
    let reached = |more| Evidence { more_load: more, ..raw(Some(96.0), None) };
    assert_eq!(verdict(&idle, &reached(None)).0, Limiter::Device);
    assert_eq!(verdict(&idle, &reached(more(1.02, true))).0, Limiter::Device);
    assert_eq!(verdict(&idle, &reached(more(1.33, false))).0, Limiter::Qd);
    let mut contended = idle;
    contended.osds[0].reactors[0].wait_ns = 300_000_000;
    assert_eq!(verdict(&contended, &reached(None)).0, Limiter::Contended);
}

/// A second client on the same OSDs, and `dd` on their drive.
#[test]
fn work_that_is_not_the_loads_is_named() {
    let mut busy = window(vec![osd(&[0.95], 0.0, 1)], 0.0, 0.0);
    let own = |own_ops| Evidence { own_ops, ..evidence(0.2, 64.0) };
    busy.osds[0].client_ops = Some(100_000);
    assert_eq!(verdict(&busy, &own(99_900.0)).0, Limiter::Osd);
    let (limiter, why) = verdict(&busy, &own(60_000.0));
    assert!(limiter == Limiter::Contended && why.contains("39872 of 100000 operations"), "{why}");
    busy.osds[0].client_ops = None;
    assert_eq!(verdict(&busy, &own(60_000.0)).0, Limiter::Osd, "a peer does not count them");
    busy.devices[0].read_bytes = 3_085_000_000;
    assert_eq!(verdict(&busy, &own(0.0)).0, Limiter::Osd, "whose bytes they are is not known");
    busy.osds[0].process.device_read_bytes = 342_000_000;
    let (limiter, why) = verdict(&busy, &own(0.0));
    assert!(limiter == Limiter::Contended && why.contains("2743 of 3085 MB"), "{why}");
    busy.osds[0].process.device_read_bytes = 3_000_000_000;
    assert_eq!(verdict(&busy, &own(0.0)).0, Limiter::Osd);
}

#[test]
fn a_generator_that_its_quota_stops_is_the_limit() {
    let idle = window(vec![osd(&[0.2], 0.0, 1)], 0.0, 0.0);
    let (limiter, why) = verdict(&idle, &Evidence { client_throttled: Some(0.85), ..evidence(0.1, 64.0) });
    assert!(limiter == Limiter::Client && why.contains("CPU quota stopped it for 85 %"), "{why}");
    assert_eq!(
        verdict(&idle, &Evidence { client_throttled: Some(0.0), ..evidence(0.1, 64.0) }).0,
        Limiter::Unknown
    );
}

#[test]
fn more_load_confirms_or_refutes() {
    let busy = || window(vec![osd(&[0.5], 0.0, 1)], 0.0, 0.0);
    let hot = |more| verdict(&busy(), &Evidence { more_load: more, ..evidence(0.95, 64.0) });
    let (limiter, why) = hot(more(1.4, true));
    assert!(limiter == Limiter::Client && why.contains("confirmed: numjobs 2 gave 40 % more"), "{why}");
    assert_eq!(hot(more(1.01, true)).0, Limiter::Unknown);
    let (limiter, why) = hot(more(0.9, false));
    assert!(
        limiter == Limiter::Client && why.contains("no client CPU was free") && why.contains("10 % less"),
        "{why}"
    );
    let shallow = |more| verdict(&busy(), &Evidence { more_load: more, ..evidence(0.1, 1.0) });
    assert_eq!(shallow(more(1.8, true)).0, Limiter::Qd);
    let (limiter, why) = verdict(&busy(), &Evidence { more_load: more(1.4, false), ..evidence(0.1, 64.0) });
    assert!(limiter == Limiter::Qd && why.ends_with("confirmed: numjobs 2 gave 40 % more"), "{why}");
    let (limiter, why) = shallow(more(1.0, true));
    assert!(
        limiter == Limiter::Unknown && why.contains("more load was no help: numjobs 2 gave 0 % more"),
        "{why}"
    );
}

#[test]
fn uneven_pgs_and_load_are_imbalance_but_a_neighbour_is_not() {
    let mut skewed = window(vec![osd(&[0.95, 0.3], 0.0, 1)], 0.0, 0.0);
    for (reactor, pgs) in skewed.osds[0].reactors.iter_mut().zip([7, 1]) {
        reactor.pgs = Some(pgs);
    }
    let (limiter, why) = verdict(&skewed, &evidence(0.2, 64.0));
    assert_eq!(limiter, Limiter::Imbalanced);
    assert!(why.contains("reactor 0 of OSD 0") && why.contains("owns 7 PGs, the mean is 4.0"), "{why}");
    // A burner on the first reactor's CPU: it is busy whenever it has the CPU, and all wait for it.
    let mut disturbed = window(vec![osd(&[0.5, 0.3], 0.0, 1)], 0.0, 0.0);
    for (reactor, (wait_ns, sleep_ns)) in
        disturbed.osds[0].reactors.iter_mut().zip([(500_000_000, 0), (0, 700_000_000)])
    {
        (reactor.wait_ns, reactor.sleep_ns, reactor.pgs) = (wait_ns, sleep_ns, Some(4));
    }
    assert_eq!(verdict(&disturbed, &evidence(0.2, 64.0)).0, Limiter::Contended);
}

#[test]
fn each_limiter_is_named() {
    let idle = || osd(&[0.3], 0.1, 1);
    let starved = || {
        let mut osd = idle();
        osd.reactors[0].wait_ns = 650_000_000;
        osd
    };
    let cases = [
        (Limiter::Osd, window(vec![osd(&[0.95, 0.91], 0.0, 1)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Osd, window(vec![osd(&[0.99, 0.81], 0.0, 1)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Imbalanced, window(vec![osd(&[0.99, 0.2], 0.0, 1)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Osd, window(vec![osd(&[0.6], 0.35, 0)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Alien, window(vec![osd(&[0.35], 0.6, 0)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Alien, window(vec![osd(&[0.3], 1.85, 2)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Alien, window(vec![osd(&[0.3], 0.95, 4)], 0.0, 0.0), evidence(0.5, 64.0)),
        (Limiter::Client, window(vec![osd(&[0.95], 0.0, 1)], 0.0, 0.0), evidence(0.93, 64.0)),
        // How long the device was busy decides nothing.
        (Limiter::Unknown, window(vec![idle()], 0.99, 12.0), evidence(0.2, 64.0)),
        (Limiter::Device, window(vec![idle()], 0.1, 0.5), raw(Some(93.0), None)),
        (Limiter::Unknown, window(vec![idle()], 0.99, 12.0), raw(Some(89.0), Some(50.0))),
        // On loopback, messages cost the CPUs that are saturated.
        (Limiter::Osd, window(vec![osd(&[0.95], 0.0, 1)], 0.0, 0.0), raw(None, Some(95.0))),
        (Limiter::Net, window(vec![osd(&[0.6], 0.0, 1)], 0.0, 0.0), raw(None, Some(95.0))),
        (Limiter::Qd, window(vec![idle()], 0.99, 0.9), evidence(0.2, 1.0)),
        (Limiter::Unknown, window(vec![idle()], 0.5, 2.0), evidence(0.2, 64.0)),
        (Limiter::Contended, window(vec![starved()], 0.5, 2.0), evidence(0.2, 1.0)),
        (Limiter::Unknown, Window::default(), evidence(0.2, 64.0)),
    ];
    for (at, (want, window, evidence)) in cases.into_iter().enumerate() {
        let (got, why) = verdict(&window, &evidence);
        assert_eq!(got, want, "case {at}: {why}");
    }
}

#[test]
fn a_client_without_free_cpus_is_the_limit_though_none_of_its_threads_is() {
    let quarter = window(vec![osd(&[0.25], 0.0, 1)], 0.0, 0.0);
    let used = |cores, cpus| Evidence { client_cpus: Some((cores, cpus)), ..evidence(0.3, 256.0) };
    let (limiter, why) = verdict(&quarter, &used(1.0, 1));
    assert!(limiter == Limiter::Client && why.contains("used 1.00 of its 1 CPU"), "{why}");
    let (limiter, why) = verdict(&quarter, &used(7.3, 8));
    assert!(limiter == Limiter::Client && why.contains("used 7.30 of its 8 CPUs"), "{why}");
    assert_eq!(verdict(&quarter, &used(1.0, 2)).0, Limiter::Unknown);
}

#[test]
fn shared_and_open_loop() {
    let saturated = window(vec![osd(&[0.99], 0.0, 1)], 0.0, 0.0);
    assert_eq!(verdict(&saturated, &Evidence { shared: true, ..evidence(0.1, 1.0) }).0, Limiter::Shared);
    assert_eq!(verdict(&saturated, &Evidence { rate_met: Some(true), ..evidence(0.1, 1.0) }).0, Limiter::Qd);
    assert_eq!(
        verdict(&saturated, &Evidence { rate_met: Some(false), ..evidence(0.1, 1.0) }).0,
        Limiter::Osd
    );
    let idle = window(vec![osd(&[0.1], 0.0, 1)], 0.0, 0.0);
    assert_eq!(verdict(&idle, &Evidence { rate_met: Some(false), ..evidence(0.1, 1.0) }).0, Limiter::Unknown);
    assert_eq!(serde_json::to_string(&Limiter::Qd).unwrap(), "\"QD\"");
    assert_eq!(serde_json::to_string(&Limiter::Contended).unwrap(), "\"CONTENDED\"");
}

#[test]
fn a_quota_that_stops_the_osds_is_the_limit_and_no_noise() {
    let mut stopped = window(vec![osd(&[0.4, 0.4], 0.0, 1)], 0.0, 0.0);
    for reactor in &mut stopped.osds[0].reactors {
        (reactor.wait_ns, reactor.sleep_ns) = (500_000_000, 100_000_000);
    }
    assert_eq!(verdict(&stopped, &evidence(0.2, 64.0)).0, Limiter::Contended);
    let throttled = |ns| {
        let mut window = stopped.clone();
        window.osds[0].process.throttled_ns = Some(ns);
        let facts = Facts::new(&window, &evidence(0.2, 64.0));
        (facts.verdict().limiter, facts.get(Figure::Waiting).unwrap())
    };
    let mut alone = stopped.clone();
    alone.machine.busy_ns -= 150_000_000;
    assert_eq!(verdict(&alone, &evidence(0.2, 64.0)).0, Limiter::Unknown, "nobody else had the CPUs");
    // The kernel adds the time up over the OSD's two CPUs.
    assert_eq!(throttled(1_000_000_000), (Limiter::Quota, 0.0));
    let (limiter, waiting) = throttled(190_000_000);
    assert!(limiter == Limiter::Contended && (waiting - 40.5).abs() < 0.1, "{waiting}");
}

#[test]
fn aliens_on_the_reactors_cpus_are_no_other_processes() {
    let waiting = |alien_cpus| {
        let mut window = window(vec![osd(&[0.4], 0.3, alien_cpus)], 0.0, 0.0);
        window.osds[0].reactors[0].wait_ns = 300_000_000;
        Facts::new(&window, &evidence(0.2, 64.0)).get(Figure::Waiting).unwrap()
    };
    assert_eq!((waiting(0), waiting(1)), (0.0, 30.0));
}

#[test]
fn a_store_in_memory_has_no_device_to_measure() {
    let idle = window(vec![osd(&[0.5], 0.0, 1)], 0.0, 0.0);
    let of = |on_drive| super::verdict(&idle, &Evidence { on_drive, ..evidence(0.6, 64.0) });
    assert!(
        of(true).reason.contains("the drive cannot be excluded")
            && of(true).next.contains("carmine baseline")
    );
    let memory = of(false);
    assert!(!memory.reason.contains("drive") && !memory.next.contains("baseline"), "{memory:?}");
    assert!(memory.reason.contains("the hottest generator thread comes closest, at 60 %"), "{memory:?}");
}

#[test]
fn more_than_a_raw_baseline_is_a_wrong_baseline() {
    let idle = window(vec![osd(&[0.5], 0.0, 1)], 0.0, 0.0);
    assert_eq!(verdict(&idle, &raw(Some(109.0), None)).0, Limiter::Device);
    let wrong = super::verdict(&idle, &raw(Some(315.0), None));
    assert!(
        wrong.limiter == Limiter::Unknown && wrong.reason.contains("315 % of a raw baseline"),
        "{wrong:?}"
    );
    assert!(wrong.next.contains("measure the baseline again"));
    assert_eq!(verdict(&idle, &raw(None, Some(140.0))).0, Limiter::Unknown);
}

/// One point on loopback, whose share of the raw messenger was 86 to 94 % in its repeats.
#[test]
fn repeats_of_a_shallow_point_on_loopback_have_one_verdict() {
    let busy = window(vec![osd(&[0.55], 0.0, 1)], 0.0, 0.0);
    for percent in [86.0, 89.9, 90.0, 94.0, 112.0] {
        let shallow = Evidence { depth: 4.0, ..raw(None, Some(percent)) };
        let (limiter, why) = verdict(&busy, &shallow);
        assert!(limiter == Limiter::Qd && why.contains("4.0 operations in flight"), "{why}");
    }
}

#[test]
fn osds_without_clocks_are_judged_by_their_cpus() {
    let of = |cpu_ns, allocated_cores, depth| {
        let process = ProcessWindow { cpu_ns, ..ProcessWindow::default() };
        let peer = window(vec![OsdWindow { process, ..OsdWindow::default() }], 0.0, 0.0);
        verdict(&peer, &Evidence { allocated_cores, ..evidence(0.3, depth) })
    };
    let (limiter, why) = of(1_900_000_000, 2.0, 1.0);
    assert!(limiter == Limiter::Osd && why.contains("used 95 % of the 2 CPUs"), "{why}");
    assert_eq!(of(1_700_000_000, 2.0, 1.0).0, Limiter::Qd);
    assert_eq!(of(1_700_000_000, 2.0, 64.0).0, Limiter::Unknown);
    assert_eq!(of(1_900_000_000, 0.0, 64.0).0, Limiter::Unknown, "nothing is known of their CPUs");
}

/// Random reads of study 2: IOPS of the level, CPU of the OSDs (of 4,000 %) and of the clients (of 800 %).
fn published(arm: &str, iops: f64) -> LevelCurve {
    LevelCurve {
        arm: arm.into(),
        iops,
        osd_cpus_used: 8.6,
        osd_cpus: 40.0,
        client_cpus_used: 4.9,
        client_cpus: 8.0,
    }
}

#[test]
fn the_published_curves_measured_the_client() {
    let found = curves(&[published("memory", 190_000.0), published("disk", 180_000.0)]).unwrap();
    assert_eq!(found.limiter, Limiter::Client);
    for part in [
        "memory levels off at 190000 IOPS",
        "disk levels off at 180000 IOPS",
        "8.6 of 40 CPUs",
        "4.9 of 8",
        "The OSDs were not the limit",
        "the client",
    ] {
        assert!(found.reason.contains(part), "no {part:?} in: {}", found.reason);
    }
    assert!(found.next.contains("client CPUs"));
}

#[test]
fn busy_osds_and_levels_of_their_own_are_no_suspicion() {
    let busy = LevelCurve { osd_cpus_used: 36.0, ..published("disk", 180_000.0) };
    assert_eq!(curves(&[published("memory", 190_000.0), busy]), None);
    assert_eq!(curves(&[published("memory", 190_000.0), published("disk", 120_000.0)]), None);
    assert_eq!(curves(&[published("memory", 190_000.0)]), None, "one arm is no common cause");
    let unknown = LevelCurve { osd_cpus: 0.0, ..published("disk", 180_000.0) };
    assert_eq!(curves(&[published("memory", 190_000.0), unknown]), None, "nothing is known of its CPUs");
    assert_eq!(curves(&[]), None);
}

#[test]
fn a_full_client_is_the_suspect_of_one_arm_and_an_idle_one_never() {
    let full = LevelCurve { client_cpus_used: 7.6, ..published("memory", 190_000.0) };
    assert_eq!(curves(&[full]).map(|s| s.limiter), Some(Limiter::Client));
    let idle = |arm| LevelCurve { client_cpus_used: 0.8, ..published(arm, 190_000.0) };
    assert_eq!(curves(&[idle("memory"), idle("disk")]).map(|s| s.limiter), Some(Limiter::Net));
}

#[test]
fn levels_of_curves() {
    let near = |found: Option<f64>, want: f64| (found.unwrap() / want - 1.0).abs() < 0.01;
    assert!(near(level(&[20e3, 90e3, 170e3, 182e3, 188e3, 186e3]), 181.5e3));
    assert_eq!(level(&[20e3, 40e3, 80e3, 160e3]), None, "it still rises");
    assert_eq!(level(&[20e3, 180e3, 190e3, 100e3]), None, "it falls");
    assert_eq!(level(&[]), None);
}
