//! The order of the steps: that none waits for itself, and that what a step reads is there when it starts.

use super::{Problems, join};
use crate::definition::Template;
use crate::definition::nearest::did_you_mean;
use crate::definition::problem::Spot;
use crate::id::StepId;
use std::collections::BTreeSet;

/// Circles that one check tells.
const MAX_CIRCLES: usize = 10;

/// A step's place in the order.
pub(super) struct Place {
    pub path: String,
    pub id: Option<StepId>,
    /// The steps that it waits for, with their positions.
    pub after: Vec<(StepId, usize)>,
    /// It may wait for more: a problem with that was told already.
    pub unsure: bool,
    /// The positions of the steps that it reads, each with the place of an expression that does.
    pub reads: Vec<(Spot, usize)>,
}

impl Place {
    fn name(&self) -> &str {
        self.id.as_ref().map_or("?", StepId::as_str)
    }
}

/// Tells of circles, of outputs read too early, and of steps that the result reads and that do not exist.
pub(super) fn check(places: &[Place], result: Option<&Template>, problems: &mut Problems) {
    let known: BTreeSet<&str> = places.iter().filter_map(|p| p.id.as_ref()).map(StepId::as_str).collect();
    for (id, place) in result.into_iter().flat_map(Template::places) {
        if !known.contains(id.as_str()) {
            let all = || format!("the steps are {}", known.iter().take(20).copied().collect::<Vec<_>>().join(", "));
            problems.add(place.under("/result"), format!("there is no step `{id}` to read from"), || {
                did_you_mean(id.as_str(), known.iter().copied(), all)
            });
        }
    }
    match order(places, &vec![false; places.len()]) {
        Ok(order) => check_reads(places, &order, problems),
        Err(stuck) => tell_circles(places, stuck, problems),
    }
}

/// An order in which every step comes after those that it waits for; else the steps that wait in vain, as flags.
/// `gone` steps are taken as having ended.
fn order(places: &[Place], gone: &[bool]) -> Result<Vec<usize>, Vec<bool>> {
    let mut waiting: Vec<usize> = vec![0; places.len()];
    let mut followers: Vec<Vec<usize>> = vec![Vec::new(); places.len()];
    for (index, place) in places.iter().enumerate().filter(|(index, _)| !gone[*index]) {
        for (_, before) in place.after.iter().filter(|(_, before)| !gone[*before]) {
            waiting[index] += 1;
            followers[*before].push(index);
        }
    }
    let mut order: Vec<usize> = (0..places.len()).filter(|index| gone[*index] || waiting[*index] == 0).collect();
    let mut next = 0;
    while next < order.len() {
        for follower in &followers[order[next]] {
            waiting[*follower] -= 1;
            if waiting[*follower] == 0 {
                order.push(*follower);
            }
        }
        next += 1;
    }
    if order.len() == places.len() {
        return Ok(order);
    }
    let mut stuck = vec![true; places.len()];
    order.into_iter().for_each(|index| stuck[index] = false);
    Err(stuck)
}

/// Tells each circle with the steps that are in it.
fn tell_circles(places: &[Place], mut stuck: Vec<bool>, problems: &mut Problems) {
    let mut gone = vec![false; places.len()];
    for _ in 0..MAX_CIRCLES {
        let circle = find_circle(places, &stuck);
        let names: Vec<&str> = circle.iter().chain(&circle[..1]).map(|index| places[*index].name()).collect();
        let path = join(&places[circle[0]].path, "after");
        problems.add(path, format!("steps wait for each other in a circle: `{}`", names.join("` after `")), || {
            "take one of them out of another's `after`".into()
        });
        circle.iter().for_each(|index| gone[*index] = true);
        match order(places, &gone) {
            Ok(_) => return,
            Err(still) => stuck = still,
        }
    }
}

/// A circle among steps that all wait in vain, beginning with the one written first.
fn find_circle(places: &[Place], stuck: &[bool]) -> Vec<usize> {
    let mut seen_at = vec![None; places.len()];
    let mut walk = Vec::new();
    let mut at = stuck.iter().position(|s| *s).expect("some steps wait in vain");
    loop {
        if let Some(start) = seen_at[at] {
            let mut circle = walk.split_off(start);
            let first = (0..circle.len()).min_by_key(|i| circle[*i]).expect("a circle has steps");
            circle.rotate_left(first);
            return circle;
        }
        seen_at[at] = Some(walk.len());
        walk.push(at);
        let stuck_before = places[at].after.iter().map(|(_, before)| *before).find(|before| stuck[*before]);
        at = stuck_before.expect("a step that waits in vain waits for one that does too");
    }
}

/// A set of steps.
#[derive(Clone)]
struct Steps(Vec<u64>);

impl Steps {
    fn add(&mut self, index: usize) {
        self.0[index / 64] |= 1 << (index % 64);
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    fn add_all(&mut self, other: &Steps) {
        self.0.iter_mut().zip(&other.0).for_each(|(mine, theirs)| *mine |= theirs);
    }
}

/// Tells of every output that is read by a step that may start before it is there.
fn check_reads(places: &[Place], order: &[usize], problems: &mut Problems) {
    if places.iter().all(|place| place.reads.is_empty()) {
        return;
    }
    let mut before = vec![Steps(vec![0; places.len().div_ceil(64)]); places.len()];
    let mut unsure: Vec<bool> = places.iter().map(|place| place.unsure).collect();
    for index in order {
        let mut steps = std::mem::replace(&mut before[*index], Steps(Vec::new()));
        for (_, earlier) in &places[*index].after {
            steps.add(*earlier);
            steps.add_all(&before[*earlier]);
            unsure[*index] |= unsure[*earlier];
        }
        before[*index] = steps;
    }
    for (index, place) in places.iter().enumerate().filter(|(index, _)| !unsure[*index]) {
        for (spot, read) in place.reads.iter().filter(|(_, read)| !before[index].has(*read)) {
            let (name, other) = (place.name(), places[*read].name());
            if *read == index {
                problems.add(
                    spot.clone(),
                    format!("step `{name}` reads its own output, which is not there yet"),
                    || "read the output of an earlier step".into(),
                );
            } else if before[*read].has(index) {
                let message = format!("step `{name}` reads the output of `{other}`, which runs after it");
                problems.add(spot.clone(), message, || format!("let `{other}` run first, or read something else"));
            } else {
                let message = format!("step `{name}` reads the output of `{other}`, but does not wait for it");
                problems.add(spot.clone(), message, || {
                    // What it waits for now stays, said or not.
                    let mut after: Vec<&str> = place.after.iter().map(|(_, step)| places[*step].name()).collect();
                    after.push(other);
                    format!("write `after: [{}]` in step `{name}`", after.join(", "))
                });
            }
        }
    }
}
