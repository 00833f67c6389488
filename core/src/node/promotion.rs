//! Where answers come from (protocols, 9 and 10): the database that this server's memory is of, one that was promoted since,
//! or one that is not to be heard any more.
//!
//! An asynchronous replica that is promoted may lack what was acknowledged last, terms and sequences included. So when a
//! higher timeline is seen everything is forgotten, as by a restart of the process, and read again under a new incarnation.
//! What the old primary still says after that is not believed.

use super::{LogEvent, Node};
use crate::api::error::{ApiError, ErrorCode};
use crate::mutant::{Mutant, Mutants};
use crate::node::CallId;
use crate::node::lifecycle::Phase;
use crate::store::origin::{Found, Origin};
use crate::store::outcome::Reply;
use crate::store::transaction::Verdict;

impl<M: Mutants> Node<M> {
    /// What of a reply may be believed, by where it came from; none where that changed everything.
    pub(super) fn believed(
        &mut self,
        call: CallId,
        reply: Reply<Verdict>,
        origin: Option<Origin>,
    ) -> Option<Reply<Verdict>> {
        // A session of one's own says the same at every look; through a pooler it may be another server's by then.
        let looked = match &reply {
            Reply::Done(Verdict::Check(row)) => row.origin,
            _ => None,
        };
        let Some(found) = looked.or(origin) else { return Some(reply) };
        let known = self.calls.origin();
        match found.seen_from(known) {
            Found::Known => {
                self.calls.lead_to(found);
                self.astray = false;
                Some(reply)
            }
            Found::Promoted => {
                let from = known.expect("there is something to be promoted from").timeline;
                self.calls.lead_to(found);
                self.log(LogEvent::Promoted { from, to: found.timeline });
                let keeps = [Mutant::MemoryKeptOverPromotion, Mutant::NumberWithoutIncarnation];
                if keeps.into_iter().any(|mutant| self.mutants.planted(mutant)) {
                    return Some(reply);
                }
                // That one has ended; nobody waits for it any more.
                let _ = self.calls.reply(self.now.mono, call, reply, &self.mutants);
                self.begin_anew(found);
                None
            }
            Found::Past if self.mutants.planted(Mutant::LowerTimelineBelieved) => Some(reply),
            Found::Past | Found::Another => {
                if !std::mem::replace(&mut self.astray, true) {
                    self.log(LogEvent::LedAstray { to: found.to_string() });
                }
                // What was refused there was refused; whatever else it says, the same is asked again where it counts.
                Some(match reply {
                    Reply::Failed(failure) => Reply::Failed(failure),
                    Reply::Done(_) | Reply::Unknown => Reply::Unknown,
                })
            }
        }
    }

    /// Everybody who waits is told, what is in memory is dropped, and this server campaigns as after a restart.
    fn begin_anew(&mut self, found: Origin) {
        let why = format!("the database was promoted to timeline {}, and may have lost what was last", found.timeline);
        // A lead that is handed over and not given up yet ends here, too.
        let led = self.standby().is_some() && (self.fence().is_some() || (self.hands_over() && !self.follows()));
        let stops = matches!(self.phase, Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Releasing { .. });
        let ends = stops && !self.hands_over();
        if led {
            self.log(LogEvent::LeadershipLost { node_id: self.config.node_id.clone(), reason: why.clone() });
        }
        self.end_hand_over(ApiError::new(ErrorCode::Fenced, format!("fenced: {why}")));
        self.refuse_all(&format!("fenced: {why}"));
        let given_up = self.calls.give_up();
        self.effects.extend(given_up);
        if ends {
            self.log(LogEvent::Stopped { clean: false });
            return self.exit(0);
        }
        self.forget();
        self.campaign();
    }
}
