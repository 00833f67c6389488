//! How much a run was: so that a number of seeds means something.

use serde::Serialize;

/// What one run was made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Size {
    /// One of them leads, and others stand by; else there is one alone.
    pub cluster: bool,
    pub servers: u64,
    pub workers: u64,
    /// Milliseconds of true time from the beginning of the world to its end.
    pub simulated_ms: u64,
    /// Transactions that changed something, and whose outcome reached the server that had sent them.
    pub commits: u64,
    /// Faults that struck.
    pub faults: u64,
    /// What happened in the world, one thing at a time.
    pub events: u64,
}

impl Size {
    /// What [`Size::values`] are called.
    pub const NAMES: [&str; 6] = ["servers", "workers", "simulated ms", "acknowledged commits", "faults", "events"];

    /// All of it, in the order of the names.
    pub fn values(&self) -> [u64; 6] {
        [self.servers, self.workers, self.simulated_ms, self.commits, self.faults, self.events]
    }

    fn of(cluster: bool, values: [u64; 6]) -> Size {
        let [servers, workers, simulated_ms, commits, faults, events] = values;
        Size { cluster, servers, workers, simulated_ms, commits, faults, events }
    }

    fn with(self, other: Size, both: impl Fn(u64, u64) -> u64) -> Size {
        let mut values = self.values();
        for (value, other) in values.iter_mut().zip(other.values()) {
            *value = both(*value, other);
        }
        Size::of(self.cluster, values)
    }
}

/// The sizes of many runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    pub runs: u64,
    /// Of those, the ones of a cluster.
    pub clusters: u64,
    /// The fewest servers of a cluster.
    pub least_cluster: u64,
    pub total: Size,
    /// The smallest of each.
    pub least: Size,
}

impl Sizes {
    /// One more run.
    pub fn add(&mut self, size: Size) {
        self.least = if self.runs == 0 { size } else { self.least.with(size, u64::min) };
        self.total = self.total.with(size, |a, b| a + b);
        self.runs += 1;
        if size.cluster {
            self.least_cluster = if self.clusters == 0 { size.servers } else { self.least_cluster.min(size.servers) };
            self.clusters += 1;
        }
    }

    /// The averages, in the order of [`Size::NAMES`].
    pub fn averages(&self) -> [f64; 6] {
        self.total.values().map(|total| total as f64 / self.runs.max(1) as f64)
    }

    /// A line for people: averages, and the smallest.
    pub fn line(&self) -> String {
        let each = self.averages().into_iter().zip(self.least.values()).zip(Size::NAMES);
        let each: Vec<String> =
            each.map(|((average, least), name)| format!("{average:.1} {name} (least {least})")).collect();
        let (clusters, servers) = (self.clusters, self.least_cluster);
        format!("a run on average: {}; {clusters} of clusters (least {servers} servers)", each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_and_the_smallest_are_of_all_runs() {
        let mut sizes = Sizes::default();
        sizes.add(Size { servers: 1, commits: 10, ..Size::default() });
        sizes.add(Size { cluster: true, servers: 3, commits: 4, ..Size::default() });
        assert_eq!((sizes.averages()[0], sizes.averages()[3]), (2.0, 7.0));
        assert_eq!((sizes.least.servers, sizes.least.commits), (1, 4));
        assert_eq!((sizes.clusters, sizes.least_cluster), (1, 3));
        assert!(sizes.line().contains("7.0 acknowledged commits (least 4)"), "{}", sizes.line());
    }
}
