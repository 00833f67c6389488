//! The runs of an execution that continued as new: which one a page shows, and the ways to the others.

use super::html::{Html, encoded, html};
use super::{Trouble, value};
use orbit_core::api::{ApiError, ErrorCode};
use orbit_core::id::{ExecutionId, Run};
use std::collections::BTreeSet;

/// Runs that are all linked where there are no more of them.
const FEW: u32 = 9;

/// A run, and the newest that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub run: Run,
    pub newest: Run,
}

impl Shown {
    /// The run that `?run=` asks for, or the newest.
    pub fn find(asked: Option<&str>, newest: Run) -> Result<Shown, Trouble> {
        let Some(text) = asked else { return Ok(Shown { run: newest, newest }) };
        match text.parse() {
            Ok(run) if (1..=newest.0).contains(&run) => Ok(Shown { run: Run(run), newest }),
            _ => {
                let message = format!("`run` is the number of a run, from 1 to {}", newest.0);
                Err(ApiError::new(ErrorCode::InvalidRequest, message))
            }
        }
    }

    pub fn is_newest(self) -> bool {
        self.run == self.newest
    }

    /// The page of an execution: of this run, with more of a query.
    pub fn target(self, id: &ExecutionId, more: &str) -> String {
        let run = (!self.is_newest()).then(|| format!("run={}", self.run.0));
        let query: Vec<&str> = run.as_deref().into_iter().chain((!more.is_empty()).then_some(more)).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("/ui/executions/{}{mark}{}", encoded(id.as_str()), query.join("&"))
    }

    /// The way to the page of another run.
    pub fn link(self, id: &ExecutionId, run: Run, text: &str) -> Html {
        html!("<a href=\"{}\">{}</a>", Shown { run, newest: self.newest }.target(id, ""), text)
    }

    /// The runs by their numbers, each a way to it; of many the first, the newest and those beside this one.
    pub fn numbers(self, id: &ExecutionId) -> Html {
        let Shown { run: Run(run), newest: Run(newest) } = self;
        let near = [1, run.saturating_sub(1), run, run + 1, newest];
        let shown: BTreeSet<u32> = if newest <= FEW { (1..=newest).collect() } else { near.into() };
        let (mut numbers, mut before) = (Html::new(), 0);
        for number in shown.into_iter().filter(|number| (1..=newest).contains(number)) {
            let gap = if number > before + 1 { " … " } else { " " };
            let text = number.to_string();
            numbers.push(html!("{}", if before == 0 { "" } else { gap }));
            numbers.push(match number == run {
                true => html!("<b aria-current=\"page\">{}</b>", text),
                false => self.link(id, Run(number), &text),
            });
            before = number;
        }
        html!("{} <span class=\"quiet\">of {}</span>", numbers, value::counted(newest.into(), "run"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id() -> ExecutionId {
        ExecutionId::new("a~b[0]")
    }

    #[test]
    fn the_newest_run_is_shown_unless_another_is_asked_for() {
        assert_eq!(Shown::find(None, Run(3)).map(Shown::is_newest), Ok(true));
        assert_eq!(Shown::find(Some("2"), Run(3)), Ok(Shown { run: Run(2), newest: Run(3) }));
        for asked in ["0", "4", "-1", "x", ""] {
            let refused = Shown::find(Some(asked), Run(3)).expect_err("there is no such run");
            assert!(refused.message.contains("from 1 to 3"), "{asked}: {}", refused.message);
        }
    }

    #[test]
    fn a_run_that_is_not_the_newest_stands_in_the_address() {
        let newest = Shown { run: Run(3), newest: Run(3) };
        assert_eq!(newest.target(&id(), ""), "/ui/executions/a~b%5B0%5D");
        assert_eq!(newest.target(&id(), "after=5"), "/ui/executions/a~b%5B0%5D?after=5");
        assert_eq!(Shown { run: Run(1), ..newest }.target(&id(), "after=5"), "/ui/executions/a~b%5B0%5D?run=1&after=5");
    }

    #[test]
    fn few_runs_are_all_linked_and_of_many_the_near_ones() {
        let numbers = |run, newest| {
            let html = Shown { run: Run(run), newest: Run(newest) }.numbers(&id()).into_string();
            let text: String =
                html.split('<').map(|part| part.split_once('>').map_or(part, |(_, text)| text)).collect();
            text
        };
        assert_eq!(numbers(2, 3), "1 2 3 of 3 runs");
        assert_eq!(numbers(50, 100), "1 … 49 50 51 … 100 of 100 runs");
        assert_eq!(numbers(1, 100), "1 2 … 100 of 100 runs");
        assert_eq!(numbers(100, 100), "1 … 99 100 of 100 runs");
    }
}
