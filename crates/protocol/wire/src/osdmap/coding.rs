//! Pieces that the codecs of maps share: sections that keep unknown tails, and limits.

use super::Section;
use crate::{DecodeError, Decoder, Encoder, Result};

/// Number of OSDs (and of crush devices) above which a map is refused: it bounds what a map can make us allocate.
pub(crate) const OSD_LIMIT: u32 = 65_536;

/// Reads an envelope whose unknown tail is to be kept: `fields` reads what it knows of the body, given the version.
pub(crate) fn section<'a, T>(
    d: &mut Decoder<'a>,
    what: &'static str,
    known: u8,
    oldest: u8,
    fields: impl FnOnce(&mut Decoder<'a>, u8) -> Result<T>,
) -> Result<(T, Section)> {
    let envelope = d.envelope(what, known)?;
    envelope.at_least(oldest)?;
    let (version, compat, mut body) = (envelope.version, envelope.compat, envelope.body);
    let value = fields(&mut body, version)?;
    Ok((value, Section { version, compat, tail: body.rest().to_vec() }))
}

/// Writes what [`section`] reads.
pub(crate) fn put_section(e: &mut Encoder<'_>, section: &Section, fields: impl FnOnce(&mut Encoder<'_>)) {
    e.envelope(section.version, section.compat, |e| {
        fields(e);
        e.bytes(&section.tail);
    });
}

/// Refuses a number of OSDs that no real cluster has.
pub(crate) fn check_osds(what: &'static str, n: i64) -> Result<u32> {
    match u32::try_from(n) {
        Ok(n) if n <= OSD_LIMIT => Ok(n),
        _ => Err(DecodeError::BadValue { what, value: n as u64 }),
    }
}
