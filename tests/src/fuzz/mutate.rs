//! A small mutator for the runs without libFuzzer: no coverage, but the changes that break decoders.

/// Longest input that it makes, bytes.
const BYTES_MAX: usize = 1 << 16;
/// Values at the borders of lengths and counts.
const BORDERS: [u32; 10] = [0, 1, 2, 0x7f, 0x80, 0xff, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];

/// Makes new inputs out of old ones; the same seed makes the same inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// A mutator of its own sequence.
    pub fn new(seed: u64) -> Mutator {
        Mutator { state: seed ^ 0x9e37_79b9_7f4a_7c15 }
    }

    /// xorshift64* (Marsaglia 2003, Vigna 2016).
    fn next(&mut self) -> u64 {
        self.state = self.state.max(1);
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// One of the seeds with one to four changes; some of them take bytes of another seed.
    pub fn input(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let pick = self.below(seeds.len());
        let mut bytes = seeds.get(pick).cloned().unwrap_or_default();
        for _ in 0..=self.below(4) {
            let other = self.below(seeds.len());
            self.change(&mut bytes, seeds.get(other).map_or(&[], Vec::as_slice));
        }
        bytes.truncate(BYTES_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len() + 1);
        match self.below(7) {
            0 => self.put(bytes, at, 1),
            1 => bytes.get_mut(at).into_iter().for_each(|byte| *byte ^= 1 << (self.next() % 8)),
            2 => self.number(bytes, at),
            3 => bytes.truncate(at),
            4 => {
                let end = (at + self.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let count = self.below(40);
                bytes.splice(at..at, std::iter::repeat_n(0, count));
                self.put(bytes, at, count);
            }
            _ => {
                let from = self.below(other.len() + 1);
                let end = (from + self.below(400)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
        }
    }

    /// Random bytes in place.
    fn put(&mut self, bytes: &mut [u8], at: usize, count: usize) {
        bytes.iter_mut().skip(at).take(count).for_each(|byte| *byte = self.next() as u8);
    }

    /// A length or count as decoders fear it, in place.
    fn number(&mut self, bytes: &mut [u8], at: usize) {
        let value = BORDERS[self.below(BORDERS.len())].wrapping_add(self.below(3) as u32).to_le_bytes();
        let width = [1, 2, 4][self.below(3)];
        bytes.iter_mut().skip(at).zip(&value[..width]).for_each(|(byte, new)| *byte = *new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs() {
        let seeds = [vec![1; 100], (0..200).collect()];
        let made = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..100).map(|_| mutator.input(&seeds)).collect::<Vec<_>>()
        };
        assert_eq!(made(7), made(7));
        assert_ne!(made(7), made(8));
        assert!(made(7).iter().any(|input| !seeds.contains(input)));
        assert_eq!(Mutator::new(1).input(&[]).len(), Mutator::new(1).input(&[]).len(), "no seeds: no panic");
    }
}
