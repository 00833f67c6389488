//! What each check stands for, for people.

/// What the check of that name stands for, for people; none of what is no check of this list.
pub fn promise_of(check: &str) -> Option<&'static str> {
    Some(match check {
        "fence" => "there is one writer a term, and nothing is written under an old term once a newer one has begun.",
        "lease" => {
            "the lease has one holder at a time, by the database's clock, and nothing is written after it is given back."
        }
        "history" => {
            "histories are without a gap, end once, and say only what workers said and what the definition allows."
        }
        "rows" => "the rows beside a history say the same as the history.",
        "runs" => "the runs of an execution follow each other without a gap, each from what the one before left to it.",
        "course" => "steps, items, handlers, compensation and the end follow from the definition and the history.",
        "family" => "children begin and end with what their parents say of them, and none outlives its parent.",
        "interpreter" => "every execution ends as a second, independent way to run its definition says.",
        "replay" => "a history is exactly what today's code would decide again.",
        "delivery" => "a task that is handed out is recorded first, and a delivery that may be a repetition says so.",
        "promise" => "what was acknowledged to a client is recorded for good, and what was refused is not there.",
        "signal" => "a signal or update that was acknowledged is recorded once, and taken once, in order.",
        "read" => "nothing is shown that is not committed, and nothing older than what was shown before.",
        "nodes" => "a server's name is taken from another only once that one was silent; who never led writes nothing.",
        "log" => "a server logs no error that no injected fault explains.",
        "validity" => "nothing is answered as the leader once the last good check of the lead is too old.",
        "patience" => "long polls and waits end early only with something to say, and they do end.",
        "pace" => "nothing spins, whatever fails.",
        "liveness" => "once all faults have ended, everything comes to its end in time.",
        "answer" => "every request is answered at most once.",
        "timeline" => "who knows of a promotion sends nothing to the primary of before.",
        "stop" => "a server that is told to stop does so in time.",
        "exit" => "a server ends by itself only for a reason.",
        "deadlock" => "rows are locked in one order everywhere, so that no statement is ever a deadlock's victim.",
        "panic" => "nothing panics: assertions of the code under test hold.",
        _ => return None,
    })
}
