//! The picture of a timeline: each row as wide as there is room. Places are percentages of the time shown, so no script
//! has to measure anything.

use super::{Mark, Row, State, Timeline};
use crate::ui::html::{Html, html};
use crate::ui::value;
use orbit_core::time::ClusterMs;

/// Rows of one picture.
const MAX_ROWS: usize = 300;

impl Timeline {
    /// A moment as a percentage of the time shown.
    fn percent(&self, at: i64) -> f64 {
        let share = (at - self.begin) as f64 / (self.end - self.begin) as f64;
        // A little room at both ends, for what happened at once.
        1.0 + share.clamp(0.0, 1.0) * 97.5
    }

    pub fn render(&self) -> Html {
        let ticks = ticks(self.end - self.begin);
        let lines = |bottom: &'static str| -> Html {
            let line = |tick: &i64| {
                let x = place(self.percent(self.begin + tick));
                html!("<line class=\"tick\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"{}\"/>", x, x, bottom)
            };
            ticks.iter().map(line).collect()
        };
        let texts = ticks.iter().map(|tick| {
            let anchor = if *tick == 0 { "start" } else { "middle" };
            html!(
                "<text x=\"{}\" y=\"19\" text-anchor=\"{}\">{}</text>",
                place(self.percent(self.begin + tick)),
                anchor,
                tick_text(*tick)
            )
        });
        let rows = self.rows.iter().take(MAX_ROWS).map(|row| {
            html!(
                "<tr><th scope=\"row\">{}<small>{}</small></th><td class=\"lane\"><svg class=\"lane\" role=\"img\" \
                 aria-label=\"{}\">{}{}</svg></td><td class=\"state\">{}</td></tr>",
                row.step,
                row.what,
                format!("{}: {}", row.step, row.spoken(self.over)),
                lines("100%"),
                row.marks.iter().map(|mark| self.mark(mark)).collect::<Html>(),
                row.state_shown(self.over)
            )
        });
        let more = self.rows.len().saturating_sub(MAX_ROWS);
        let more = (more > 0).then(|| html!("<tr><td colspan=\"3\" class=\"quiet\">… {} more rows</td></tr>", more));
        html!(
            "<div class=\"card\"><div class=\"scroll\"><table class=\"timeline\"><thead><tr><th>Step</th>\
             <th class=\"lane\"><svg class=\"axis\" aria-hidden=\"true\">{}</svg></th><th>State</th></tr></thead>\
             <tbody>{}{}</tbody></table></div>{}</div>",
            texts.collect::<Html>(),
            rows.collect::<Html>(),
            more,
            legend()
        )
    }

    fn mark(&self, mark: &Mark) -> Html {
        // What took no time is still seen.
        let width = |from: i64, to: i64| place((self.percent(to) - self.percent(from)).max(0.35));
        let x = |at: i64| place(self.percent(at));
        match mark {
            Mark::Queue { from, to } => html!(
                "<rect class=\"queue\" x=\"{}\" width=\"{}\" y=\"19\" height=\"6\" rx=\"3\"><title>waited {} for a \
                 worker</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from)
            ),
            Mark::Run { from, to, attempt, worker, how } => {
                let wide = self.percent(*to) - self.percent(*from) > 3.0 && *attempt > 1;
                let number = wide.then(|| {
                    let middle = place((self.percent(*from) + self.percent(*to)) / 2.0);
                    html!(
                        "<text class=\"attempt\" x=\"{}\" y=\"26\" text-anchor=\"middle\">{}</text>",
                        middle,
                        *attempt
                    )
                });
                html!(
                    "<g><title>attempt {} at {}: {}, {}</title><rect class=\"run {}\" x=\"{}\" width=\"{}\" y=\"14\" \
                     height=\"16\" rx=\"4\"/>{}</g>",
                    *attempt,
                    worker,
                    how.text(),
                    value::duration(to - from),
                    how.class(),
                    x(*from),
                    width(*from, *to),
                    number
                )
            }
            Mark::Retry { from, to } => html!(
                "<line class=\"retry\" x1=\"{}\" x2=\"{}\" y1=\"22\" y2=\"22\"><title>waited {} for the next \
                 attempt</title></line>",
                x(*from),
                x(*to),
                value::duration(to - from)
            ),
            Mark::Timer { from, to } => html!(
                "<rect class=\"timer\" x=\"{}\" width=\"{}\" y=\"17\" height=\"10\" rx=\"5\"><title>slept \
                 {}</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from)
            ),
            Mark::Wait { from, to, signal } => html!(
                "<rect class=\"wait\" x=\"{}\" width=\"{}\" y=\"17\" height=\"10\" rx=\"5\"><title>waited {} for the \
                 signal {}</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from),
                signal
            ),
            Mark::Items { from, to } => html!(
                "<rect class=\"items\" x=\"{}\" width=\"{}\" y=\"20\" height=\"4\" rx=\"2\"><title>its items took \
                 {}</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from)
            ),
            Mark::Point { at, how, text } => html!(
                "<circle class=\"point {}\" cx=\"{}\" cy=\"22\" r=\"5\"><title>{}</title></circle>",
                how.class(),
                x(*at),
                text
            ),
            Mark::Redelivery { at } => html!(
                "<svg x=\"{}\" overflow=\"visible\"><path class=\"again\" d=\"M-6 3h12l-6 10z\"><title>offered \
                 again</title></path></svg>",
                x(*at)
            ),
        }
    }
}

impl Row {
    pub(super) fn state_shown(&self, over: bool) -> Html {
        let state = match &self.state {
            State::Waiting => html!("<span class=\"quiet\">{}</span>", if over { "not reached" } else { "not yet" }),
            State::Queued => html!("<span class=\"active\">waits for a worker</span>"),
            State::Running { worker } => html!("<span class=\"active\">runs at {}</span>", worker),
            State::Retrying(until) => {
                html!("<span class=\"warn\">tries again at {}</span>", value::moment(ClusterMs(*until)))
            }
            State::Sleeping(until) => {
                html!("<span class=\"timing\">sleeps until {}</span>", value::moment(ClusterMs(*until)))
            }
            State::Child => html!("<span class=\"active\">runs as</span>"),
            State::Awaiting(signal) => html!("<span class=\"timing\">waits for the signal {}</span>", signal),
            State::Items(items) => {
                html!("<span class=\"active\">{}</span>", value::counted(*items as u64, "item"))
            }
            State::Received(count) => html!("<span class=\"quiet\">{} received</span>", *count),
            State::Succeeded => html!("<span class=\"good\">✓ {}</span>", value::duration(self.took())),
            State::Failed(code) => html!("<span class=\"bad\">✗ {}</span>", code),
            State::Skipped => html!("<span class=\"quiet\">skipped</span>"),
            State::Cancelled => html!("<span class=\"warn\">cancelled</span>"),
        };
        let mut more = Vec::new();
        if self.attempts > 1 {
            more.push(value::counted(self.attempts.into(), "attempt"));
        }
        match self.redeliveries {
            0 => {}
            1 => more.push("1 redelivery".into()),
            several => more.push(format!("{several} redeliveries")),
        }
        let more = (!more.is_empty()).then(|| html!("<br><span class=\"quiet\">{}</span>", more.join(", ")));
        let child = self.child.as_ref().map(|id| html!("<br>{}", value::execution(id)));
        html!("{}{}{}", state, child, more)
    }

    /// For those who do not see the picture.
    fn spoken(&self, over: bool) -> &'static str {
        match self.state {
            State::Waiting if over => "not reached",
            State::Waiting => "not yet",
            State::Queued => "waits for a worker",
            State::Running { .. } => "running",
            State::Retrying(_) => "waits for its next attempt",
            State::Sleeping(_) => "sleeps",
            State::Child => "runs as a child",
            State::Awaiting(_) => "waits for a signal",
            State::Items(_) => "its items are under way",
            State::Received(_) => "received",
            State::Succeeded => "succeeded",
            State::Failed(_) => "failed",
            State::Skipped => "skipped",
            State::Cancelled => "cancelled",
        }
    }

    /// From its first mark to its last.
    pub(super) fn took(&self) -> i64 {
        let ends = self.marks.iter().map(|mark| match mark {
            Mark::Queue { from, to }
            | Mark::Run { from, to, .. }
            | Mark::Retry { from, to }
            | Mark::Timer { from, to }
            | Mark::Wait { from, to, .. }
            | Mark::Items { from, to } => (*from, *to),
            Mark::Point { at, .. } | Mark::Redelivery { at } => (*at, *at),
        });
        let (first, last) =
            ends.fold((i64::MAX, i64::MIN), |(first, last), (from, to)| (first.min(from), last.max(to)));
        last.saturating_sub(first).max(0)
    }
}

/// A percentage, as attributes of a picture have it.
fn place(percent: f64) -> String {
    format!("{percent:.3}%")
}

/// Moments to write below a picture of so many milliseconds: round ones, some five of them.
fn ticks(length: i64) -> Vec<i64> {
    const ROUND: [i64; 27] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1_000,
        2_000,
        5_000,
        10_000,
        15_000,
        30_000,
        60_000,
        120_000,
        300_000,
        600_000,
        900_000,
        1_800_000,
        3_600_000,
        7_200_000,
        21_600_000,
        43_200_000,
        86_400_000,
        172_800_000,
    ];
    let wanted = length / 6;
    let days = 86_400_000;
    let step = ROUND.into_iter().find(|step| *step >= wanted).unwrap_or_else(|| wanted / days * days + days);
    // The last is not so near the end that its text would stand out.
    (0..).map(|index| index * step).take_while(|at| *at <= length - length / 40).collect()
}

/// A round moment: no unit that is zero.
fn tick_text(ms: i64) -> String {
    match ms {
        0 => "0".into(),
        ms if ms % 86_400_000 == 0 => format!("{} d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 && ms < 60_000 => format!("{} s", ms / 1_000),
        ms if ms < 1_000 => format!("{ms} ms"),
        ms if ms < 60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms => value::duration(ms),
    }
}

fn legend() -> Html {
    let bars = [
        ("queue", "waits for a worker"),
        ("run", "at a worker"),
        ("run succeeded", "succeeded"),
        ("run failed", "failed"),
        ("run uncertain", "outcome not known"),
        ("timer", "sleeps"),
        ("wait", "waits for a signal"),
    ];
    let bars = bars.into_iter().map(|(class, text)| {
        html!(
            "<span><svg width=\"18\" height=\"8\" aria-hidden=\"true\"><rect class=\"{}\" width=\"18\" height=\"8\" \
             rx=\"3\"/></svg>{}</span>",
            class,
            text
        )
    });
    html!(
        "<div class=\"legend\">{}<span><svg width=\"18\" height=\"8\" aria-hidden=\"true\"><line class=\"retry\" x1=\"1\" \
         x2=\"17\" y1=\"4\" y2=\"4\"/></svg>waits for the next attempt</span><span><svg width=\"14\" height=\"12\" \
         aria-hidden=\"true\"><path class=\"again\" d=\"M1 1h12l-6 10z\"/></svg>offered again</span></div>",
        bars.collect::<Html>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        for length in [1, 7, 250, 5_500, 61_000, 3_600_000, 86_400_000 * 40, i64::from(u32::MAX) * 1_000] {
            let ticks = ticks(length);
            assert!((1..=8).contains(&ticks.len()), "{length}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= length));
        }
        assert_eq!(ticks(5_500), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        assert_eq!(
            [0, 500, 1_500, 5_000, 90_000, 7_200_000].map(tick_text),
            ["0", "500 ms", "1.5 s", "5 s", "1 min 30 s", "2 h"]
        );
    }

    #[test]
    fn an_empty_history_is_drawn_too() {
        let html = Timeline::of(&[], &serde_json::Value::Null, ClusterMs(5), true).render().into_string();
        assert!(html.contains("<table class=\"timeline\">"));
    }
}
