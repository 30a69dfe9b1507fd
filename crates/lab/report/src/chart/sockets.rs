//! A machine's sockets, L3 groups, cores and hardware threads, and the threads that run on each.

use carmine_topology::Cpu;

use super::ink::Ink;
use super::pen::{Pen, WIDTH};
use super::{Machine, Seat};
use crate::lists::grouped;

/// Cores beside each other in a socket, at most.
const ACROSS: usize = 16;
/// Height of a hardware thread: two lines of text.
const CPU: f64 = 54.0;
/// Widest core.
const WIDE: f64 = 110.0;
/// Room around a box, and above it for its name.
const GAP: f64 = 10.0;
const NAME: f64 = 34.0;
/// Characters of a label that fit on a hardware thread.
const LABEL_MAX: usize = 4;

type Seated<'a> = &'a (Cpu, Vec<Seat>);

/// Draws the sockets below each other; returns the height.
pub(super) fn draw(pen: &mut Pen, machine: &Machine) -> f64 {
    let mut top = GAP;
    let place = |key: fn(&Cpu) -> usize| move |seated: Seated<'_>| key(&seated.0);
    let sockets = split(machine.seats.iter(), place(|cpu| cpu.socket));
    for (socket, cpus) in &sockets {
        let groups: Vec<Vec<Vec<Seated<'_>>>> = split(cpus.iter().copied(), place(|cpu| cpu.l3))
            .into_iter()
            .map(|(_, cpus)| {
                split(cpus.into_iter(), place(|cpu| cpu.core)).into_iter().map(|c| c.1).collect()
            })
            .collect();
        let cores = groups.iter().map(Vec::len).max().unwrap_or(1);
        // Of a group that is too wide the cores stand in rows of equal length.
        let columns = cores.div_ceil(cores.div_ceil(ACROSS));
        let beside = (ACROSS / columns).clamp(1, groups.len());
        let wide = ((WIDTH - 4.0 * GAP) / beside as f64 - 2.0 * GAP) / columns as f64;
        let wide = wide.min(WIDE);
        let threads = groups.iter().flatten().map(Vec::len).max().unwrap_or(1) as f64;
        let core_tall = threads * CPU + GAP;
        let named = if groups.len() > 1 { NAME } else { 0.0 };
        let group_tall = named + cores.div_ceil(columns) as f64 * core_tall + GAP;
        let tall = NAME + groups.len().div_ceil(beside) as f64 * (group_tall + GAP);
        pen.frame([GAP, top, WIDTH - GAP, top + tall], Ink::Axis, 2);
        pen.text((2.0 * GAP, top + NAME / 2.0), "start", Ink::Text, &format!("Socket {socket}"));
        for (at, group) in groups.iter().enumerate() {
            let group_wide = columns as f64 * wide + GAP;
            let left = 2.0 * GAP + (at % beside) as f64 * (group_wide + GAP);
            let y = top + NAME + (at / beside) as f64 * (group_tall + GAP);
            if groups.len() > 1 {
                let l3 = group.first().and_then(|core| core.first()).map_or(0, |(cpu, _)| cpu.l3);
                pen.frame([left, y, left + group_wide, y + group_tall], Ink::Grid, 2);
                pen.text((left + GAP, y + NAME / 2.0), "start", Ink::Muted, &format!("L3 {l3}"));
            }
            for (number, core) in group.iter().enumerate() {
                let x = left + GAP / 2.0 + (number % columns) as f64 * wide;
                let y = y + named + (number / columns) as f64 * core_tall + GAP / 2.0;
                pen.frame([x + 2.0, y, x + wide - 2.0, y + core.len() as f64 * CPU + 4.0], Ink::Axis, 2);
                for (thread, (cpu, seats)) in core.iter().enumerate() {
                    let y = y + 2.0 + thread as f64 * CPU;
                    hardware_thread(pen, [x + 4.0, y, x + wide - 4.0, y + CPU], cpu, seats);
                }
            }
        }
        top += tall + GAP;
    }
    top
}

fn split<'a>(
    cpus: impl Iterator<Item = Seated<'a>>,
    key: impl Fn(Seated<'a>) -> usize,
) -> Vec<(usize, Vec<Seated<'a>>)> {
    grouped(cpus.map(|seated| (key(seated), seated)))
}

/// Its number and who runs there; one that several share has a frame.
fn hardware_thread(pen: &mut Pen, area: [f64; 4], cpu: &Cpu, seats: &[Seat]) {
    let [left, top, right, bottom] = area;
    let middle = (left + right) / 2.0;
    let number = cpu.cpu.to_string();
    let Some(first) = seats.first() else {
        pen.text((middle, (top + bottom) / 2.0), "middle", Ink::Axis, &number);
        return;
    };
    pen.fill(area, first.ink, 0.28);
    if seats.len() > 1 {
        pen.frame(area, Ink::Series(5), 3);
    }
    let label = seats.iter().map(|seat| seat.label.as_str()).collect::<Vec<_>>().join("+");
    let long = label.chars().count() > LABEL_MAX;
    let label = if long && seats.len() > 1 { format!("{}×", seats.len()) } else { label };
    pen.text((middle, top + 15.0), "middle", Ink::Muted, &number);
    pen.text((middle, top + 38.0), "middle", Ink::Text, &label);
    let texts: Vec<&str> = seats.iter().map(|seat| seat.text.as_str()).collect();
    pen.tell(area, &format!("CPU {number} (socket {}, core {}): {}", cpu.socket, cpu.core, texts.join(", ")));
}
