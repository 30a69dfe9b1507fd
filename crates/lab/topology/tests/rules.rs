//! Rules of every grid, over random machines and requests; and the errors.

use std::collections::{BTreeMap, BTreeSet};

use carmine_topology::{ClientCpus, CpuList, Grid, PlanRequest, Strategy, Topology};
use proptest::prelude::{Just, prop_assert, prop_assert_eq, prop_compose, prop_oneof, proptest};

fn strategies() -> impl proptest::strategy::Strategy<Value = Strategy> {
    prop_oneof![
        Just(Strategy::Default),
        Just(Strategy::Osd),
        Just(Strategy::Socket),
        Just(Strategy::L3),
        Just(Strategy::Drive)
    ]
}

prop_compose! {
    fn cases()(sockets in 1usize..4, groups in 1usize..4, cores in 1usize..6, threads in 1usize..3,
               osds in 1usize..9, reactors in 1usize..7, clients in 1usize..6, strategy in strategies(),
               overprovisioned: bool) -> (Topology, PlanRequest) {
        let shape = format!("{sockets}x{groups}x{cores}x{threads}:drives={osds}");
        let topology = Topology::from_short(&shape).unwrap();
        let drives = topology.drives().map(|drive| drive.name.clone()).collect();
        let request = PlanRequest { osds, reactors, client_cpus: Some(ClientCpus::Count(clients)), strategy, overprovisioned,
                                    drives, ..PlanRequest::default() };
        (topology, request)
    }
}

fn reactor_cpus(grid: &Grid) -> Vec<usize> {
    grid.osds.iter().flat_map(|osd| osd.reactor_cpus()).collect()
}

fn no_cpu_twice(grid: &Grid) {
    let mut all = reactor_cpus(grid);
    all.extend(grid.client_cpus().iter());
    let distinct: BTreeSet<usize> = all.iter().copied().collect();
    assert_eq!(distinct.len(), all.len(), "a CPU is given twice:\n{}", grid.render());
    assert!(!grid.shared);
}

/// In `domain`'s own terms: nobody sits on a sibling as long as a core of the same domain is free.
fn siblings_last(topology: &Topology, grid: &Grid, domain: impl Fn(&carmine_topology::Cpu) -> usize) {
    let used: BTreeSet<usize> = reactor_cpus(grid).into_iter().collect();
    let free = |core: usize| {
        let mut cpus = topology.cpus().iter().filter(|c| c.core == core);
        cpus.all(|c| !used.contains(&c.cpu) && !grid.client_cpus().contains(c.cpu))
    };
    let free_first = |d: usize| topology.cpus().iter().any(|c| domain(c) == d && free(c.core));
    for cpu in topology.cpus().iter().filter(|c| used.contains(&c.cpu) && c.thread > 0) {
        assert!(
            !free_first(domain(cpu)),
            "CPU {} is a sibling, and a core is free:\n{}",
            cpu.cpu,
            grid.render()
        );
    }
}

fn strategy_holds(topology: &Topology, request: &PlanRequest, grid: &Grid) {
    for osd in &grid.osds {
        let sockets: Vec<usize> = osd.reactors.iter().map(|r| r.place.socket).collect();
        match request.strategy {
            Strategy::Default | Strategy::None | Strategy::L3 => {}
            Strategy::Drive => assert!(grid.disturbed.is_empty(), "{}", grid.render()),
            Strategy::Osd => assert!(sockets.iter().all(|s| *s == osd.osd % topology.sockets())),
            Strategy::Socket => {
                let mut counts = vec![0usize; topology.sockets()];
                sockets.iter().for_each(|s| counts[*s] += 1);
                assert!(
                    counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1,
                    "{}",
                    grid.render()
                );
            }
        }
    }
}

/// A reactor is marked if, and only if, it is on another node than its drive. (The drives have a queue for each CPU.)
fn marks_hold(topology: &Topology, grid: &Grid) {
    let node =
        |name: &Option<String>| topology.drives().find(|d| Some(&d.name) == name.as_ref()).unwrap().node;
    let slots = grid.osds.iter().flat_map(|osd| osd.reactors.iter().map(move |slot| (osd, slot)));
    let far = slots.filter(|(osd, slot)| node(&osd.drive) != Some(slot.place.node));
    let far: Vec<_> = far.map(|(osd, slot)| (osd.osd, slot.reactor, slot.place.cpu)).collect();
    let marked: Vec<_> = grid.disturbed.iter().map(|d| (d.osd, d.reactor, d.cpu)).collect();
    assert_eq!(marked, far);
    assert_eq!(grid.render().contains('~'), !far.is_empty());
}

/// The first OSDs, as many as fit when every group takes whole OSDs on whole cores, are each within one group.
fn l3_holds(topology: &Topology, request: &PlanRequest, grid: &Grid) {
    let mut cores = BTreeMap::<usize, usize>::new();
    let of_clients: BTreeSet<usize> = grid.clients.iter().map(|slot| slot.place.core).collect();
    let whole = topology.cpus().iter().filter(|c| c.thread == 0 && !of_clients.contains(&c.core));
    whole.for_each(|c| *cores.entry(c.l3).or_default() += 1);
    let fit: usize = cores.values().map(|n| n / request.reactors).sum();
    for osd in grid.osds.iter().take(fit) {
        let groups: BTreeSet<usize> = osd.reactors.iter().map(|r| r.place.l3).collect();
        assert_eq!(groups.len(), 1, "OSD {} is split:\n{}", osd.osd, grid.render());
    }
}

proptest! {
    #[test]
    fn every_grid_keeps_the_rules((topology, request) in cases()) {
        let need = request.osds * request.reactors;
        let planned = Grid::plan(&topology, &request);
        let Ok(grid) = planned else {
            let error = planned.unwrap_err();
            let Some(ClientCpus::Count(clients)) = request.client_cpus else { panic!("a count") };
            let full = ["CPUs on socket", "CPUs on node"].iter().any(|part| error.to_string().contains(part));
            // Clients may have all CPUs of a drive's node.
            let is_lone = full && request.strategy == Strategy::Drive;
            prop_assert!(!request.overprovisioned || is_lone || clients > topology.cpus().len(), "{error}");
            prop_assert!(full || need + clients > topology.cpus().len(), "{error}");
            return Ok(());
        };
        prop_assert_eq!(reactor_cpus(&grid).len(), need);
        strategy_holds(&topology, &request, &grid);
        marks_hold(&topology, &grid);
        if request.overprovisioned {
            let mut uses = BTreeMap::<usize, usize>::new();
            reactor_cpus(&grid).into_iter().chain(grid.client_cpus().iter()).for_each(|c| *uses.entry(c).or_default() += 1);
            prop_assert_eq!(grid.shared, uses.values().any(|n| *n > 1));
            return Ok(());
        }
        no_cpu_twice(&grid);
        match request.strategy {
            Strategy::Default | Strategy::L3 | Strategy::None => siblings_last(&topology, &grid, |_| 0),
            Strategy::Osd | Strategy::Socket => siblings_last(&topology, &grid, |c| c.socket),
            Strategy::Drive => siblings_last(&topology, &grid, |c| c.node),
        }
        if request.strategy == Strategy::L3 {
            l3_holds(&topology, &request, &grid);
        }
        let of_clients: BTreeSet<usize> = grid.clients.iter().map(|slot| slot.place.core).collect();
        let whole = topology.cpus().iter().filter(|c| c.thread == 0 && !of_clients.contains(&c.core));
        let whole: Vec<usize> = whole.map(|c| c.cpu).collect();
        if request.strategy == Strategy::Default && need <= whole.len() {
            prop_assert_eq!(reactor_cpus(&grid), &whole[..need]);
        }
    }
}

proptest! {
    /// Points that differ in placement must not differ in their clients.
    #[test]
    fn clients_do_not_depend_on_the_strategy((topology, request) in cases(), given in 0usize..3) {
        let client_cpus = [None, Some(ClientCpus::Rest), request.client_cpus.clone()][given].clone();
        let plan = |strategy| Grid::plan(&topology, &PlanRequest { strategy, client_cpus: client_cpus.clone(), ..request.clone() });
        let all: Vec<CpuList> = Strategy::ALL.iter().filter_map(|s| plan(*s).ok()).map(|grid| grid.client_cpus()).collect();
        prop_assert!(all.windows(2).all(|pair| pair[0] == pair[1]), "{all:?}");
        prop_assert!(all.iter().all(|cpus| !cpus.is_empty()));
    }

    #[test]
    fn reactors_that_are_not_pinned_have_what_the_others_leave((topology, request) in cases()) {
        let Ok(grid) = Grid::plan(&topology, &PlanRequest { strategy: Strategy::None, ..request.clone() }) else { return Ok(()) };
        for osd in &grid.osds {
            let floating = osd.floating.as_ref().unwrap();
            prop_assert!(osd.reactors.is_empty() && osd.aliens.own && osd.aliens.cpus == floating.cpus);
            prop_assert_eq!(floating.reactors, request.reactors);
            let beside = topology.all().difference(&grid.client_cpus());
            prop_assert!(request.overprovisioned || floating.cpus == beside, "{}", grid.render());
        }
        prop_assert!(request.overprovisioned || !grid.shared);
        prop_assert_eq!(grid.allocated_cpus(), grid.osds[0].aliens.cpus.clone());
    }

    #[test]
    fn a_cpuset_has_as_many_cpus_as_were_asked_for((topology, request) in cases(), each in 1usize..8) {
        let request = PlanRequest { cpus_per_osd: Some(each), ..request };
        let Ok(grid) = Grid::plan(&topology, &request) else { return Ok(()) };
        for osd in &grid.osds {
            let reactors: BTreeSet<usize> = osd.reactor_cpus().into_iter().collect();
            let all: BTreeSet<usize> = reactors.iter().copied().chain(osd.aliens.cpus.iter()).collect();
            prop_assert_eq!(all.len(), each, "{}", grid.render());
            prop_assert_eq!(osd.reactors.len(), request.reactors);
            prop_assert_eq!(osd.aliens.own, each <= request.reactors);
            if !osd.aliens.own {
                prop_assert!(osd.aliens.cpus.iter().all(|cpu| !reactors.contains(&cpu)));
            }
        }
        prop_assert!(request.overprovisioned || !grid.shared);
    }
}

fn list(text: &str) -> Option<CpuList> {
    Some(text.parse().unwrap())
}

fn clients(text: &str) -> Option<ClientCpus> {
    Some(text.parse().unwrap())
}

fn error(shape: &str, request: PlanRequest) -> String {
    Grid::plan(&Topology::from_short(shape).unwrap(), &request).unwrap_err().to_string()
}

#[test]
fn errors_name_the_value_and_the_change() {
    let base = PlanRequest::default;
    let cases = [
        (
            error("1x4x1", PlanRequest { osds: 3, reactors: 2, ..base() }),
            vec![
                "3 OSDs x 2 reactors need 6",
                "there are 3 (0-2), 3 being kept for clients",
                "--overprovisioned",
            ],
        ),
        (
            error("1x4x1", PlanRequest { cpus: list("0-3"), ..base() }),
            vec!["clients need 1 CPU;", "(0-3): 0;", "--client-cpus"],
        ),
        (
            error("1x4x1", PlanRequest { client_cpus: Some(ClientCpus::Count(5)), ..base() }),
            vec!["clients need 5 CPUs;", ": 4;"],
        ),
        (
            error("1x4x1", PlanRequest { system_cpus: list("0"), neighbour_cpus: list("0-1"), ..base() }),
            vec!["--system-cpus and --neighbour-cpus both have CPU 0"],
        ),
        (
            error(
                "1x4x1",
                PlanRequest { system_cpus: list("0"), neighbour_cpus: list("1-2"), reactors: 2, ..base() },
            ),
            vec!["there are 0", "0 being kept for --system-cpus, 1-2 being kept for --neighbour-cpus"],
        ),
        (
            error("1x4x1", PlanRequest { strategy: Strategy::None, reactors: 4, ..base() }),
            vec!["1 OSD x 4 reactors need 4, there are 3"],
        ),
        (
            error("1x4x1", PlanRequest { strategy: Strategy::None, cpus_per_osd: Some(1), ..base() }),
            vec!["--balance none", "--confine cpuset"],
        ),
        (
            error("1x4x1", PlanRequest { cpus: list("2-5"), ..base() }),
            vec!["--cpus 4-5", "no such CPU", "0-3"],
        ),
        (
            error("1x4x1", PlanRequest { cpus: list("0-2"), client_cpus: clients("2-3"), ..base() }),
            vec!["--cpus and --client-cpus both have CPU 2", "disjoint"],
        ),
        (
            error("1x4x1", PlanRequest { client_cpus: clients("2-3"), alien_cpus: list("3"), ..base() }),
            vec!["CPU 3", "--alien-cpus"],
        ),
        (
            error("1x4x1", PlanRequest { client_cpus: clients("1-3"), osds: 2, ..base() }),
            vec!["1-3 being kept for clients"],
        ),
        (error("1x4x1", PlanRequest { osds: 0, ..base() }), vec!["--osds is 0"]),
        (error("1x4x1", PlanRequest { cpus: list(""), ..base() }), vec!["--cpus is an empty list"]),
        (
            error(
                "2x4x1",
                PlanRequest {
                    osds: 3,
                    reactors: 2,
                    strategy: Strategy::Osd,
                    cpus: list("0-2,4-7"),
                    ..base()
                },
            ),
            vec!["OSD 2 needs 2 CPUs on socket 0", "1 of 3"],
        ),
        (
            error("1x4x1", PlanRequest { cpus_per_osd: Some(5), overprovisioned: true, ..base() }),
            vec!["--confine-cpus 5", "there are 4", "--confine quota"],
        ),
        (
            error("1x4x1", PlanRequest { osds: 2, cpus_per_osd: Some(3), ..base() }),
            vec!["2 OSDs x 3 CPUs", "need 6", "--overprovisioned"],
        ),
        (
            error("1x4x1", PlanRequest { reactors: 2, cpus_per_osd: Some(1), ..base() }),
            vec!["--reactors 2", "--confine-cpus 1", "share CPUs"],
        ),
        (error("1x4x1", PlanRequest { cpus_per_osd: Some(0), ..base() }), vec!["--confine-cpus is 0"]),
        (
            error("1x4x1", PlanRequest { cpus_per_osd: Some(2), alien_cpus: list("3"), ..base() }),
            vec!["--alien-cpus", "--confine cpuset"],
        ),
        (
            error("1x4x1", PlanRequest { strategy: Strategy::Drive, ..base() }),
            vec!["--balance drive", "OSD 0", "no drive is known", "--devs"],
        ),
        (
            error("1x4x1", PlanRequest { strategy: Strategy::Drive, drives: vec!["md0".into()], ..base() }),
            vec!["--balance drive", "the NUMA node of md0 is not known"],
        ),
        (
            error(
                "2x4x1:drives=2",
                PlanRequest {
                    osds: 2,
                    reactors: 3,
                    strategy: Strategy::Drive,
                    osds_per_device: 2,
                    drives: vec!["nvme0n1".into()],
                    ..base()
                },
            ),
            vec!["--balance drive: OSD 1 needs 3 CPUs on node 0 of its drive", "are left"],
        ),
        ("numa".parse::<Strategy>().unwrap_err().to_string(), vec!["`numa`", "l3"]),
    ];
    for (text, parts) in cases {
        for part in parts {
            assert!(text.contains(part), "`{part}` is not in: {text}");
        }
    }
}

#[test]
fn the_last_free_cores_go_before_siblings_though_that_splits_an_osd() {
    // 26 cores beside the client's for 32 reactors: OSD 6 finds two cores, in two groups.
    let topology = Topology::from_short("3x3x3x2").unwrap();
    let request = PlanRequest {
        osds: 8,
        reactors: 4,
        strategy: Strategy::L3,
        client_cpus: Some(ClientCpus::Count(1)),
        ..PlanRequest::default()
    };
    let grid = Grid::plan(&topology, &request).unwrap();
    siblings_last(&topology, &grid, |_| 0);
    let whole = |osd: usize| grid.osds[osd].reactor_cpus().iter().filter(|cpu| **cpu < 27).count();
    assert_eq!((0..8).map(whole).collect::<Vec<_>>(), [4, 4, 4, 4, 4, 4, 2, 0], "{}", grid.render());
}

#[test]
fn siblings_of_client_cores_come_late() {
    // Client on core 0: its sibling, CPU 4, is the last that a reactor gets.
    let request = PlanRequest { reactors: 7, client_cpus: clients("0"), ..PlanRequest::default() };
    let grid = Grid::plan(&Topology::from_short("1x4x2").unwrap(), &request).unwrap();
    assert_eq!(grid.osds[0].reactor_cpus(), [1, 2, 3, 4, 5, 6, 7]);
    let request = PlanRequest {
        reactors: 3,
        cpus: list("4-7"),
        client_cpus: Some(ClientCpus::Count(1)),
        ..PlanRequest::default()
    };
    let grid = Grid::plan(&Topology::from_short("1x4x2").unwrap(), &request).unwrap();
    assert_eq!(
        (grid.osds[0].reactor_cpus(), grid.client_cpus().to_string()),
        (vec![4, 5, 6], "3".to_owned())
    );
}

#[test]
fn only_clients_share() {
    let t = Topology::from_short("1x2x1").unwrap();
    let plan = |reactors, osds| {
        let request = PlanRequest { osds, reactors, overprovisioned: true, ..PlanRequest::default() };
        Grid::plan(&t, &request).unwrap()
    };
    let two = plan(2, 1);
    assert!(two.shared && two.render().contains("SHARED"));
    let alone = two.without_clients();
    assert!(!alone.shared && alone.osds.iter().all(|o| o.reactors.iter().all(|r| !r.shared)));
    assert!(alone.render().contains("clients   none") && !alone.render().contains('*'), "{}", alone.render());
    assert!(plan(1, 3).without_clients().shared);
    // A client's CPU is still better than one that a reactor has.
    let given = PlanRequest {
        reactors: 2,
        cpus: list("0-1"),
        client_cpus: clients("0"),
        overprovisioned: true,
        ..PlanRequest::default()
    };
    let grid = Grid::plan(&t, &given).unwrap();
    assert_eq!(grid.osds[0].reactor_cpus(), [1, 0]);
    assert!(grid.shared && !grid.without_clients().shared);
}

#[test]
fn aliens_default_to_the_reactors() {
    let t = Topology::from_short("1x8x1").unwrap();
    let grid = Grid::plan(&t, &PlanRequest { osds: 2, reactors: 2, ..PlanRequest::default() }).unwrap();
    assert!(grid.osds[1].aliens.own && !grid.shared);
    assert_eq!(grid.osds[1].aliens.cpus.to_string(), "2-3");
    assert_eq!(grid.allocated_cpus().to_string(), "0-3");
    let given = PlanRequest { osds: 2, reactors: 2, alien_cpus: list("5-7"), ..PlanRequest::default() };
    let grid = Grid::plan(&t, &given).unwrap();
    assert_eq!(
        (grid.osds[0].aliens.cpus.to_string(), grid.osds[1].aliens.cpus.to_string()),
        ("5".into(), "6-7".into())
    );
    assert_eq!(grid.allocated_cpus().to_string(), "0-3,5-7");
}

#[test]
fn osds_that_share_a_device_are_shown() {
    let t = Topology::from_short("1x8x1").unwrap();
    let request = PlanRequest { osds: 4, osds_per_device: 2, ..PlanRequest::default() };
    let grid = Grid::plan(&t, &request).unwrap();
    let devices: Vec<_> = grid.osds.iter().map(|osd| osd.shared_device).collect();
    assert_eq!(devices, [Some(0), Some(0), Some(1), Some(1)]);
    let text = grid.render();
    let row = text.lines().find(|line| line.starts_with('3')).unwrap();
    assert!(text.contains("shared device") && row.ends_with('1'), "{text}");
    let alone = Grid::plan(&t, &PlanRequest { osds_per_device: 1, ..request }).unwrap().render();
    assert!(!alone.contains("shared device"), "{alone}");
}
