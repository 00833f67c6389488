//! The engine behind expressions: minijinja's expression language, cut down to what gives the same value everywhere.
//!
//! * Only the words of [`super::vocabulary`] exist. None reads a clock, an environment or a random number.
//! * Work is bounded by fuel (with [`super::filters`], where the engine's own account falls short), and what an
//!   expression gives by [`Budget`].
//! * A field of null is null (interface facts, part 3), so that what a skipped step did not give can be asked for.
//!   The engine knows no such null; [`Null`] is one, and stands for null wherever an expression meets it.

use super::filters;
use super::vocabulary::{LEFT_OUT_FILTERS, LEFT_OUT_FUNCTIONS, LEFT_OUT_TESTS};
use crate::definition::MAX_DEPTH;
use minijinja::machinery::{self, CodeGenerator, Instruction, Instructions};
use minijinja::value::{DynObject, Object, ObjectRepr, ValueKind};
use minijinja::{AutoEscape, Environment, ErrorKind, State, UndefinedBehavior, Value};
use serde_json::{Map, Number, Value as Json};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, LazyLock};

/// Steps of work that the expressions of one template may do together. One operation counts as one; so do 64 bytes of
/// text and two values that are read, made or compared, as often as they are.
pub const MAX_WORK: u64 = 1_000_000;
/// Bytes, as JSON, that all expressions of one template together may give.
pub const MAX_RENDERED_BYTES: usize = 4 << 20;

/// An expression that compiles. The source alone is kept: making the instructions again costs less than giving the
/// engine what the expression reads, and they borrow from it.
pub(super) struct Program(String);

/// The engine with its words. A constant: it is built from the tables alone and never changes.
static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut engine = Environment::new();
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    engine.set_fuel(Some(MAX_WORK));
    LEFT_OUT_FILTERS.iter().for_each(|name| engine.remove_filter(name));
    LEFT_OUT_TESTS.iter().for_each(|name| engine.remove_test(name));
    LEFT_OUT_FUNCTIONS.iter().for_each(|name| engine.remove_global(name));
    filters::add_to(&mut engine);
    engine.add_filter("default", default);
    engine.add_filter("tojson", to_json_text);
    engine.add_test("none", is_null);
    engine.add_test("null", is_null);
    engine.add_global("null", Value::from_object(Null));
    engine
});

/// Null, as expressions see it.
#[derive(Debug)]
struct Null;

impl Object for Null {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, _: &Value) -> Option<Value> {
        Some(Value::from_dyn_object(self.clone()))
    }

    fn is_true(self: &Arc<Self>) -> bool {
        false
    }

    fn custom_cmp(self: &Arc<Self>, other: &DynObject) -> Option<Ordering> {
        other.downcast_ref::<Null>().map(|_| Ordering::Equal)
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("null")
    }
}

fn is_null(value: &Value) -> bool {
    value.is_none() || value.downcast_object_ref::<Null>().is_some()
}

fn default(value: &Value, otherwise: Option<Value>) -> Value {
    if value.is_undefined() || is_null(value) { otherwise.unwrap_or_else(|| Value::from("")) } else { value.clone() }
}

fn to_json_text(state: &State, value: &Value) -> Result<String, minijinja::Error> {
    // Made as JSON, then as text.
    filters::pay(state, value, 4)?;
    let json = Budget::new().take(value, 0).map_err(|e| minijinja::Error::new(ErrorKind::InvalidOperation, e))?;
    Ok(json.to_string())
}

/// Compiles an expression that [`super::scan`] has passed.
pub(super) fn compile(source: String) -> Result<Program, String> {
    instructions(&source).map_err(|e| describe(&e))?;
    Ok(Program(source))
}

/// Whether some expression begins so.
pub(super) fn may_go_on(source: &str) -> bool {
    let end_is_missing =
        |error: minijinja::Error| error.detail().is_some_and(|detail| detail.starts_with("unexpected end of input"));
    machinery::parse_expr(source).map_or_else(end_is_missing, |_| true)
}

/// The engine's instructions, with what [`filters`] needs put in: what is compared is weighed first, and `*` is a
/// filter.
fn instructions(source: &str) -> Result<Instructions<'_>, minijinja::Error> {
    let mut generator = CodeGenerator::new("expression", source);
    generator.compile_expr(&machinery::parse_expr(source)?);
    let (made, _) = generator.finish();
    let all = || (0..).map_while(|at| made.get(at));
    // Where each instruction comes to stand: jumps name places.
    let mut place = 0;
    let mut places: Vec<u32> = Vec::new();
    for instruction in all() {
        places.push(place);
        place += if compares(instruction) { 2 } else { 1 };
    }
    places.push(place);
    let moved = |target: u32| usize::try_from(target).ok().and_then(|t| places.get(t)).copied().unwrap_or(place);

    // The number of a filter in the engine's memo of filters; this one stands for none.
    let no_memo = u8::MAX;
    let mut changed = Instructions::new("expression", source);
    for instruction in all() {
        if compares(instruction) {
            changed.add(Instruction::ApplyFilter(filters::WEIGHED, Some(1), no_memo));
        }
        changed.add(match instruction {
            Instruction::Mul => Instruction::ApplyFilter(filters::TIMES, Some(2), no_memo),
            Instruction::Jump(to) => Instruction::Jump(moved(*to)),
            Instruction::JumpIfFalse(to) => Instruction::JumpIfFalse(moved(*to)),
            Instruction::JumpIfFalseOrPop(to) => Instruction::JumpIfFalseOrPop(moved(*to)),
            Instruction::JumpIfTrueOrPop(to) => Instruction::JumpIfTrueOrPop(moved(*to)),
            other => other.clone(),
        });
    }
    Ok(changed)
}

fn compares(instruction: &Instruction<'_>) -> bool {
    use Instruction::{CompareAndPreserve, Eq, Gt, Gte, In, Lt, Lte, Ne};
    matches!(instruction, Eq | Ne | Gt | Gte | Lt | Lte | In | CompareAndPreserve(_))
}

/// What running an expression came to.
pub(super) enum Failure {
    /// It read something that is not there.
    Undefined,
    /// Anything else.
    Other(String),
}

impl From<minijinja::Error> for Failure {
    fn from(error: minijinja::Error) -> Failure {
        match error.kind() {
            ErrorKind::UndefinedError => Failure::Undefined,
            _ => Failure::Other(describe(&error)),
        }
    }
}

/// Runs an expression on the names that it sees.
/// The value will stand `depth` lists and objects deep.
pub(super) fn run(program: &Program, names: &Value, budget: &mut Budget, depth: usize) -> Result<Json, Failure> {
    let instructions = instructions(&program.0)?;
    let (blocks, mut nothing) = (BTreeMap::new(), String::new());
    let mut output = machinery::make_string_output(&mut nothing);
    let ended = machinery::eval(&ENGINE, &instructions, names.clone(), &blocks, &mut output, AutoEscape::None)?;
    let (value, state) = ended;
    budget.work(state.fuel_levels().map_or(0, |(used, _)| used)).map_err(Failure::Other)?;
    let value = value.unwrap_or(Value::UNDEFINED);
    if value.is_undefined() {
        return Err(Failure::Undefined);
    }
    budget.take(&value, depth).map_err(Failure::Other)
}

/// An error of the engine in words for the definition's author.
fn describe(error: &minijinja::Error) -> String {
    match error.kind() {
        ErrorKind::OutOfFuel => too_much_work(),
        kind => match error.detail() {
            Some(detail) => match detail.strip_prefix("unable to calculate ") {
                Some(what) if is_division_by_zero(what) => {
                    format!("divides by zero: {what}; ask for the divisor first: `a / b if b else 0`")
                }
                Some(what) => format!("cannot calculate {what}"),
                None => format!("{kind}: {}", detail.replace("plain object", "null")),
            },
            None => kind.to_string(),
        },
    }
}

/// Of an operation that failed, as the engine writes it: `1 // 0`.
fn is_division_by_zero(operation: &str) -> bool {
    let mut words = operation.rsplit(' ');
    let divisor = words.next().and_then(|word| word.parse::<f64>().ok());
    divisor == Some(0.0) && matches!(words.next(), Some("/" | "//" | "%"))
}

fn too_much_work() -> String {
    format!(
        "does too much work: the expressions of one value may do {MAX_WORK} steps; read, sort or compare less at once"
    )
}

/// JSON as the engine sees it. The work of it is taken from the budget.
pub(super) fn from_json(json: &Json, budget: &mut Budget) -> Result<Value, String> {
    let mut units = 0;
    let value = convert(json, &mut units);
    budget.work(units / filters::UNITS)?;
    Ok(value)
}

fn convert(json: &Json, units: &mut u64) -> Value {
    *units += filters::VALUE;
    match json {
        Json::Null => Value::from_object(Null),
        Json::Bool(b) => Value::from(*b),
        Json::Number(n) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), _, _) => Value::from(n),
            (_, Some(n), _) => Value::from(n),
            (_, _, n) => Value::from(n.unwrap_or(f64::NAN)),
        },
        Json::String(s) => {
            *units += filters::size(s.len());
            Value::from(s.as_str())
        }
        Json::Array(items) => Value::from(items.iter().map(|item| convert(item, units)).collect::<Vec<_>>()),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(key, field)| {
                *units += filters::VALUE + filters::size(key.len());
                (key.clone(), convert(field, units))
            });
            Value::from(fields.collect::<BTreeMap<String, Value>>())
        }
    }
}

/// The names of a scope as the engine sees them.
pub(super) fn names(names: BTreeMap<String, Value>) -> Value {
    Value::from(names)
}

/// How much more may be done and given.
pub(super) struct Budget {
    work: u64,
    bytes: usize,
}

impl Budget {
    pub(super) fn new() -> Budget {
        Budget { work: MAX_WORK, bytes: MAX_RENDERED_BYTES }
    }

    /// Takes steps of work from what may still be done.
    pub(super) fn work(&mut self, steps: u64) -> Result<(), String> {
        self.work = self.work.checked_sub(steps).ok_or_else(too_much_work)?;
        Ok(())
    }

    /// Takes `bytes` from what may still be given.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or_else(|| {
            format!(
                "gives too much: {} MiB is the most that the expressions of one value may give",
                MAX_RENDERED_BYTES >> 20
            )
        })?;
        Ok(())
    }

    /// Takes the size of a value that is already JSON.
    pub(super) fn spend_json(&mut self, json: &Json, depth: usize) -> Result<(), String> {
        match json {
            Json::Null | Json::Bool(_) | Json::Number(_) => self.spend(4),
            Json::String(text) => self.spend(text.len() + 2),
            Json::Array(items) => {
                within(depth)?;
                items.iter().try_fold((), |(), item| {
                    self.spend(1)?;
                    self.spend_json(item, depth + 1)
                })
            }
            Json::Object(fields) => {
                within(depth)?;
                fields.iter().try_fold((), |(), (key, field)| {
                    self.spend(key.len() + 4)?;
                    self.spend_json(field, depth + 1)
                })
            }
        }
    }

    /// What the engine gave, as JSON; an error where it is none.
    pub(super) fn take(&mut self, value: &Value, depth: usize) -> Result<Json, String> {
        self.spend(4)?;
        match value.kind() {
            ValueKind::Undefined => Err("gives a list or object with something in it that is not there".into()),
            ValueKind::None => Ok(Json::Null),
            ValueKind::Bool => Ok(Json::Bool(value.is_true())),
            ValueKind::Number => number(value),
            ValueKind::String => {
                let text = value.as_str().unwrap_or_default();
                self.spend(text.len())?;
                Ok(Json::String(text.to_owned()))
            }
            ValueKind::Seq | ValueKind::Iterable => {
                within(depth)?;
                let mut items = Vec::new();
                for item in value.try_iter().map_err(|e| describe(&e))? {
                    items.push(self.take(&item, depth + 1)?);
                }
                Ok(Json::Array(items))
            }
            ValueKind::Map => {
                within(depth)?;
                let mut fields = Map::new();
                for key in value.try_iter().map_err(|e| describe(&e))? {
                    let Some(name) = key.as_str() else {
                        return Err(format!("gives an object with the key {key}; keys are texts"));
                    };
                    self.spend(name.len())?;
                    let field = value.get_item(&key).map_err(|e| describe(&e))?;
                    fields.insert(name.to_owned(), self.take(&field, depth + 1)?);
                }
                Ok(Json::Object(fields))
            }
            ValueKind::Plain if is_null(value) => Ok(Json::Null),
            ValueKind::Invalid => Err(value.to_string()),
            kind => Err(format!("gives a {kind}, which is no JSON value")),
        }
    }
}

/// Whether a list or object may stand `depth` others deep.
fn within(depth: usize) -> Result<(), String> {
    if depth < MAX_DEPTH {
        Ok(())
    } else {
        Err(format!("gives more than {MAX_DEPTH} lists and objects within each other"))
    }
}

/// A number as JSON: exact where it is whole, refused where JSON has none.
fn number(value: &Value) -> Result<Json, String> {
    if value.is_integer() {
        let whole = i128::try_from(value.clone()).ok();
        let json = whole.and_then(|n| match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => Some(Number::from(n)),
            (_, Ok(n)) => Some(Number::from(n)),
            _ => None,
        });
        return json.map(Json::Number).ok_or_else(|| format!("gives {value}, which does not fit 64 bits"));
    }
    let float = f64::try_from(value.clone()).map_err(|e| describe(&e))?;
    Number::from_f64(float).map(Json::Number).ok_or_else(|| format!("gives {float}, which is no finite number"))
}

#[cfg(test)]
mod tests {
    use super::super::vocabulary::{FILTERS, FUNCTIONS, TESTS};
    use super::*;

    /// Whether the engine knows the word, in the form in which a list's items are given to it.
    fn knows(expression: &str) -> bool {
        match ENGINE.compile_expression(expression).expect("the source is right").eval(()) {
            Ok(value) => !value
                .try_iter()
                .map(|mut items| items.any(|i| i.kind() == ValueKind::Invalid && i.to_string().contains("unknown")))
                .unwrap_or(false),
            Err(error) => {
                !matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction)
            }
        }
    }

    #[test]
    fn the_engine_knows_every_word_of_the_tables() {
        for (name, _) in FILTERS {
            assert!(knows(&format!("[1] | map(\"{name}\") | list")), "filter {name}");
        }
        for (name, _) in TESTS {
            assert!(knows(&format!("[1] | select(\"{name}\") | list")), "test {name}");
        }
        for (name, _) in FUNCTIONS {
            assert!(knows(&format!("{name}(1)")), "function {name}");
        }
    }

    #[test]
    fn the_engine_knows_no_word_that_was_left_out() {
        for name in LEFT_OUT_FILTERS {
            assert!(!knows(&format!("[1] | map(\"{name}\") | list")), "filter {name}");
        }
        for name in LEFT_OUT_TESTS {
            assert!(!knows(&format!("[1] | select(\"{name}\") | list")), "test {name}");
        }
        for name in LEFT_OUT_FUNCTIONS {
            assert!(!knows(&format!("{name}()")), "function {name}");
        }
        assert!(!knows("[1] | map(\"nothing\") | list"));
    }
}
