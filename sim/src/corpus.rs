//! The corpus: runs that once found a real mistake, in `sim/corpus`. They run before all others.
//!
//! * `seeds.txt`: a seed a line, and behind it what it found.
//! * `*.json`: scenarios; what each found is its `about`. A seed comes to other worlds with every change of a protocol or of
//!   the plans, a scenario that holds on to moments hardly: it is the better thing to keep.

use crate::mutant::Planted;
use crate::plan::Plan;
use crate::run::{Faulty, seed, verdict};
use crate::scenario::Scenario;
use std::path::{Path, PathBuf};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Corpus {
    /// With what each found.
    pub seeds: Vec<(u64, String)>,
    /// By their files.
    pub scenarios: Vec<(PathBuf, Scenario)>,
}

impl Corpus {
    /// The corpus of this checkout.
    pub fn read() -> Result<Corpus, String> {
        Corpus::of(&Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus"))
    }

    /// The corpus in a folder.
    pub fn of(folder: &Path) -> Result<Corpus, String> {
        let text = |path: &Path| std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()));
        let list = folder.join("seeds.txt");
        let seeds = text(&list)?
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(|line| {
                let (number, found) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
                match (seed::parse(number), found.trim()) {
                    (Ok(_), "") => Err(format!("{}: what did seed {number} find?", list.display())),
                    (Ok(seed), found) => Ok((seed, found.to_owned())),
                    (Err(e), _) => Err(format!("{}: {e}", list.display())),
                }
            })
            .collect::<Result<_, _>>()?;
        let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.retain(|path| path.extension().is_some_and(|ending| ending == "json"));
        files.sort();
        let scenario = |path: PathBuf| match Scenario::parse(&text(&path)?) {
            Ok(scenario) if scenario.about.is_empty() => Err(format!("{}: what did it find?", path.display())),
            Ok(scenario) => Ok((path, scenario)),
            Err(e) => Err(format!("{}: {e}", path.display())),
        };
        Ok(Corpus { seeds, scenarios: files.into_iter().map(scenario).collect::<Result<_, _>>()? })
    }

    /// Runs it: a line for each run that fails, with what it found before. A scenario that plants a mistake has to fail as it
    /// says, and to hold without it.
    pub fn failures(&self) -> Vec<String> {
        let mut failures = Vec::new();
        for (seed, found) in &self.seeds {
            // They found it in worlds that nobody asked a number of commits of.
            let plan = Plan { least_commits: 0, ..Plan::draw(*seed) };
            if let Some(failure) = verdict(&plan, Planted(None), Faulty::Drawn).failure {
                failures.push(format!("seed {seed}, which found: {found}\n    {failure}"));
            }
        }
        for (path, scenario) in &self.scenarios {
            let at = path.display();
            if let Some(expected) = &scenario.fails {
                let failure = scenario.verdict().failure;
                if !expected.is(failure.as_ref()) {
                    failures.push(format!("{at}: {} should fail, not {failure:?}", expected.check));
                }
            }
            let unplanted = Scenario { mutant: None, fails: None, ..scenario.clone() };
            if let Some(failure) = unplanted.verdict().failure {
                failures.push(format!("{at}, which found: {}\n    {failure}", scenario.about));
            }
        }
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_without_its_story_is_refused() {
        let folder = std::env::temp_dir().join(format!("orbit-corpus-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let read = |text: &str| {
            std::fs::write(folder.join("seeds.txt"), text).expect("a file");
            Corpus::of(&folder)
        };
        assert_eq!(
            read("# comment\n\n7  a timer fired early\n").expect("it is right").seeds[0].1,
            "a timer fired early"
        );
        assert!(read("7").unwrap_err().contains("what did seed 7 find"));
        assert!(read("seven  it counts").unwrap_err().contains("seven"));
        std::fs::remove_dir_all(&folder).expect("it is there");
    }

    #[test]
    fn the_corpus_of_this_checkout_is_read() {
        let corpus = Corpus::read().expect("it is right");
        assert!(!corpus.seeds.is_empty() && !corpus.scenarios.is_empty());
    }
}
