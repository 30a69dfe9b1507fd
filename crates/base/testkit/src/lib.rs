//! For tests only: one scenario in both worlds, over real sockets and in the simulator; real block devices; and tests that measure.

mod loop_device;
mod measure;
mod skip;

use carmine_reactor::sim::Sim;
use carmine_reactor::{Config, Group, PollPolicy, Shard, block_on};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

pub use loop_device::LoopDevice;
pub use measure::{BUSY_FILE, Load, Others, measured};
pub use skip::{installed, skip};

/// Longest a scenario may take over real sockets.
const LIMIT: Duration = Duration::from_secs(60);
/// Longest it may take in virtual time.
const VIRTUAL_LIMIT: Duration = Duration::from_secs(300);
/// How often [`until`] looks.
const LOOK: Duration = Duration::from_millis(1);

/// Runs a scenario over real sockets on one unpinned reactor.
///
/// # Panics
/// If it takes longer than a minute, or there is no io_uring.
pub fn uring<F: Future<Output = ()> + 'static>(scenario: impl FnOnce(Shard) -> F) {
    let config = Config { poll: PollPolicy::Sleep, ..Config::unpinned("test", 1) };
    let done = block_on(config, async |shard: Shard| {
        let end_ns = shard.now_ns() + LIMIT.as_nanos() as u64;
        let scenario = start(&shard, scenario(shard.clone()));
        until(&shard, || scenario.borrow().is_some() || shard.now_ns() > end_ns).await;
        scenario.take().is_some()
    });
    assert!(done.expect("io_uring is needed for this test"), "the scenario took more than {LIMIT:?}");
}

/// Runs a scenario in the simulator.
///
/// # Panics
/// If it takes longer than five minutes of virtual time.
pub fn sim<F: Future<Output = ()> + 'static>(seed: u64, scenario: impl Fn(Shard) -> F + 'static) {
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
pub fn seeds() -> u64 {
    std::env::var("CARMINE_SIM_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(4)
}

/// Defines, for each named scenario, a test `uring` and a test `sim` in a module of its name.
#[macro_export]
macro_rules! both {
    ($($name:ident),* $(,)?) => {$(
        mod $name {
            #[test]
            fn uring() {
                $crate::uring(super::$name);
            }

            #[test]
            fn sim() {
                for seed in 0..$crate::seeds() {
                    $crate::sim(seed, super::$name);
                }
            }
        }
    )*};
}

/// Waits until `what` is true; the scenario's limit bounds it.
pub async fn until(shard: &Shard, mut what: impl FnMut() -> bool) {
    while !what() {
        shard.sleep(LOOK).await;
    }
}

/// Starts a task; its result comes in the returned place.
pub fn start<T: 'static>(shard: &Shard, task: impl Future<Output = T> + 'static) -> Rc<RefCell<Option<T>>> {
    let place = Rc::new(RefCell::new(None));
    let own = Rc::clone(&place);
    shard.spawn(Group::Client, "test-task", async move {
        let value = task.await;
        *own.borrow_mut() = Some(value);
    });
    place
}

/// Waits for a task of [`start`].
pub async fn finish<T>(shard: &Shard, place: &Rc<RefCell<Option<T>>>) -> T {
    loop {
        if let Some(value) = place.borrow_mut().take() {
            return value;
        }
        shard.sleep(LOOK).await;
    }
}
