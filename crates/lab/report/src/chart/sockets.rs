//! A machine's sockets, L3 groups, cores and hardware threads, and the threads that run on each.

use carmine_topology::Cpu;

use super::Seat;
use super::ink::Ink;
use super::pen::{Pen, WIDTH};
use crate::lists::grouped;

/// Cores beside each other, and the width of each.
const ACROSS: usize = 16;
const WIDE: f64 = (WIDTH - 4.0 * GAP) / ACROSS as f64;
/// Height of a hardware thread: two lines of text.
const CPU: f64 = 54.0;
/// Room around a box, and above it for its name.
const GAP: f64 = 10.0;
const NAME: f64 = 34.0;
/// Characters of a label that fit on a hardware thread.
const LABEL_MAX: usize = 4;

type Seated<'a> = &'a (Cpu, Vec<Seat>);

/// Draws the sockets below each other; returns the height.
pub(super) fn draw(pen: &mut Pen, seats: &[(Cpu, Vec<Seat>)]) -> f64 {
    let threads = 1 + seats.iter().map(|(cpu, _)| cpu.thread).max().unwrap_or(0);
    let tall = threads as f64 * CPU + GAP;
    let mut top = GAP;
    for (socket, cpus) in split(seats.iter(), |cpu| cpu.socket) {
        pen.text((2.0 * GAP, top + NAME / 2.0), "start", Ink::Text, &format!("Socket {socket}"));
        let groups = split(cpus.into_iter(), |cpu| cpu.l3);
        let named = if groups.len() > 1 { NAME } else { 0.0 };
        let (mut column, mut y) = (0, top + NAME + named);
        for (l3, cpus) in groups {
            let cores = split(cpus.into_iter(), |cpu| cpu.core);
            if column > 0 && column + cores.len() > ACROSS {
                (column, y) = (0, y + tall + named);
            }
            if named > 0.0 {
                let x = 2.0 * GAP + column as f64 * WIDE;
                pen.text((x, y - NAME / 2.0), "start", Ink::Muted, &format!("L3 {l3}"));
            }
            for (_, core) in cores {
                if column == ACROSS {
                    (column, y) = (0, y + tall);
                }
                let x = 2.0 * GAP + column as f64 * WIDE;
                pen.frame([x + 2.0, y, x + WIDE - 2.0, y + core.len() as f64 * CPU + 4.0], Ink::Axis, 2);
                for (thread, (cpu, seats)) in core.into_iter().enumerate() {
                    let y = y + 2.0 + thread as f64 * CPU;
                    hardware_thread(pen, [x + 4.0, y, x + WIDE - 4.0, y + CPU], cpu, seats);
                }
                column += 1;
            }
        }
        pen.frame([GAP, top, WIDTH - GAP, y + tall], Ink::Axis, 2);
        top = y + tall + GAP;
    }
    top
}

fn split<'a>(
    cpus: impl Iterator<Item = Seated<'a>>,
    key: impl Fn(&Cpu) -> usize,
) -> Vec<(usize, Vec<Seated<'a>>)> {
    grouped(cpus.map(|seated| (key(&seated.0), seated)))
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
