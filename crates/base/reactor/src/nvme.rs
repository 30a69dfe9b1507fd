//! NVMe commands: what a namespace is, and how its reads, writes, flushes, zeros and discards are encoded.
//!
//! Pure functions over bytes. Sources: NVM Express Base Specification 2.0 (identify, status), NVM Command Set Specification
//! 1.0 (commands), `linux/nvme_ioctl.h` (the kernel's form of a command).

use std::os::fd::OwnedFd;

use crate::whole::PAGE_BYTES;

/// Bytes of an identify data structure.
pub(crate) const IDENTIFY_BYTES: usize = 4096;
/// `NVME_URING_CMD_IO`: a command with one buffer.
pub(crate) const COMMAND: u32 = 0xC048_4E80;
/// `NVME_URING_CMD_IO_VEC`: a command with a gather list.
pub(crate) const COMMAND_GATHERED: u32 = 0xC048_4E81;

/// Blocks that one command can name (a 16-bit count, less one).
const LBAS_MAX: u64 = 1 << 16;
/// Most bytes that one range of a discard has here; a command's result is an `i32`.
const DISCARD_BYTES_MAX: u64 = 1 << 30;
/// The drive answers when the data is on its medium, not in its cache.
const FUA: u32 = 1 << 30;
/// Write Zeroes: the drive may forget the blocks, if they then read as zeros.
const DEALLOCATE_ZEROS: u32 = 1 << 25;
/// Dataset Management: forget the blocks.
const DEALLOCATE: u32 = 1 << 2;

/// Codes of commands.
mod opcode {
    pub(super) const FLUSH: u8 = 0x00;
    pub(super) const WRITE: u8 = 0x01;
    pub(super) const READ: u8 = 0x02;
    pub(super) const IDENTIFY: u8 = 0x06;
    pub(super) const WRITE_ZEROES: u8 = 0x08;
    pub(super) const DATASET_MANAGEMENT: u8 = 0x09;
}

/// The kind of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    Read,
    Write,
    /// Durable when it is done.
    WriteThrough,
}

/// A command in the kernel's form (`struct nvme_uring_cmd`, which begins as `struct nvme_passthru_cmd` does).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Command {
    opcode: u8,
    namespace: u32,
    /// Address of the buffer or gather list.
    pub(crate) addr: u64,
    /// Bytes of the buffer, or entries of the gather list.
    pub(crate) data_len: u32,
    /// Words 10 to 13.
    words: [u32; 4],
}

impl Command {
    /// Asks the controller about itself (`cns` 1) or about a namespace (`cns` 0).
    pub(crate) fn identify(namespace: u32, cns: u32) -> Command {
        Command { opcode: opcode::IDENTIFY, namespace, words: [cns, 0, 0, 0], ..Command::default() }
    }

    /// With its data: the address of a buffer and its bytes, or of a gather list and its entries.
    pub(crate) fn with(self, addr: u64, data_len: usize) -> Command {
        Command { addr, data_len: u32::try_from(data_len).unwrap_or(0), ..self }
    }

    /// The kernel's bytes of it, in the CPU's order as everything in memory that is shared with the kernel.
    pub(crate) fn encode(&self) -> [u8; 80] {
        let mut out = [0; 80];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &[self.opcode]);
        put(4, &self.namespace.to_ne_bytes());
        put(24, &self.addr.to_ne_bytes());
        put(36, &self.data_len.to_ne_bytes());
        for (n, word) in self.words.iter().enumerate() {
            put(40 + 4 * n, &word.to_ne_bytes());
        }
        out
    }
}

/// Identify data of a drive and one of its namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Blocks of the namespace.
    lbas: u64,
    /// Bytes of a block are 2 to the power of this.
    lba_shift: u32,
    /// Blocks that are written as a whole or not at all when the power fails.
    atomic_lbas: u64,
    writes_zeroes: bool,
    discards: bool,
    /// Other controllers have it, too.
    pub(crate) is_shared: bool,
}

/// A number of an identify data structure.
fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).unwrap_or([0; N])
}

impl Identity {
    /// Reads the answers of a controller and of a namespace; the error says why its blocks cannot be used here.
    pub(crate) fn decode(controller: &[u8], namespace: &[u8]) -> Result<Identity, String> {
        let short = |at| u16::from_le_bytes(number(controller, at));
        let byte = |at: usize| namespace.get(at).copied().unwrap_or_default();
        let lbas = u64::from_le_bytes(number(namespace, 0));
        // The upper bits count only if there are more than 16 formats.
        let upper = if byte(25) >= 16 { (byte(26) >> 1) & 0x30 } else { 0 };
        let format = usize::from((byte(26) & 0xf) | upper);
        let format = u32::from_le_bytes(number(namespace, 128 + 4 * format));
        let (metadata_bytes, lba_shift) = (format & 0xffff, (format >> 16) & 0xff);
        if metadata_bytes > 0 || byte(29) & 7 > 0 {
            return Err(format!(
                "its blocks have {metadata_bytes} bytes of metadata or protection information: format it without, or take block"
            ));
        }
        if !(9..=12).contains(&lba_shift)
            || lbas.checked_shl(lba_shift).is_none_or(|bytes| bytes >> lba_shift != lbas)
        {
            return Err(format!(
                "its blocks have 2^{lba_shift} bytes: format it to 512 or 4096, or take block"
            ));
        }
        let own_atomic = (byte(24) & 2 > 0).then(|| u16::from_le_bytes(number(namespace, 36)));
        let optional = short(520);
        Ok(Identity {
            lbas,
            lba_shift,
            atomic_lbas: u64::from(own_atomic.unwrap_or(0).max(short(528))) + 1,
            writes_zeroes: optional & 8 > 0,
            discards: optional & 4 > 0,
            is_shared: controller.get(76).is_some_and(|multiple| multiple & 2 > 0),
        })
    }

    /// Bytes of the namespace.
    pub(crate) fn bytes(&self) -> u64 {
        self.lbas << self.lba_shift
    }
}

/// Partition and queue limits of a drive, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// Where a partition begins, in bytes of the drive.
    pub(crate) begin_bytes: u64,
    pub(crate) bytes: u64,
    /// Bytes that one command can carry.
    pub(crate) transfer_bytes_max: u64,
}

/// A namespace that takes commands, or a partition of one. Offsets count from the partition's beginning.
pub(crate) struct Namespace {
    /// `/dev/ngXnY`.
    pub(crate) generic: OwnedFd,
    pub(crate) layout: Layout,
}

/// Where a namespace's bytes are, and what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) id: u32,
    pub(crate) identity: Identity,
    pub(crate) part: Part,
}

impl Layout {
    /// Bytes of a block.
    pub(crate) fn lba_bytes(&self) -> u64 {
        1 << self.identity.lba_shift
    }

    /// Bytes that are written as a whole or not at all when the power fails.
    pub(crate) fn atomic_bytes(&self) -> u64 {
        self.identity.atomic_lbas << self.identity.lba_shift
    }

    /// Most bytes of one read or write. A longer one is cut where it tears no unit that the drive writes as a whole, as far as
    /// the drive takes whole units at once.
    pub(crate) fn transfer_bytes_max(&self) -> usize {
        let most = self.part.transfer_bytes_max.min(LBAS_MAX * self.lba_bytes());
        let unit = if self.atomic_bytes() <= most { self.atomic_bytes().max(PAGE_BYTES) } else { PAGE_BYTES };
        (most / unit * unit).max(PAGE_BYTES) as usize
    }

    /// Whether it has the command for zeros, or the one for discards.
    pub(crate) fn can_forget(&self, zeros: bool) -> bool {
        if zeros { self.identity.writes_zeroes } else { self.identity.discards }
    }

    /// Whether bytes are whole blocks inside of the part.
    pub(crate) fn has(&self, off: u64, len: u64) -> bool {
        self.lbas(off, len).is_some()
    }

    /// First block and number of blocks of a range, if it is made of whole blocks, is not empty and lies inside.
    fn lbas(&self, off: u64, len: u64) -> Option<(u64, u64)> {
        let whole = |bytes: u64| bytes.is_multiple_of(self.lba_bytes());
        let begin = self.part.begin_bytes.checked_add(off)?;
        let is_inside =
            off.checked_add(len)? <= self.part.bytes && begin.checked_add(len)? <= self.identity.bytes();
        let is_good = len > 0 && is_inside && whole(begin) && whole(len);
        is_good.then_some((begin >> self.identity.lba_shift, len >> self.identity.lba_shift))
    }

    fn over(&self, opcode: u8, off: u64, len: u64, flags: u32) -> Option<Command> {
        let (first, count) = self.lbas(off, len).filter(|(_, count)| *count <= LBAS_MAX)?;
        let words = [first as u32, (first >> 32) as u32, (count - 1) as u32 | flags, 0];
        Some(Command { opcode, namespace: self.id, words, ..Command::default() })
    }

    /// A read or write of `len` bytes, still without its buffer; `None` if these are not blocks of this part.
    pub(crate) fn transfer(&self, what: Transfer, off: u64, len: usize) -> Option<Command> {
        let (opcode, flags) = match what {
            Transfer::Read => (opcode::READ, 0),
            Transfer::Write => (opcode::WRITE, 0),
            Transfer::WriteThrough => (opcode::WRITE, FUA),
        };
        self.over(opcode, off, len as u64, flags)
    }

    /// Makes all writes that are done durable.
    pub(crate) fn flush(&self) -> Command {
        Command { opcode: opcode::FLUSH, namespace: self.id, ..Command::default() }
    }

    /// Zeros without data, and how many bytes of them one command makes; `None` if these are not blocks of this part, or the
    /// drive has no such command.
    pub(crate) fn zeros(&self, off: u64, len: u64) -> Option<(Command, u64)> {
        let len = len.min(LBAS_MAX * self.lba_bytes());
        let command = self.over(opcode::WRITE_ZEROES, off, len, DEALLOCATE_ZEROS)?;
        self.identity.writes_zeroes.then_some((command, len))
    }

    /// A discard, its list of one range, and how many bytes it covers; `None` as for [`Self::zeros`].
    pub(crate) fn discard(&self, off: u64, len: u64) -> Option<(Command, [u8; 16], u64)> {
        let len = len.min(DISCARD_BYTES_MAX);
        let (first, count) = self.lbas(off, len)?;
        let mut range = [0; 16];
        range[4..8].copy_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
        range[8..].copy_from_slice(&first.to_le_bytes());
        let words = [0, DEALLOCATE, 0, 0];
        let command =
            Command { opcode: opcode::DATASET_MANAGEMENT, namespace: self.id, words, ..Command::default() };
        self.identity.discards.then_some((command, range, len))
    }
}

/// The error that a command's status (its type and code, without the bits about retries) is on a block device.
pub(crate) fn errno(status: u32) -> i32 {
    match status & 0x7ff {
        // Invalid opcode, invalid field.
        0x001 | 0x002 => libc::EOPNOTSUPP,
        // Namespace write protected.
        0x020 => libc::EROFS,
        // Capacity exceeded.
        0x081 => libc::ENOSPC,
        _ => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Answers of a drive with 1,000,000 blocks in format 1 of two.
    fn answers(lba_shift: u8) -> (Vec<u8>, Vec<u8>) {
        let (mut controller, mut namespace) = (vec![0; IDENTIFY_BYTES], vec![0; IDENTIFY_BYTES]);
        controller[520] = 0xc;
        controller[528] = 7;
        namespace[..8].copy_from_slice(&1_000_000u64.to_le_bytes());
        (namespace[25], namespace[26]) = (1, 1);
        namespace[134] = lba_shift;
        (controller, namespace)
    }

    fn layout(lba_shift: u8) -> Layout {
        let (controller, namespace) = answers(lba_shift);
        let identity = Identity::decode(&controller, &namespace).unwrap();
        let part = Part { begin_bytes: 1 << 20, bytes: 64 << 20, transfer_bytes_max: 508 << 10 };
        Layout { id: 3, identity, part }
    }

    fn words(command: &Command) -> Vec<u32> {
        command.encode().chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    #[test]
    fn a_read_and_a_write_are_encoded_as_the_kernel_wants_them() {
        for (shift, first, count) in [(9, 0x808, 8), (12, 0x101, 1)] {
            let read = layout(shift).transfer(Transfer::Read, 4096, 4096).unwrap();
            let command = read.with(0x1122_3344_5566_7788, 4096);
            let words = words(&command);
            assert_eq!((words[0], words[1]), (2, 3), "opcode and namespace");
            assert_eq!((words[6], words[7], words[9]), (0x5566_7788, 0x1122_3344, 4096), "buffer");
            assert_eq!(words[10..14], [first, 0, count - 1, 0]);
            assert!(words[14..].iter().all(|word| *word == 0));
        }
        let write = layout(9).transfer(Transfer::Write, 0, 512).unwrap();
        let through = layout(9).transfer(Transfer::WriteThrough, 0, 512).unwrap();
        assert_eq!((words(&write)[0], words(&write)[12], words(&through)[12]), (1, 0, 1 << 30));
        assert_eq!(words(&layout(9).flush())[..2], [0, 3]);
    }

    #[test]
    fn what_is_no_block_of_the_part_is_refused() {
        let layout = layout(12);
        let end = 64 << 20;
        for (off, len) in
            [(0, 0), (512, 4096), (0, 512), (end, 4096), (end - 4096, 8192), (u64::MAX - 4095, 4096)]
        {
            assert_eq!(layout.transfer(Transfer::Write, off, len), None, "{off} {len}");
            assert!(layout.zeros(off, len as u64).is_none() && layout.discard(off, len as u64).is_none());
        }
        assert!(layout.has(end - 4096, 4096));
    }

    #[test]
    fn zeros_and_discards_cover_what_one_command_can() {
        let layout = layout(9);
        let (zeros, bytes) = layout.zeros(0, 48 << 20).unwrap();
        assert_eq!((words(&zeros)[0], words(&zeros)[12], bytes), (8, 0xffff | 1 << 25, 32 << 20));
        let (discard, range, bytes) = layout.discard(8192, 4096).unwrap();
        assert_eq!((words(&discard)[0], words(&discard)[10..12].to_vec(), bytes), (9, vec![0, 4], 4096));
        assert_eq!(range, [0, 0, 0, 0, 8, 0, 0, 0, 0x10, 8, 0, 0, 0, 0, 0, 0]);
        let plain = Layout {
            identity: Identity { writes_zeroes: false, discards: false, ..layout.identity },
            ..layout
        };
        assert!(plain.zeros(0, 4096).is_none() && plain.discard(0, 4096).is_none());
    }

    #[test]
    fn long_transfers_end_at_atomic_units() {
        // 8 blocks of 4096 bytes are one unit: 508 KiB hold 15 of them.
        let layout = layout(12);
        assert_eq!((layout.atomic_bytes(), layout.transfer_bytes_max()), (32 << 10, 480 << 10));
        let of = |bytes| Layout { part: Part { transfer_bytes_max: bytes, ..layout.part }, ..layout };
        assert_eq!([of(20 << 10), of(100)].map(|layout| layout.transfer_bytes_max()), [20 << 10, 4096]);
    }

    #[test]
    fn a_format_that_cannot_be_used_is_refused_in_words() {
        let (controller, namespace) = answers(12);
        let refused = |at: usize, value: u8| {
            let mut namespace = namespace.clone();
            namespace[at] = value;
            Identity::decode(&controller, &namespace).unwrap_err()
        };
        assert!(refused(132, 8).contains("8 bytes of metadata"));
        assert!(refused(29, 1).contains("protection information"));
        assert!(refused(134, 13).contains("2^13"));
        assert!(refused(26, 0).contains("2^0"));
        assert!(refused(7, 0xff).contains("2^12"), "too large for a byte count");
    }

    proptest! {
        #[test]
        fn no_answer_of_a_drive_panics(
            controller in prop::collection::vec(any::<u8>(), 0..600),
            namespace in prop::collection::vec(any::<u8>(), 0..400),
            off in any::<u64>(),
            len in any::<u64>(),
        ) {
            if let Ok(identity) = Identity::decode(&controller, &namespace) {
                let part = Part { begin_bytes: off / 2, bytes: len, transfer_bytes_max: len };
                let layout = Layout { id: 1, identity, part };
                prop_assert!(layout.transfer_bytes_max() >= 4096);
                let _ = (layout.transfer(Transfer::Read, off, len as usize), layout.zeros(off, len), layout.discard(off, len));
            }
        }
    }

    #[test]
    fn errors_are_those_of_a_block_device() {
        // With the bit "do not retry" of the completion.
        assert_eq!(errno(0x4002), libc::EOPNOTSUPP);
        assert_eq!([errno(0x281), errno(0x81)], [libc::EIO, libc::ENOSPC]);
    }
}
