//! The instrument is right about what limits a load: each limiter is made on purpose, and the verdict must name it. Each
//! attempt takes a few seconds; the machine may be busy with other things, so there are three, with their reasons.
//! `scripts/truth` counts how many of twenty runs are right. Run by `scripts/test --all`.

use std::time::Duration;

use carmine_tests::skip;
use carmine_tests::truth::Fault;

const ATTEMPTS: usize = 3;
const WINDOW: Duration = Duration::from_millis(1500);

fn is_named(fault: &str) {
    let fault = Fault::named(fault).expect("a fault of the table");
    let faulty = match fault.start() {
        Ok(faulty) => faulty,
        Err(why) => return skip(why),
    };
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        seen.push(faulty.run(WINDOW));
        if seen.last().is_some_and(|seen| fault.is_named_by(seen)) {
            return;
        }
    }
    panic!("{} must be named {:?}; {ATTEMPTS} attempts gave {seen:#?}", fault.name, fault.expected);
}

/// A test for each fault, so that each failure has a name of its own.
macro_rules! faults {
    ($($test:ident: $fault:literal),* $(,)?) => {
        $(fn $test() {
            is_named($fault);
        })*

        carmine_testkit::measures!($($test),*);

        #[test]
        fn every_fault_has_a_test() {
            let tested = [$($fault),*];
            let all: Vec<&str> = carmine_tests::truth::FAULTS.iter().map(|fault| fault.name).collect();
            assert_eq!(all, tested);
        }
    };
}

faults! {
    a_busy_neighbour_is_named: "busy-neighbour",
    a_throttled_generator_is_named: "throttled-generator",
    a_generator_without_cpu_time_is_named: "saturated-client",
    a_stock_client_that_fills_its_cpu_is_named: "saturated-fio",
    a_slow_drive_is_named: "slow-drive",
    a_shallow_load_is_not_called_the_drives_limit: "shallow-drive",
    a_second_client_is_named: "second-client",
    a_program_on_the_drive_is_named: "drive-neighbour",
    a_quota_of_the_generator_is_named: "generator-quota",
    a_reactor_that_owns_all_pgs_is_named: "skewed-pgs",
    a_quota_is_named: "quota",
    a_hot_reactor_is_named: "hot-reactor",
}
