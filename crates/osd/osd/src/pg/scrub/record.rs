//! The record of the last scrubs, which every member keeps in the PG's info for the next primary.

use std::rc::Rc;

use carmine_messenger::Message;
use carmine_pgtypes::{PgInfo, Scrubbed};
use carmine_types::{ScrubStamp, errno};

use super::run::{End, Run};
use crate::error::OpError;
use crate::messages::{PgAck, PgScrubbed};
use crate::pg::Pg;
use crate::shard::OsdShard;

impl Run {
    /// Ends the scrub: all members store the record, this one last, because it reports to the monitor what it has stored.
    pub(super) async fn record(&mut self, stamp: ScrubStamp) -> Result<(), End> {
        let before = self.pg.peer.log().info().scrubs;
        let scrubs = self.sum_up(before, stamp);
        for member in self.pg.peer.acting().osds().filter(|member| *member != self.osd.config.id) {
            let ask = |head| Message::encode(&PgScrubbed { head, scrubs });
            self.ask(member, ask, |answer: &PgAck| answer.result).await?;
        }
        self.check_current()?;
        let written = self.pg.write_scrubs(&self.osd, scrubs).await;
        written.map_err(|error| End::Failed(error.to_string()))
    }

    fn sum_up(&mut self, before: Scrubbed, stamp: ScrubStamp) -> Scrubbed {
        let count = before.count + 1;
        if self.order.deep {
            let (errors, deep_errors) = (self.found.errors, self.found.deep_errors());
            return Scrubbed { count, last: stamp, last_deep: stamp, errors, deep_errors, omaps: self.omaps };
        }
        let known = self.pg.scrub.found.borrow();
        // Found by another primary: this one cannot name the objects.
        let unlisted = before.deep_errors.saturating_sub(known.deep_errors());
        self.found.keep_deep_of(&known);
        self.found.errors += unlisted;
        let deep_errors = self.found.deep_errors() + unlisted;
        Scrubbed { count, last: stamp, errors: self.found.errors, deep_errors, ..before }
    }
}

impl Pg {
    /// Stores the primary's record of a scrub.
    pub(crate) async fn answer_scrubbed(self: &Rc<Self>, osd: &Rc<OsdShard>, ended: PgScrubbed) -> Message {
        let PgScrubbed { head, scrubs } = ended;
        let written = match self.peer.follows(&head) {
            true => self.write_scrubs(osd, scrubs).await,
            false => Err(OpError::new(errno::EAGAIN)),
        };
        Pg::ack(head, written)
    }

    async fn write_scrubs(self: &Rc<Self>, osd: &Rc<OsdShard>, scrubs: Scrubbed) -> Result<(), OpError> {
        self.write_down(osd, |info| info.note_scrubbed(scrubs)).await
    }

    /// Takes over another member's record if it is newer. All members store it at activation.
    pub(in crate::pg) fn learn_scrubs(&self, other: &PgInfo) {
        let (info, &PgInfo { scrubs, clean_before, .. }) = (self.peer.info(), other);
        if scrubs.count > info.scrubs.count {
            self.peer.change_info(|info| (info.scrubs, info.clean_before) = (scrubs, clean_before));
        }
    }
}
