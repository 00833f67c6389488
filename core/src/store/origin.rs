//! Which database it is that answers (protocols, 9 and 10).
//!
//! A promoted replica goes on as another timeline of the same system, and may lack what the old primary had acknowledged
//! last; the old one may answer still. So a connection says where it leads when it opens, each call names the place that
//! the node's memory is of, and an answer from elsewhere is none.

use crate::mutant::{Mutant, Mutants};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A database as its connections know it: the system, and the timeline of the log that it writes. A session stays on the
/// timeline that it found, unless a pooler gives it another server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Origin {
    /// PostgreSQL's system identifier: a replica has its primary's.
    pub system: u64,
    /// 1 at first; every promotion takes a higher one.
    pub timeline: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "timeline {} of system {}", self.timeline, self.system)
    }
}

/// What an answer from some origin says to one who knows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The one that is known, or the first.
    Known,
    /// A replica was promoted: what is known may not be there any more.
    Promoted,
    /// What was before a promotion, and may answer still.
    Past,
    /// Another system altogether.
    Another,
}

impl Origin {
    /// What this origin is to one who knows `known`.
    pub fn seen_from(self, known: Option<Origin>) -> Found {
        match known {
            None => Found::Known,
            Some(known) if known == self => Found::Known,
            Some(known) if known.system != self.system => Found::Another,
            Some(known) if known.timeline < self.timeline => Found::Promoted,
            Some(_) => Found::Past,
        }
    }

    /// Whether a call that names `wanted` may run on a connection that leads here.
    pub fn serves<M: Mutants>(self, wanted: Option<Origin>, mutants: &M) -> bool {
        match self.seen_from(wanted) {
            Found::Known => true,
            Found::Past => mutants.planted(Mutant::LowerTimelineBelieved),
            Found::Promoted | Found::Another => false,
        }
    }

    /// What is said of a connection that leads here and not to `wanted`.
    pub fn refusal(self, wanted: Option<Origin>) -> String {
        match wanted {
            Some(wanted) => format!("the address leads to {self}, and this server works on {wanted}"),
            None => format!("the address leads to {self}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutant::NoMutants;

    #[test]
    fn a_call_runs_where_it_was_meant_to_and_nowhere_else() {
        let at = |system, timeline| Origin { system, timeline };
        let known = Some(at(7, 2));
        assert_eq!(at(7, 2).seen_from(None), Found::Known);
        assert_eq!(at(7, 2).seen_from(known), Found::Known);
        assert_eq!(at(7, 3).seen_from(known), Found::Promoted);
        assert_eq!(at(7, 1).seen_from(known), Found::Past);
        assert_eq!(at(8, 9).seen_from(known), Found::Another);
        let served = [at(7, 1), at(7, 2), at(7, 3), at(8, 2)].map(|found| found.serves(known, &NoMutants));
        assert_eq!(served, [false, true, false, false]);
        assert!(at(8, 2).serves(None, &NoMutants), "nothing is known yet");
    }
}
