//! The deployed definitions, by name and version.

use crate::api::response::WorkflowItem;
use crate::definition::Definition;
use crate::id::{Version, WorkflowName};
use crate::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Every deployed version of every workflow.
#[derive(Debug, Default)]
pub(crate) struct Catalog {
    workflows: BTreeMap<WorkflowName, Workflow>,
    /// Those that are stored, and that this version cannot read.
    unreadable: BTreeSet<(WorkflowName, Version)>,
}

#[derive(Debug)]
struct Workflow {
    versions: BTreeMap<Version, Deployed>,
    /// What a start without a version takes: the version deployed last.
    latest: Version,
}

/// A deployed version.
#[derive(Clone, Debug)]
pub(crate) struct Deployed {
    pub definition: Arc<Definition>,
    pub created_at: ClusterMs,
}

impl Catalog {
    /// Takes a version in; the newest of its workflow, unless it is there already.
    pub fn insert(&mut self, definition: Arc<Definition>, created_at: ClusterMs) {
        let (name, version) = (definition.name.clone(), definition.version.clone());
        let workflow = self
            .workflows
            .entry(name)
            .or_insert_with(|| Workflow { versions: BTreeMap::new(), latest: version.clone() });
        if !workflow.versions.contains_key(&version) {
            workflow.latest = version.clone();
            workflow.versions.insert(version, Deployed { definition, created_at });
        }
    }

    /// A stored one cannot be read; whether that is news.
    pub fn is_new_unreadable(&mut self, name: &WorkflowName, version: &Version) -> bool {
        self.unreadable.insert((name.clone(), version.clone()))
    }

    /// A version, or the newest.
    pub fn get(&self, name: &WorkflowName, version: Option<&Version>) -> Option<&Deployed> {
        let workflow = self.workflows.get(name)?;
        workflow.versions.get(version.unwrap_or(&workflow.latest))
    }

    /// The names of all workflows.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.workflows.keys().map(WorkflowName::as_str)
    }

    /// The version that a start without one takes.
    pub fn latest(&self, name: &WorkflowName) -> Option<&Version> {
        self.workflows.get(name).map(|workflow| &workflow.latest)
    }

    /// All of them, by name and version.
    pub fn items(&self) -> Vec<WorkflowItem> {
        let deployed = self.workflows.values().flat_map(|w| w.versions.values());
        deployed.map(|d| self.item(d)).collect()
    }

    /// What the API shows of a version.
    pub fn item(&self, deployed: &Deployed) -> WorkflowItem {
        let definition = &deployed.definition;
        let latest = self.workflows.get(&definition.name).is_some_and(|w| w.latest == definition.version);
        WorkflowItem {
            name: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            description: definition.description.clone(),
            created_at_ms: deployed.created_at,
            latest,
        }
    }
}
