//! The words of the expression language. What is not in these tables cannot be used; the reference documentation is
//! checked against them.

/// A word and what it is for.
pub type Word = (&'static str, &'static str);

/// The names that expressions see.
pub const NAMES: &[Word] = &[
    ("input", "what the execution was started with"),
    ("steps", "`steps.<id>.output`: what a step gave; null where it was skipped"),
    ("execution", "`id`, `workflow`, `version` and `run` of this execution, and `continue_suggested`"),
    ("item", "in a `for` step: the item of the list"),
    ("index", "in a `for` step: the item's position; the first is 0"),
    ("output", "in `compensate`: what the step (or the item) gave"),
    ("event", "in handlers of events and in updates: what the signal or update brought"),
    ("failure", "in the handlers `failure`, `cancel` and `timeout`: `reason`, `code`, `message` and `step`"),
];

/// What stands behind `execution.`
pub const EXECUTION_FIELDS: &[&str] = &["id", "workflow", "version", "run", "continue_suggested"];

/// What stands behind `failure.`
pub const FAILURE_FIELDS: &[&str] = &["reason", "code", "message", "step"];

/// Functions: `range(3)`.
pub const FUNCTIONS: &[Word] =
    &[("range", "the whole numbers up to, from and to, or from and to in steps: `range(3)`, `range(1, 4)`")];

/// Filters: `value | upper`.
pub const FILTERS: &[Word] = &[
    ("abs", "a number without its sign"),
    ("batch", "a list as lists of so many items: `batch(2)`"),
    ("bool", "true or false"),
    ("capitalize", "the first letter large, the others small"),
    ("default", "another value where this one is missing or null: `default(0)`"),
    ("dictsort", "an object as a list of [key, value], sorted: `dictsort(by=\"value\", reverse=true)`"),
    ("first", "the first item"),
    ("float", "a number with a fraction, from a number or text"),
    ("int", "a whole number, from a number or text"),
    ("items", "an object as a list of [key, value]"),
    ("join", "a list as one text: `join(\", \")`"),
    ("last", "the last item"),
    ("length", "how many items or characters"),
    ("lines", "a text as a list of its lines"),
    ("list", "a list of a text's characters, a list's items or an object's keys"),
    ("lower", "all letters small"),
    ("map", "of each item a field, or what a filter gives: `map(attribute=\"price\")`, `map(\"upper\")`"),
    ("max", "the largest item"),
    ("min", "the smallest item"),
    ("reject", "without the items that pass a test: `reject(\"none\")`"),
    ("rejectattr", "without the items whose field passes a test: `rejectattr(\"paid\", \"eq\", true)`"),
    ("replace", "with one text put for another: `replace(\"a\", \"b\")`"),
    ("reverse", "in the other order"),
    ("round", "rounded to so many digits: `round(2)`"),
    ("select", "only the items that pass a test: `select(\"gt\", 10)`"),
    ("selectattr", "only the items whose field passes a test: `selectattr(\"stock\", \"gt\", 0)`"),
    ("slice", "a list as so many lists: `slice(2)`"),
    ("sort", "sorted: `sort(attribute=\"price\", reverse=true)`"),
    ("split", "a text as a list: `split(\",\")`"),
    ("string", "as text"),
    ("sum", "the sum of the items"),
    ("title", "each word's first letter large"),
    ("tojson", "as JSON text"),
    ("trim", "without white space at the ends"),
    ("unique", "each item once"),
    ("upper", "all letters large"),
];

/// What filters are called elsewhere, as filters, functions or methods, and what they are here.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (&["len", "size", "count"], "length"),
    (&["str", "toString", "to_string"], "string"),
    (&["upcase", "uppercase", "toUpperCase", "to_upper"], "upper"),
    (&["downcase", "lowercase", "toLowerCase", "to_lower"], "lower"),
    (&["strip"], "trim"),
    (&["json", "to_json", "toJson", "dumps", "stringify"], "tojson"),
    (&["coalesce", "nvl", "ifnull"], "default"),
    (&["filter", "where"], "selectattr"),
    (&["uniq", "distinct"], "unique"),
    (&["sorted", "sort_by"], "sort"),
    (&["reversed"], "reverse"),
    (&["number", "to_number", "parseFloat"], "float"),
    (&["integer", "parseInt", "to_i"], "int"),
    (&["keys"], "list"),
    (&["entries"], "items"),
];

/// The filter that is called `word` elsewhere.
pub fn called_here(word: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(elsewhere, _)| elsewhere.contains(&word)).map(|(_, here)| *here)
}

/// Functions of other languages that give something else each time.
pub const DRAWN: &[&str] =
    &["now", "today", "date", "time", "timestamp", "datetime", "utcnow", "random", "rand", "uuid", "uuid4"];
/// Where that comes from here.
pub const DRAWN_WHERE: &str =
    "what an expression gives must be the same each time; take it from the input, or let a task give it";

/// Tests: `value is none`, `value is not even`; in `select` and its kin as text.
pub const TESTS: &[Word] = &[
    ("boolean", "true or false"),
    ("defined", "there"),
    ("divisibleby", "a multiple: `n is divisibleby(3)`"),
    ("endingwith", "a text with this end"),
    ("eq", "equal: `select(\"eq\", 1)`"),
    ("even", "an even number"),
    ("false", "false itself"),
    ("float", "a number with a fraction"),
    ("ge", "at least"),
    ("gt", "more than"),
    ("in", "an item, a key or a part of"),
    ("integer", "a whole number"),
    ("iterable", "something with items"),
    ("le", "at most"),
    ("lt", "less than"),
    ("mapping", "an object"),
    ("ne", "not equal"),
    ("none", "null"),
    ("null", "null"),
    ("number", "a number"),
    ("odd", "an odd number"),
    ("sequence", "a list"),
    ("startingwith", "a text with this beginning"),
    ("string", "a text"),
    ("true", "true itself"),
    ("undefined", "not there"),
];

/// What the engine brings that is not in the tables above, and is taken out of it.
pub(super) const LEFT_OUT_FILTERS: &[&str] = &[
    "safe",
    "escape",
    "e",
    "count",
    "d",
    "attr",
    "indent",
    "groupby",
    "chain",
    "zip",
    "pprint",
    "format",
    "urlencode",
];

/// As [`LEFT_OUT_FILTERS`], for tests.
pub(super) const LEFT_OUT_TESTS: &[&str] = &[
    "safe",
    "escaped",
    "int",
    "lower",
    "upper",
    "sameas",
    "equalto",
    "==",
    "!=",
    "lessthan",
    "<",
    "<=",
    "greaterthan",
    ">",
    ">=",
    "filter",
    "test",
];

/// As [`LEFT_OUT_FILTERS`], for functions.
pub(super) const LEFT_OUT_FUNCTIONS: &[&str] = &["dict", "debug", "namespace"];

/// Whether `name` is in the table.
pub(super) fn has(table: &[Word], name: &str) -> bool {
    table.iter().any(|(word, _)| *word == name)
}

/// The words of a table.
pub(super) fn words(table: &'static [Word]) -> impl Iterator<Item = &'static str> + Clone {
    table.iter().map(|(word, _)| *word)
}
