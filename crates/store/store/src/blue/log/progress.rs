//! [`Progress`]: lines about something that may take long.

use std::fmt::Display;

use carmine_reactor::Shard;

/// Time between two lines.
const EVERY_NS: u64 = 1_000_000_000;

/// Says once a second how far a mount is.
pub(crate) struct Progress<'a> {
    shard: &'a Shard,
    said_ns: u64,
}

impl<'a> Progress<'a> {
    pub(crate) fn new(shard: &'a Shard) -> Progress<'a> {
        Progress { shard, said_ns: shard.now_ns() }
    }

    /// Number `done` of `all` is done; `what` says of what. True if it was said.
    pub(crate) fn at(&mut self, what: impl Display, done: usize, all: usize) -> bool {
        let now_ns = self.shard.now_ns();
        let due = now_ns - self.said_ns >= EVERY_NS;
        if due {
            self.said_ns = now_ns;
            tracing::info!("{what}: {done} of {all}");
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carmine_reactor::sim::Sim;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn it_is_said_once_a_second() {
        let sim = Sim::new(1);
        let said = Rc::new(Cell::new(None));
        let out = Rc::clone(&said);
        sim.node("osd", 1, move |shard| {
            let out = Rc::clone(&out);
            async move {
                let mut progress = Progress::new(&shard);
                let mut count = 0;
                for n in 0..35 {
                    shard.sleep(Duration::from_millis(100)).await;
                    count += usize::from(progress.at("groups", n, 35));
                }
                out.set(Some(count));
            }
        });
        sim.run(|| said.get().is_some(), Duration::from_secs(10)).unwrap();
        assert_eq!(said.get(), Some(3));
    }
}
