//! Randomness: one seed, one stream for each purpose, so that one more draw in one place moves nothing elsewhere.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// What a stream of random numbers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Plan = 1,
    Workload = 2,
    Network = 3,
    Disk = 4,
    Server = 5,
    Clients = 6,
    Workers = 7,
    Faults = 8,
    Entropy = 9,
    Database = 10,
    Backends = 11,
    Store = 12,
    Loops = 13,
    Talk = 14,
    Cluster = 15,
    Lease = 16,
    Promotion = 17,
    Skew = 18,
    Recovery = 19,
    Hangs = 20,
    RowLock = 21,
}

/// A probability, as an integer ratio; written `1/20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio {
    hits: u32,
    of: u32,
}

impl Ratio {
    pub const NEVER: Ratio = Ratio { hits: 0, of: 1 };

    /// `hits` of `of`.
    pub const fn new(hits: u32, of: u32) -> Ratio {
        assert!(of > 0 && hits <= of);
        Ratio { hits, of }
    }

    /// Whether it never hits.
    pub fn is_never(self) -> bool {
        self.hits == 0
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hits, self.of)
    }
}

impl FromStr for Ratio {
    type Err = String;
    fn from_str(text: &str) -> Result<Ratio, String> {
        let wrong = || format!("a probability is written as `1/20`, not {text:?}");
        let (hits, of) = text.split_once('/').ok_or_else(wrong)?;
        match (hits.parse(), of.parse()) {
            (Ok(hits), Ok(of)) if of > 0 && hits <= of => Ok(Ratio { hits, of }),
            _ => Err(wrong()),
        }
    }
}

impl Serialize for Ratio {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ratio {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Ratio, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One stream.
#[derive(Clone, Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    /// The stream of `seed` for this purpose.
    pub fn new(seed: u64, stream: Stream) -> Dice {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(stream as u64);
        Dice(rng)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "there is no number below 0");
        u64::try_from((u128::from(self.0.next_u64()) * u128::from(n)) >> 64).expect("less than n")
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, [low, high]: [u64; 2]) -> u64 {
        low + self.below(high.max(low) - low + 1)
    }

    /// Whether something of this probability happens.
    pub fn chance(&mut self, ratio: Ratio) -> bool {
        // A draw in any case: whether a fault is on moves nothing else.
        self.below(u64::from(ratio.of)) < u64::from(ratio.hits)
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let index = usize::try_from(self.below(from.len() as u64)).expect("an index");
        &from[index]
    }

    /// The index of one of them, by weight.
    pub fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut at = self.below(weights.iter().map(|w| u64::from(*w)).sum());
        for (index, weight) in weights.iter().enumerate() {
            match at.checked_sub(u64::from(*weight)) {
                Some(rest) => at = rest,
                None => return index,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }

    /// A random id.
    pub fn uuid(&mut self) -> Uuid {
        uuid::Builder::from_random_bytes(self.bytes()).into_uuid()
    }

    /// Random bytes.
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}

/// Every stream that a running world draws from.
#[derive(Clone, Debug)]
pub struct Streams {
    pub network: Dice,
    pub disk: Dice,
    pub server: Dice,
    pub clients: Dice,
    pub workers: Dice,
    pub faults: Dice,
    pub entropy: Dice,
    pub database: Dice,
    /// Of row locks: faults that came later leave the others as they were.
    pub locks: Dice,
}

impl Streams {
    /// The streams of `seed`.
    pub fn new(seed: u64) -> Streams {
        let dice = |stream| Dice::new(seed, stream);
        Streams {
            network: dice(Stream::Network),
            disk: dice(Stream::Disk),
            server: dice(Stream::Server),
            clients: dice(Stream::Clients),
            workers: dice(Stream::Workers),
            faults: dice(Stream::Faults),
            entropy: dice(Stream::Entropy),
            database: dice(Stream::Database),
            locks: dice(Stream::Hangs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_of_one_seed_differ_and_each_repeats_itself() {
        let draws = |stream| {
            let mut dice = Dice::new(1, stream);
            [dice.below(1 << 40), dice.below(1 << 40), dice.below(1 << 40)]
        };
        assert_eq!(draws(Stream::Disk), draws(Stream::Disk));
        assert_ne!(draws(Stream::Disk), draws(Stream::Network));
    }

    #[test]
    fn a_ratio_hits_about_as_often_as_it_says_and_is_read_back_from_its_text() {
        let ratio: Ratio = "1/4".parse().unwrap();
        assert_eq!(ratio.to_string(), "1/4");
        let mut dice = Dice::new(1, Stream::Disk);
        let hits = (0..10_000).filter(|_| dice.chance(ratio)).count();
        assert!((2_300..2_700).contains(&hits), "{hits}");
        assert!(!(0..100).any(|_| dice.chance(Ratio::NEVER)));
        for bad in ["", "1", "2/1", "1/0", "a/b"] {
            assert!(bad.parse::<Ratio>().is_err(), "{bad}");
        }
    }

    #[test]
    fn weights_of_zero_are_never_drawn() {
        let mut dice = Dice::new(1, Stream::Disk);
        assert!((0..200).all(|_| dice.weighted(&[0, 3, 0, 1]) % 2 == 1));
    }
}
