//! Scheduling groups: who gets the CPU when several kinds of work are ready.

/// The kind of work that a task does. When several groups have ready tasks, CPU time is dealt by shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Group {
    /// Client operations.
    Client = 0,
    /// Replication on behalf of clients.
    Replication = 1,
    /// Recovery and backfill.
    Recovery = 2,
    /// Scrub.
    Scrub = 3,
    /// Everything else: accept loops, maps, admin commands.
    Admin = 4,
}

/// Number of groups.
pub(crate) const GROUPS: usize = 5;

impl Group {
    /// All groups, in the order of their numbers.
    pub const ALL: [Group; GROUPS] =
        [Group::Client, Group::Replication, Group::Recovery, Group::Scrub, Group::Admin];

    /// Relative CPU share among the groups that have ready tasks.
    #[must_use]
    pub const fn shares(self) -> u32 {
        match self {
            Group::Client | Group::Replication => 1000,
            Group::Recovery => 250,
            Group::Scrub => 100,
            Group::Admin => 500,
        }
    }

    /// Lower-case name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Group::Client => "client",
            Group::Replication => "replication",
            Group::Recovery => "recovery",
            Group::Scrub => "scrub",
            Group::Admin => "admin",
        }
    }
}
