//! The assignment of CPUs. The clients' are chosen before the reactors', so that points that differ in placement, store
//! or polling have the same; then the strategy deals a pool of CPUs to the reactors.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use carmine_types::counted;

use crate::cpulist::refuse;
use crate::plan::named;
use crate::{ClientCpus, Cpu, CpuList, PlanRequest, Strategy, Topology, TopologyError};

/// Without `--client-cpus`, clients get one CPU out of this many. An operation (`cyan`, 4 KiB, iodepth 64) costs our own generator
/// 5.9 us of CPU and fio's rados engine 14, and the OSD 6 (reads) to 8 (writes); with `blue` it costs the OSD 9 to 23
/// (benches/notebook/2026-11-22-what-a-client-costs.md). So one client CPU for two of the OSDs' is about right for our own generator.
const DEFAULT_SHARE: usize = 3;

/// The number of CPUs that clients get out of `cpus` if nobody asks for a number.
#[must_use]
pub fn default_clients(cpus: usize) -> usize {
    (cpus / DEFAULT_SHARE).max(1)
}

/// The clients' CPUs. They depend on the numbers of the request only, not on the strategy or anything else in it.
pub(crate) fn clients(topology: &Topology, request: &PlanRequest) -> Result<CpuList, TopologyError> {
    let others = named(request, |option| option != "--client-cpus");
    let mut free = topology.allowed().difference(&others);
    let needed = if request.cpus.is_some() { 0 } else { request.seats() };
    let left = free.len().saturating_sub(needed);
    let count = match &request.client_cpus {
        Some(ClientCpus::List(list)) => return Ok(list.clone()),
        Some(ClientCpus::Count(count)) => *count,
        Some(ClientCpus::Rest) => left.max(1),
        None => default_clients(topology.allowed().len()).min(spare(topology, &free, needed)).max(1),
    };
    if request.overprovisioned && count > free.len() {
        free = topology.allowed().clone();
    }
    refuse!(
        count > free.len(),
        "clients need {}; not taken by others ({others}): {}; give --client-cpus, take CPUs from the others, or \
         share CPUs with --overprovisioned",
        counted(count, "CPU"),
        free.len()
    );
    Ok(in_order(topology, &free).into_iter().take(count).map(|cpu| cpu.cpu).collect())
}

/// CPUs that `needed` reactors do not need: whole cores if there are more cores than reactors.
fn spare(topology: &Topology, free: &CpuList, needed: usize) -> usize {
    let order = in_order(topology, free);
    let mut cores: Vec<usize> = order.iter().map(|cpu| cpu.core).collect();
    cores.dedup();
    match cores.len().saturating_sub(needed) {
        0 => free.len().saturating_sub(needed),
        whole => order.iter().filter(|cpu| cores[..whole].contains(&cpu.core)).count(),
    }
}

/// `free` in the order in which clients take them: whole cores before those of which somebody else has a part, the last socket
/// first and then in turn, in each socket the highest core first.
fn in_order<'a>(topology: &'a Topology, free: &CpuList) -> Vec<&'a Cpu> {
    let threads = |core: usize| topology.cpus().iter().filter(|cpu| cpu.core == core).count();
    let mut cores = BTreeMap::<usize, Vec<&Cpu>>::new();
    for cpu in topology.cpus().iter().filter(|cpu| free.contains(cpu.cpu)) {
        cores.entry(cpu.core).or_default().push(cpu);
    }
    let mut cores: Vec<Vec<&Cpu>> = cores.into_values().collect();
    let is_part = |cpus: &[&Cpu]| cpus.len() < threads(cpus[0].core);
    cores.sort_by_key(|cpus| (cpus[0].socket, is_part(cpus), Reverse(cpus[0].core)));
    let turns = cores.chunk_by(|one, next| one[0].socket == next[0].socket);
    let mut ranked: Vec<_> = turns.flat_map(|of_socket| of_socket.iter().enumerate()).collect();
    ranked.sort_by_key(|(turn, cpus)| (is_part(cpus), *turn, Reverse(cpus[0].socket)));
    ranked.into_iter().flat_map(|(_, cpus)| cpus).copied().collect()
}

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

    /// Claims the best seat that `wanted` accepts.
    fn claim(&mut self, wanted: impl Fn(&Cpu) -> bool) -> Option<usize> {
        let share = self.share;
        let free = self.seats.iter_mut().filter(|seat| (share || seat.uses == 0) && wanted(seat.place));
        let seat = free.min_by_key(|seat| (seat.level(), seat.place.cpu))?;
        seat.uses += 1;
        Some(seat.place.cpu)
    }

    /// Claims as many of the best seats that `wanted` accepts as there are, up to `count`.
    fn claim_some(&mut self, count: usize, wanted: impl Fn(&Cpu) -> bool) -> Vec<usize> {
        (0..count).filter_map(|_| self.claim(&wanted)).collect()
    }

    /// Places every OSD's reactors: `result[osd][reactor]` is a CPU.
    pub(crate) fn deal(
        &mut self,
        topology: &Topology,
        request: &PlanRequest,
    ) -> Result<Vec<Vec<usize>>, TopologyError> {
        let reactors = request.reactors;
        let deal = |osd: usize| match request.strategy {
            // Any seat is fine. (Reactors that are not pinned are not placed at all.)
            Strategy::Default | Strategy::None => Ok(self.claim_some(reactors, |_| true)),
            Strategy::Osd => self.in_sockets(request, osd, |_| osd),
            // Counting reactors through all OSDs evens out odd numbers of reactors between the sockets.
            Strategy::Socket => self.in_sockets(request, osd, |reactor| osd * reactors + reactor),
            Strategy::L3 => Ok(self.in_l3(reactors, |_| true)),
            Strategy::Drive => {
                let node = request.drive_node(topology, osd)?;
                self.check_left(request, osd, reactors, &format!("node {node} of its drive"), |cpu| {
                    cpu.node == node
                })?;
                Ok(self.in_l3(reactors, |cpu| cpu.node == node))
            }
        };
        (0..request.osds).map(deal).collect()
    }

    /// Takes each reactor's CPU in the socket whose turn it is.
    fn in_sockets(
        &mut self,
        request: &PlanRequest,
        osd: usize,
        turn: impl Fn(usize) -> usize,
    ) -> Result<Vec<usize>, TopologyError> {
        let sockets: BTreeSet<usize> = self.seats.iter().map(|seat| seat.place.socket).collect();
        let sockets: Vec<usize> = sockets.into_iter().collect();
        let socket_of = |reactor| sockets[turn(reactor) % sockets.len()];
        for socket in sockets.iter().copied() {
            let need = (0..request.reactors).filter(|r| socket_of(*r) == socket).count();
            self.check_left(request, osd, need, &format!("socket {socket}"), |cpu| cpu.socket == socket)?;
        }
        Ok((0..request.reactors).filter_map(|r| self.claim(|cpu| cpu.socket == socket_of(r))).collect())
    }

    /// Fails if fewer than `need` seats that `wanted` accepts, which are those of `place`, are left for an OSD.
    fn check_left(
        &self,
        request: &PlanRequest,
        osd: usize,
        need: usize,
        place: &str,
        wanted: impl Fn(&Cpu) -> bool,
    ) -> Result<(), TopologyError> {
        let have = self.free().filter(|seat| wanted(seat.place)).count();
        refuse!(
            have == 0 && need > 0 || !self.share && need > have,
            "--balance {}: OSD {osd} needs {need} CPUs on {place}, where {have} of {} are left; lower --osds or \
             --reactors, keep fewer for clients (--client-cpus count:N), widen --cpus there, take --balance default, or \
             share CPUs with --overprovisioned",
            request.strategy,
            self.seats.iter().filter(|seat| wanted(seat.place)).count()
        );
        Ok(())
    }

    /// Of the seats that `wanted` accepts, takes the CPUs of one L3 group if the OSD fits on its best CPUs that are left, the
    /// emptiest group first, which spreads OSDs evenly. Otherwise it uses up the emptiest groups, staying in the first one's socket
    /// as long as that has any. Whole cores go first for all OSDs: an OSD is split over groups rather than put on SMT siblings while
    /// cores are free.
    fn in_l3(&mut self, count: usize, wanted: impl Fn(&Cpu) -> bool) -> Vec<usize> {
        let mut cpus = Vec::with_capacity(count);
        let mut home = None;
        while cpus.len() < count {
            let missing = count - cpus.len();
            let levels = self.free().filter(|seat| wanted(seat.place)).map(Seat::level);
            let Some(level) = levels.min() else { break };
            let mut groups = BTreeMap::<(usize, usize), usize>::new();
            for seat in self.free().filter(|seat| seat.level() == level && wanted(seat.place)) {
                *groups.entry((seat.place.l3, seat.place.socket)).or_default() += 1;
            }
            let home_here = home.and_then(|(of, socket)| (of == level).then_some(socket));
            let best = groups.iter().max_by_key(|((l3, socket), free)| {
                let fits = home_here.is_none() && **free >= missing;
                (fits, home_here == Some(*socket), **free, Reverse(*l3))
            });
            let Some(((l3, socket), free)) = best else { break };
            home = Some((level, home_here.unwrap_or(*socket)));
            cpus.extend(self.claim_some(missing.min(*free), |cpu| cpu.l3 == *l3 && wanted(cpu)));
        }
        cpus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_cores_from_the_highest_down_sockets_in_turn() {
        let order = |shape: &str, free: &str| {
            let topology = Topology::from_short(shape).unwrap();
            let order = in_order(&topology, &free.parse().unwrap());
            order.iter().map(|cpu| cpu.cpu.to_string()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order("1x4x2", "0-7"), "3 7 2 6 1 5 0 4");
        assert_eq!(order("2x2x2", "0-7"), "3 7 1 5 2 6 0 4");
        // Of core 3 a part is taken.
        assert_eq!(order("1x4x2", "0-6"), "2 6 1 5 0 4 3");
    }
}
