//! Running a scenario in both worlds.

use carmine_messenger::with_timeout;
use carmine_reactor::sim::Sim;
use carmine_reactor::{Config, Group, PollPolicy, Shard, block_on};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

/// Longest a scenario may take over real sockets.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest it may take in virtual time.
const VIRTUAL_LIMIT: Duration = Duration::from_secs(300);

/// Runs a scenario over real sockets.
pub(crate) fn uring<F: Future<Output = ()> + 'static>(scenario: impl FnOnce(Shard) -> F) {
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("client-test", 1) };
    let done = block_on(config, async |shard: Shard| {
        let run = scenario(shard.clone());
        with_timeout(&shard, LIMIT, run).await.is_some()
    });
    assert!(done.expect("io_uring is needed for this test"), "the scenario took more than {LIMIT:?}");
}

/// Runs a scenario in the simulator.
pub(crate) fn sim<F: Future<Output = ()> + 'static>(seed: u64, scenario: impl Fn(Shard) -> F + 'static) {
    let sim = Sim::new(seed);
    let done = Rc::new(Cell::new(false));
    let (scenario, set) = (Rc::new(scenario), Rc::clone(&done));
    sim.node("test", 1, move |shard| {
        let (scenario, set) = (Rc::clone(&scenario), Rc::clone(&set));
        async move {
            scenario(shard).await;
            set.set(true);
        }
    });
    sim.run(|| done.get(), VIRTUAL_LIMIT).unwrap_or_else(|stuck| panic!("{stuck}"));
}

/// Seeds per scenario: few, or as many as `CARMINE_SIM_SEEDS` says.
pub(crate) fn seeds() -> u64 {
    std::env::var("CARMINE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

/// Defines a test that runs a scenario in both worlds.
macro_rules! both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                $crate::common::uring(super::$name);
            }

            #[test]
            fn sim() {
                for seed in 0..$crate::common::seeds() {
                    $crate::common::sim(seed, super::$name);
                }
            }
        }
    )*};
}
pub(crate) use both;

/// Waits until `what` is true; the scenario's limit bounds it.
pub(crate) async fn until(shard: &Shard, mut what: impl FnMut() -> bool) {
    while !what() {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// Content that tells its writer.
pub(crate) fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + seed * 7 + (at >> 8)) as u8).collect()
}

/// Starts a task; its result comes in the returned place.
pub(crate) fn start<T: 'static>(
    shard: &Shard,
    task: impl Future<Output = T> + 'static,
) -> Rc<RefCell<Option<T>>> {
    let place = Rc::new(RefCell::new(None));
    let own = Rc::clone(&place);
    shard.spawn(Group::Client, "test-task", async move {
        let value = task.await;
        *own.borrow_mut() = Some(value);
    });
    place
}

/// Waits for a task of [`start`].
pub(crate) async fn finish<T>(shard: &Shard, place: &Rc<RefCell<Option<T>>>) -> T {
    until(shard, || place.borrow().is_some()).await;
    place.borrow_mut().take().unwrap()
}
