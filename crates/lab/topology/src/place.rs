//! The strategies: which CPU each reactor gets out of a pool.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::refuse;
use crate::{Cpu, CpuList, PlanRequest, Strategy, Topology, TopologyError};

/// A CPU that reactors may have.
struct Seat<'a> {
    place: &'a Cpu,
    /// 0 when the core is otherwise free; siblings of used CPUs rank higher and are taken later.
    rank: usize,
    /// Reactors that sit here already.
    uses: usize,
    /// A client or alien has this CPU (only while CPUs are shared).
    reserved: bool,
}

/// Order of taking seats: least used ones first, then those without clients and aliens, whole cores before siblings.
type Level = (usize, bool, usize);

impl Seat<'_> {
    fn level(&self) -> Level {
        (self.uses, self.reserved, self.rank)
    }
}

/// The CPUs that are dealt to reactors, and what is taken of them.
pub(crate) struct Pool<'a> {
    seats: Vec<Seat<'a>>,
    share: bool,
}

impl<'a> Pool<'a> {
    /// `reserved` are CPUs of clients and aliens: their SMT siblings in the pool are taken late as well.
    pub(crate) fn new(topology: &'a Topology, cpus: &CpuList, reserved: &CpuList, share: bool) -> Self {
        let in_pool = topology.cpus().iter().filter(|c| cpus.contains(c.cpu));
        let seats = in_pool.map(|c| {
            let siblings = topology.cpus().iter().filter(|s| s.core == c.core && s.cpu != c.cpu);
            let before = |s: usize| reserved.contains(s) || (cpus.contains(s) && s < c.cpu);
            Seat {
                place: c,
                rank: siblings.filter(|s| before(s.cpu)).count(),
                uses: 0,
                reserved: reserved.contains(c.cpu),
            }
        });
        Pool { seats: seats.collect(), share }
    }

    fn free(&self) -> impl Iterator<Item = &Seat<'a>> {
        self.seats.iter().filter(|seat| self.share || seat.uses == 0)
    }

    /// Takes the best seat that `wanted` accepts.
    fn take(&mut self, wanted: impl Fn(&Cpu) -> bool) -> Option<usize> {
        let share = self.share;
        let free = self.seats.iter_mut().filter(|seat| (share || seat.uses == 0) && wanted(seat.place));
        let seat = free.min_by_key(|seat| (seat.level(), seat.place.cpu))?;
        seat.uses += 1;
        Some(seat.place.cpu)
    }

    fn sockets(&self) -> Vec<usize> {
        self.seats.iter().map(|seat| seat.place.socket).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Places every OSD's reactors: `result[osd][reactor]` is a CPU.
pub(crate) fn place(pool: &mut Pool<'_>, request: &PlanRequest) -> Result<Vec<Vec<usize>>, TopologyError> {
    (0..request.osds)
        .map(|osd| match request.strategy {
            // Reactors that are not pinned are not placed at all.
            Strategy::Default | Strategy::None => Ok(spill(pool, request.reactors)),
            Strategy::Osd => in_sockets(pool, request, osd, |_| osd),
            // Counting reactors through all OSDs evens out odd numbers of reactors between the sockets.
            Strategy::Socket => in_sockets(pool, request, osd, |reactor| osd * request.reactors + reactor),
            Strategy::L3 => Ok(in_l3(pool, request.reactors)),
        })
        .collect()
}

/// Takes the next best CPUs wherever they are.
fn spill(pool: &mut Pool<'_>, count: usize) -> Vec<usize> {
    (0..count).filter_map(|_| pool.take(|_| true)).collect()
}

/// Takes each reactor's CPU in the socket whose turn it is.
fn in_sockets(
    pool: &mut Pool<'_>,
    request: &PlanRequest,
    osd: usize,
    turn: impl Fn(usize) -> usize,
) -> Result<Vec<usize>, TopologyError> {
    let sockets = pool.sockets();
    let socket_of = |reactor| sockets[turn(reactor) % sockets.len()];
    let need_of = |socket| (0..request.reactors).filter(|r| socket_of(*r) == socket).count();
    for socket in sockets.iter().copied() {
        let (need, have) = (need_of(socket), pool.free().filter(|s| s.place.socket == socket).count());
        refuse!(
            have == 0 && need > 0 || !pool.share && need > have,
            "--balance {}: OSD {osd} needs {need} CPUs on socket {socket}, where {have} of {} are left; lower --osds or \
             --reactors, keep fewer for clients (--client-cpus count:N), widen --cpus there, take --balance default, or share \
             CPUs with --overprovisioned",
            request.strategy,
            pool.seats.iter().filter(|s| s.place.socket == socket).count()
        );
    }
    Ok((0..request.reactors).filter_map(|r| pool.take(|cpu| cpu.socket == socket_of(r))).collect())
}

/// Takes one L3 group's CPUs where the OSD fits on the best CPUs that are left, the emptiest group first, which spreads OSDs
/// evenly. Else it uses up the emptiest groups, staying in the first one's socket as long as that has any. Whole cores go first
/// through all OSDs: one is rather split over groups than put on SMT siblings while cores are free.
fn in_l3(pool: &mut Pool<'_>, count: usize) -> Vec<usize> {
    let mut cpus = Vec::with_capacity(count);
    let mut home = None;
    while cpus.len() < count {
        let missing = count - cpus.len();
        let Some(level) = pool.free().map(Seat::level).min() else { break };
        let mut groups = BTreeMap::<(usize, usize), usize>::new();
        for seat in pool.free().filter(|seat| seat.level() == level) {
            *groups.entry((seat.place.l3, seat.place.socket)).or_default() += 1;
        }
        let home_here = home.and_then(|(of, socket)| (of == level).then_some(socket));
        let best = groups.iter().max_by_key(|((l3, socket), free)| {
            (home_here.is_none() && **free >= missing, home_here == Some(*socket), **free, usize::MAX - l3)
        });
        let Some(((l3, socket), free)) = best else { break };
        home = Some((level, home_here.unwrap_or(*socket)));
        cpus.extend((0..missing.min(*free)).filter_map(|_| pool.take(|cpu| cpu.l3 == *l3)));
    }
    cpus
}
