//! Who may write.

use crate::support::*;
use orbit_core::id::Term;
use orbit_core::node::Connection;
use orbit_core::store::append::Fence;
use orbit_core::store::transaction::{CampaignVerdict, SCHEMA_VERSION, Transaction, Verdict};
use orbit_io::driver::clock;

#[test]
fn each_campaign_raises_the_term_and_names_the_holder() {
    let mut store = Running::fresh();
    let CampaignVerdict::Won { term, cluster_id, before } = store.try_campaign(1) else { panic!("lost") };
    assert_eq!((term, before.fence.term, before.holder), (Term(1), Term(0), None));
    assert_eq!(before.schema_version, SCHEMA_VERSION);
    let row = store.check();
    assert_eq!((row.fence.term, row.holder, row.cluster_id), (Term(1), Some(holder()), cluster_id));
    let CampaignVerdict::Won { term, before, .. } = store.try_campaign(2) else { panic!("lost") };
    assert_eq!((term, before.fence.term, before.holder), (Term(2), Term(1), Some(holder())));
}

#[test]
fn a_repeated_campaign_gives_the_term_that_the_first_one_won() {
    let mut store = Running::fresh();
    assert_eq!(store.campaign(1), store.campaign(1));
    assert_eq!(store.check().fence.term, Term(1));
}

#[test]
fn cluster_ids_are_drawn_and_kept() {
    let (mut first, mut second) = (Running::fresh(), Running::fresh());
    let id = first.check().cluster_id;
    assert_ne!(id, second.check().cluster_id);
    assert_eq!(first.reopened().check().cluster_id, id);
}

#[test]
fn the_clock_of_the_database_is_that_of_its_host() {
    let mut store = Running::fresh();
    let before = clock::wall().0;
    let read = store.check().clock.0;
    assert!((before..=clock::wall().0).contains(&read), "{read}");
}

#[test]
fn a_release_takes_the_name_off_and_leaves_the_term() {
    let (mut store, fence) = Running::led();
    let release = |store: &mut Running, fence: Fence| store.done(Connection::Control, Transaction::Release(fence));
    assert_eq!(release(&mut store, other_fence()), Verdict::Release(false));
    assert_eq!(store.check().holder, Some(holder()));
    assert_eq!(release(&mut store, fence), Verdict::Release(true));
    assert_eq!(release(&mut store, fence), Verdict::Release(true), "a repetition says the same");
    let row = store.check();
    assert_eq!((row.holder, row.fence), (None, fence));
}

#[test]
fn a_campaign_is_refused_by_newer_tables_and_by_another_mode() {
    let (mut store, _) = Running::led();
    store.place.meddle("UPDATE orbit_cluster SET mode = 'shared'");
    assert_eq!(store.try_campaign(2), CampaignVerdict::OtherMode { found: "shared".into() });
    store.place.meddle("UPDATE schema_version SET version = 99");
    assert_eq!(store.try_campaign(2), CampaignVerdict::NewerSchema { found: 99 });
    assert_eq!(store.check().fence.term, Term(1), "nothing was raised");
    // A transaction that stopped leaves nothing open behind it.
    store.place.meddle("UPDATE orbit_cluster SET mode = 'single'; UPDATE schema_version SET version = 1");
    assert_eq!(store.campaign(2).term, Term(2));
}
