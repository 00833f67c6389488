//! Seeds, as people write them: on the command line, and in the variables that `cargo test -p sim` reads.

use super::ensemble::Ensemble;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

/// One part of an ensemble that several machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// From 0 on.
    pub index: u64,
    pub of: u64,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 0, of: 1 };

    /// Reads `i/n`.
    pub fn parse(text: &str) -> Result<Shard, String> {
        let wrong = || format!("a part is written as `0/4`, the first of four up to `3/4`, not {text:?}");
        let (index, of) = text.split_once('/').ok_or_else(wrong)?;
        match (index.trim().parse(), of.trim().parse()) {
            (Ok(index), Ok(of)) if index < of => Ok(Shard { index, of }),
            _ => Err(wrong()),
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Reads a seed: a number, or the 40 hexadecimal digits of a commit, of which the first 16 count.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    if text.len() == 40 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Ok(u64::from_str_radix(&text[..16], 16).expect("sixteen hexadecimal digits"));
    }
    text.parse().map_err(|_| format!("a seed is a number, or the 40 hexadecimal digits of a commit, not {text:?}"))
}

/// Reads seeds: `0..1000`, half open, or a single one.
pub fn parse_range(text: &str) -> Result<Range<u64>, String> {
    let wrong = || format!("seeds are written as `0..1000`, without the last one, not {text:?}");
    let Some((first, end)) = text.split_once("..") else {
        let one = parse(text).map_err(|_| wrong())?;
        return Ok(one..one.checked_add(1).ok_or_else(wrong)?);
    };
    match (first.trim().parse(), end.trim().parse()) {
        (Ok(first), Ok(end)) if first < end => Ok(first..end),
        _ => Err(wrong()),
    }
}

/// What the variables of `cargo test -p sim` ask for (interfaces, "Simulator").
#[derive(Debug)]
pub struct Asked {
    pub ensemble: Ensemble,
    /// `SIM_ARTIFACTS`: where traces and scenarios of failures go.
    pub artifacts: Option<PathBuf>,
}

impl Asked {
    /// Reads `SIM_SEED`, `SIM_SEEDS`, `SIM_SECONDS`, `SIM_SHARD` and `SIM_ARTIFACTS`; what is empty is not there.
    pub fn read(usual: Range<u64>, variable: impl Fn(&str) -> Option<String>) -> Result<Asked, String> {
        let read = |name: &str| variable(name).filter(|text| !text.trim().is_empty());
        let wrong = |name: &'static str| move |message| format!("{name}: {message}");
        let seeds = match (read("SIM_SEED"), read("SIM_SEEDS")) {
            (Some(_), Some(_)) => return Err("SIM_SEED is one seed, and SIM_SEEDS are many: set one of them".into()),
            (Some(seed), None) => {
                let seed = parse(&seed).map_err(wrong("SIM_SEED"))?;
                // The last one there is stands for itself in no half-open range.
                seed..seed.checked_add(1).ok_or("SIM_SEED: it is too large")?
            }
            (None, Some(seeds)) => parse_range(&seeds).map_err(wrong("SIM_SEEDS"))?,
            (None, None) => usual,
        };
        let shard = read("SIM_SHARD").map_or(Ok(Shard::WHOLE), |text| Shard::parse(&text));
        let shard = shard.map_err(wrong("SIM_SHARD"))?;
        let budget = read("SIM_SECONDS").map(|text| text.trim().parse().map(Duration::from_secs));
        let budget = budget.transpose().map_err(|_| "SIM_SECONDS: a whole number of seconds is wanted")?;
        let ensemble = Ensemble { shard, budget, ..Ensemble::of(seeds) };
        Ok(Asked { ensemble, artifacts: read("SIM_ARTIFACTS").map(PathBuf::from) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(variables: &[(&str, &str)]) -> Result<Asked, String> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Asked::read(0..7, find)
    }

    #[test]
    fn a_commit_is_a_seed_and_stands_for_the_same_one_everywhere() {
        assert_eq!(parse("0000000000000010ffffffffffffffffffffffff"), Ok(16));
        assert_eq!(parse("42"), Ok(42));
        for bad in ["", "-1", "e570edd", "forty-two"] {
            assert!(parse(bad).unwrap_err().contains("40 hexadecimal digits"), "{bad}");
        }
    }

    #[test]
    fn ranges_and_parts_that_make_no_sense_are_refused_with_what_would() {
        assert_eq!(parse_range("3..5"), Ok(3..5));
        assert_eq!(parse_range("9"), Ok(9..10));
        for bad in ["5..3", "4..4", "a..b", "..", "-1..2"] {
            assert!(parse_range(bad).unwrap_err().contains("`0..1000`"), "{bad}");
        }
        assert_eq!(Shard::parse("1/4"), Ok(Shard { index: 1, of: 4 }));
        for bad in ["4/4", "1", "0/0", "a/b"] {
            assert!(Shard::parse(bad).unwrap_err().contains("`0/4`"), "{bad}");
        }
    }

    #[test]
    fn the_variables_of_the_tests_choose_seeds_parts_and_time() {
        let whole = asked(&[("SIM_SEED", "")]).unwrap();
        assert_eq!((whole.ensemble.seeds, whole.ensemble.shard), (0..7, Shard::WHOLE));
        let part = asked(&[("SIM_SEEDS", "10..30"), ("SIM_SHARD", "1/3"), ("SIM_SECONDS", "9")]).unwrap();
        assert_eq!(part.ensemble.seeds, 10..30);
        assert_eq!((part.ensemble.shard.index, part.ensemble.size()), (1, 7));
        assert_eq!(part.ensemble.budget, Some(Duration::from_secs(9)));
        let one = asked(&[("SIM_SEED", "5"), ("SIM_ARTIFACTS", "out")]).unwrap();
        assert_eq!((one.ensemble.seeds, one.artifacts), (5..6, Some(PathBuf::from("out"))));
    }

    #[test]
    fn a_variable_that_is_wrong_is_named() {
        for (name, value) in [("SIM_SEED", "x"), ("SIM_SEEDS", "9..1"), ("SIM_SHARD", "2/2"), ("SIM_SECONDS", "1.5")] {
            assert!(asked(&[(name, value)]).unwrap_err().contains(name), "{name}");
        }
        assert!(asked(&[("SIM_SEED", "1"), ("SIM_SEEDS", "1..2")]).is_err());
    }
}
