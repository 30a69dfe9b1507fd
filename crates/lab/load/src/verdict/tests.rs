use super::*;
use crate::window::{DeviceWindow, OsdWindow, ProcessWindow, ReactorWindow, ThreadWindow};

const WALL: u64 = 1_000_000_000;

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
    threads.push(ThreadWindow { tid: 100, name: "osd-alien-0".into(), cpu_ns: alien_ns, wait_ns: 0 });
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
    Window { wall_ns: WALL, osds, devices: vec![device], ..Window::default() }
}

fn evidence(client: f64, depth: f64) -> Evidence {
    Evidence { client_busy: Some(client), depth, ..Evidence::default() }
}

fn raw(device: Option<f64>, messenger: Option<f64>) -> Evidence {
    Evidence { percent_of_device: device, percent_of_messenger: messenger, ..evidence(0.2, 64.0) }
}

fn more(ratio: f64, own_cpus: bool) -> Option<MoreLoad> {
    Some(MoreLoad { what: "numjobs 2".into(), iops: 1000.0 * ratio, ratio, own_cpus })
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
    let (limiter, why) = shallow(more(1.0, true));
    assert!(limiter == Limiter::Unknown && why.contains("more load (numjobs 2) gave 0 % more"), "{why}");
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
    assert_eq!(verdict(&disturbed, &evidence(0.2, 64.0)).0, Limiter::Unknown);
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
        (Limiter::Net, window(vec![osd(&[0.95], 0.0, 1)], 0.0, 0.0), raw(None, Some(95.0))),
        (Limiter::Qd, window(vec![idle()], 0.99, 0.9), evidence(0.2, 1.0)),
        (Limiter::Unknown, window(vec![idle()], 0.5, 2.0), evidence(0.2, 64.0)),
        (Limiter::Unknown, window(vec![starved()], 0.5, 2.0), evidence(0.2, 1.0)),
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
    assert!(limiter == Limiter::Client && why.contains("used 1.00 of its 1 CPU:"), "{why}");
    let (limiter, why) = verdict(&quarter, &used(7.3, 8));
    assert!(limiter == Limiter::Client && why.contains("used 7.30 of its 8 CPUs:"), "{why}");
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
}
