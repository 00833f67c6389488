//! One self-contained page: the story as data, and a script that draws it. No resources from elsewhere, no framework.

use super::read::Line;
use super::story::{Item, Lane, Shape, Story, sentence};
use super::words::{Kind, short};
use crate::check::catalogue::CHECKS;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What fills a page; the script keeps the rest out of it.
const TEMPLATE: &str = include_str!("page.html");

/// More than this is no page any more: the oldest are left out.
const ITEMS: usize = 3_000;

/// So much of a line of the trace can be looked at.
const LINE: usize = 900;

/// How long the account of what came before is.
const ACCOUNT: usize = 30;

/// What is shown of a run.
#[derive(Clone, Debug, Default)]
pub struct Subject {
    /// Which run it is.
    pub title: String,
    /// What is known of it beside its trace.
    pub facts: Vec<String>,
    /// The mistake that was planted, and what it does.
    pub mutant: Option<(String, String)>,
    /// What is left out of the page: everything before this time, in microseconds.
    pub from_us: u64,
}

/// The page of a run: what its trace tells.
pub fn page(subject: &Subject, lines: &[Line]) -> String {
    let story = Story::of(lines);
    let concerns = story.concerns();
    let within = |item: &&Item| item.until >= subject.from_us;
    let all = story.items.iter().filter(within).count();
    let items: Vec<&Item> = story.items.iter().filter(within).skip(all.saturating_sub(ITEMS)).collect();
    let mut facts = subject.facts.clone();
    facts.push(format!("{} lines of trace, {} simulated", lines.len(), seconds(story.ends_at)));
    if items.len() < story.items.len() {
        facts.push(format!("this page holds what happened since {}", seconds(items.first().map_or(0, |item| item.at))));
    }
    let named: Vec<&str> = concerns.iter().map(String::as_str).collect();
    let concerned = match named.len() {
        0 => "the violation".to_owned(),
        1..=4 => named.join(", "),
        more => format!("{} and {} more", named[..3].join(", "), more - 3),
    };
    let data = data(&story, &items, &concerns, lines, items.len() < story.items.len());
    TEMPLATE
        .replace("{{title}}", &escaped(&subject.title))
        .replace("{{facts}}", &facts.iter().map(|fact| escaped(fact)).collect::<Vec<_>>().join(" · "))
        .replace("{{verdict}}", &verdict(&story, subject))
        .replace("{{concerns}}", &escaped(&concerned))
        // Nothing in it can end the element that it stands in.
        .replace("{{data}}", &data.to_string().replace('<', "\\u003c"))
}

fn verdict(story: &Story, subject: &Subject) -> String {
    let mutant = subject.mutant.as_ref().map_or_else(String::new, |(name, about)| {
        format!("<p>A mistake is planted, <code>{}</code>: {}</p>", escaped(name), escaped(about))
    });
    let Some(verdict) = &story.verdict else {
        return format!("<div class=\"verdict well\"><p><b>Every check holds.</b></p>{mutant}</div>");
    };
    let promise = CHECKS
        .iter()
        .find(|entry| entry.check == verdict.check)
        .map_or_else(String::new, |entry| format!("<p>What it checks: {}</p>", escaped(entry.promise)));
    format!(
        "<div class=\"verdict\"><p><b>At {}, the check <code>{}</code> says:</b> {}</p>{promise}{mutant}</div>",
        seconds(verdict.at),
        escaped(&verdict.check),
        escaped(&verdict.message)
    )
}

/// What the script draws.
fn data(story: &Story, items: &[&Item], concerns: &BTreeSet<String>, lines: &[Line], cut: bool) -> Value {
    let lanes = story.lanes();
    let number: BTreeMap<&Lane, usize> = lanes.iter().zip(0..).collect();
    let culprits: BTreeSet<*const Item> = story.culprits().map(std::ptr::from_ref).collect();
    let mut texts: Vec<String> = Vec::new();
    let mut rows = Vec::new();
    for item in items {
        let told: Vec<usize> = item
            .lines
            .iter()
            .map(|line| {
                let line = &lines[*line];
                let whole = json!({"at_us": line.at_us, "what": line.what, "data": line.data});
                texts.push(short(&whole.to_string(), LINE));
                texts.len() - 1
            })
            .collect();
        let culprit = culprits.contains(&std::ptr::from_ref(*item));
        let flags = u8::from(is_near(item, concerns)) + 2 * u8::from(item.said.key) + 4 * u8::from(culprit);
        rows.push(json!([
            item.shape,
            number[&item.lane],
            item.to.as_ref().map(|to| number[to]),
            item.at,
            item.until,
            item.said.kind,
            short(&item.said.text, 300),
            item.said.term,
            flags,
            told
        ]));
    }
    json!({
        "lanes": lanes.iter().map(|lane| json!({"name": lane.name(), "kind": kind_of(lane)})).collect::<Vec<_>>(),
        "items": rows,
        "lines": texts,
        "story": account(story, items, concerns),
        "verdict": story.verdict.as_ref().map(|v| json!({"check": v.check, "message": v.message, "at": v.at})),
        "ends_at": story.ends_at,
        "show": shown_at_first(story),
        "cut": cut,
    })
}

/// What is mostly noise is shown where the check is about just that.
fn shown_at_first(story: &Story) -> Vec<Kind> {
    match story.verdict.as_ref().map(|verdict| verdict.check.as_str()) {
        Some("validity" | "lease" | "nodes" | "timeline") => vec![Kind::Watch],
        Some("read" | "patience") => vec![Kind::Read, Kind::Idle],
        Some("log") => vec![Kind::Log],
        _ => Vec::new(),
    }
}

fn kind_of(lane: &Lane) -> &'static str {
    match lane {
        Lane::World => "world",
        Lane::Client(_) => "client",
        Lane::Worker(_) => "worker",
        Lane::Server(..) => "server",
        Lane::Database | Lane::OldPrimary => "database",
    }
}

fn is_near(item: &Item, concerns: &BTreeSet<String>) -> bool {
    let dull = matches!(item.said.kind, Kind::Read | Kind::Idle | Kind::Watch | Kind::Load | Kind::Log);
    !dull && item.said.about.iter().any(|id| concerns.contains(id))
}

/// What came before the violation: whatever a reader wants to hear of in any case, and what concerns it.
fn account(story: &Story, items: &[&Item], concerns: &BTreeSet<String>) -> Vec<Value> {
    let end = story.verdict.as_ref().map_or(story.ends_at, |verdict| verdict.at);
    let culprits: BTreeSet<*const Item> = story.culprits().map(std::ptr::from_ref).collect();
    let is_culprit = |item: &Item| culprits.contains(&std::ptr::from_ref(item));
    let matters = |item: &Item| item.at <= end && (item.said.key || is_near(item, concerns) || is_culprit(item));
    let told: Vec<(usize, &&Item)> = items.iter().enumerate().filter(|(_, item)| matters(item)).collect();
    // Who may write is told however long ago that changed; of everything else, what came last.
    let (lead, rest): (Vec<_>, Vec<_>) = told.into_iter().partition(|(_, item)| item.said.kind == Kind::Lead);
    let lead = &lead[lead.len().saturating_sub(ACCOUNT / 2)..];
    let rest = &rest[rest.len().saturating_sub(ACCOUNT - lead.len())..];
    let mut account: Vec<Value> = lead
        .iter()
        .chain(rest)
        .map(|(index, item)| {
            let class = match item.said.kind {
                Kind::Fault => "fault",
                Kind::Trouble => "trouble",
                _ if is_near(item, concerns) || is_culprit(item) => "near",
                _ => "",
            };
            // A message counts from its end, a bar from its beginning.
            let at = if item.shape == Shape::Message { item.until } else { item.at };
            json!([at, sentence(item), index, class])
        })
        .collect();
    account.sort_by_key(|line| line[0].as_u64());
    if let Some(verdict) = &story.verdict {
        account.push(json!([verdict.at, format!("{}: {}", verdict.check, verdict.message), -1, "violation"]));
    }
    account
}

/// `2.312 s`.
fn seconds(us: u64) -> String {
    format!("{}.{:03} s", us / 1_000_000, us / 1_000 % 1_000)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
