//! Per-OSD history records of the OSD section, and the record of a pool's last PG merge.

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, Fields, Result, coded, fields};
use carmine_types::{Epoch, Eversion, PgId, UTime};

/// The one byte that an `osd_info` has in place of an envelope.
const OSD_INFO_VERSION: u8 = 1;

fields! {
    /// `osd_info`: epochs that matter for peering. 25 bytes on the wire.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsdInfo {
        /// First epoch of the last interval that ended with a clean shutdown.
        pub last_clean_begin: Epoch,
        /// Last epoch of that interval.
        pub last_clean_end: Epoch,
        /// Epoch in which it last came up.
        pub up_from: Epoch,
        /// Epoch up to which it was surely alive.
        pub up_thru: Epoch,
        /// Epoch in which it last went down.
        pub down_at: Epoch,
        /// Epoch in which it was declared lost.
        pub lost_at: Epoch,
    }
}

impl Coded for OsdInfo {
    const BYTES_MIN: usize = 1 + OsdInfo::FIELDS_BYTES_MIN;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(OSD_INFO_VERSION);
        self.put_fields(e, OSD_INFO_VERSION.into());
    }

    fn get(d: &mut Decoder<'_>) -> Result<OsdInfo> {
        match d.u8()? {
            OSD_INFO_VERSION => OsdInfo::get_fields(d, OSD_INFO_VERSION.into()),
            version => Err(DecodeError::BadValue { what: "osd_info version", value: version.into() }),
        }
    }
}

coded! {
    /// `osd_xinfo`: more of the same, versioned. A client crashes if a map holds fewer of them than `max_osd`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct OsdXinfo: versioned "osd_xinfo", 4, compat 1, oldest 3 {
        /// When it was last marked down.
        pub down_stamp: UTime,
        /// Probability, out of 2^32, that a missing heartbeat means "slow".
        pub laggy_probability: u32,
        /// Seconds it is usually away.
        pub laggy_interval_s: u32,
        /// Feature mask of the running OSD.
        pub features: u64,
        /// Weight it had before it was marked out automatically (16.16).
        pub old_weight: u32,
        /// When it last checked for left-over snapshots.
        pub last_purged_snaps_scrub: UTime; since 4,
        /// Last epoch in which it is known to be dead.
        pub dead_epoch: Epoch; since 4,
    }
}

coded! {
    /// `pg_merge_meta`: what the last merge of two PGs found. We only carry it.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct MergeMeta {
        /// PG that was merged away.
        pub source_pg: PgId,
        /// Epoch in which it was ready.
        pub ready_epoch: Epoch,
        /// `last_epoch_started` of both.
        pub last_epoch_started: Epoch,
        /// `last_epoch_clean` of both.
        pub last_epoch_clean: Epoch,
        /// Last version of the source.
        pub source_version: Eversion,
        /// Last version of the target.
        pub target_version: Eversion,
    }
}
