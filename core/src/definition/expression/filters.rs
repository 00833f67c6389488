//! The words of the engine whose cost the engine does not see, each paying for it.
//!
//! The engine charges fuel for instructions, for the items that it visits and for the texts that it makes. It takes
//! every comparison for one step, however large the values are, and lets one value stand in a list a million times
//! for next to nothing. With both, a short expression could compare gigabytes. So what compares pays for the *weight*
//! of what it compares (what stands in it, counted as often as it stands there), and what repeats a value pays for
//! the weight that comes of it. Then the work of an expression is bounded by its fuel alone.

use minijinja::value::{Kwargs, Rest, StringInput, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Expression, State, UndefinedBehavior, Value, filters, tests};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What the compiler puts before each comparison: it pays for the value on the right and gives it back.
pub(super) const WEIGHED: &str = "weighed";
/// What the compiler puts in the place of `*`.
pub(super) const TIMES: &str = "times";

/// Bytes of the name of a field that a filter is given: it is looked for in every item.
const MAX_ATTRIBUTE_BYTES: usize = 1024;

/// One step of fuel in the units that are counted: 64 bytes of text, or two values.
pub(super) const UNITS: u64 = 64;
/// Units of one value, whatever it is; a text's bytes are units too.
pub(super) const VALUE: u64 = 32;

/// Puts the words of this module in the place of the engine's own.
pub(super) fn add_to(engine: &mut Environment<'static>) {
    engine.add_filter(WEIGHED, weighed);
    engine.add_filter(TIMES, times);
    engine.add_filter("sort", sort);
    engine.add_filter("unique", unique);
    engine.add_filter("dictsort", dictsort);
    engine.add_filter("min", min);
    engine.add_filter("max", max);
    engine.add_filter("sum", sum);
    engine.add_filter("map", map);
    engine.add_filter("batch", batch);
    engine.add_filter("slice", slice);
    engine.add_filter("join", join);
    engine.add_filter("trim", trim);
    engine.add_filter("selectattr", selectattr);
    engine.add_filter("rejectattr", rejectattr);
    engine.add_test("eq", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_eq(a, b)));
    engine.add_test("ne", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_ne(a, b)));
    engine.add_test("lt", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_lt(a, b)));
    engine.add_test("le", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_le(a, b)));
    engine.add_test("gt", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_gt(a, b)));
    engine.add_test("ge", |s: &State, a: &Value, b: &Value| compare(s, b, || tests::is_ge(a, b)));
    engine.add_test("in", |s: &State, a: &Value, b: &Value| {
        pay(s, b, 1)?;
        tests::is_in(s, a, b)
    });
}

/// Fuel that is spent in portions, so that a walk through something large ends soon after the fuel does.
struct Meter<'s, 't, 'e> {
    state: &'s State<'t, 'e>,
    /// How often all that is met is paid.
    times: u64,
    units: u64,
}

impl Meter<'_, '_, '_> {
    fn add(&mut self, units: u64) -> Result<(), Error> {
        self.units = self.units.saturating_add(units.saturating_mul(self.times));
        if self.units < 64 * UNITS { Ok(()) } else { self.settle() }
    }

    fn settle(&mut self) -> Result<(), Error> {
        let fuel = self.units / UNITS;
        self.units %= UNITS;
        self.state.consume_fuel(fuel)
    }

    /// Pays for a value and all that stands in it.
    fn weigh(&mut self, value: &Value) -> Result<(), Error> {
        match value.kind() {
            ValueKind::String => self.add(VALUE + size(value.as_str().map_or(0, str::len))),
            ValueKind::Seq | ValueKind::Iterable => {
                self.add(VALUE)?;
                value.try_iter()?.try_for_each(|item| self.weigh(&item))
            }
            ValueKind::Map => {
                self.add(VALUE)?;
                let pairs = value.as_object().and_then(|object| object.try_iter_pairs());
                pairs.into_iter().flatten().try_for_each(|(key, item)| {
                    self.weigh(&key)?;
                    self.weigh(&item)
                })
            }
            _ => self.add(VALUE),
        }
    }
}

pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

/// Pays `times` for the weight of a value.
pub(super) fn pay(state: &State, value: &Value, times: u64) -> Result<(), Error> {
    let mut meter = Meter { state, times, units: 0 };
    meter.weigh(value)?;
    meter.settle()
}

/// How often each of so many items is compared with another, to sort them.
fn rounds(items: usize) -> u64 {
    u64::from(usize::BITS - items.leading_zeros()) + 1
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Refuses the name of a field that would make looking for it the work.
fn short(attribute: &str) -> Result<(), Error> {
    if attribute.len() <= MAX_ATTRIBUTE_BYTES {
        return Ok(());
    }
    Err(invalid(format!(
        "the name of a field has {} bytes; at most {MAX_ATTRIBUTE_BYTES} are allowed",
        attribute.len()
    )))
}

/// What the engine compares of an item by this name, which may be a path.
fn field(item: &Value, path: &str) -> Option<Value> {
    path.split('.').try_fold(item.clone(), |value, name| match name.parse::<usize>() {
        Ok(index) => value.get_item_by_index(index).ok(),
        Err(_) => value.get_attr(name).ok(),
    })
}

/// Pays for comparing the items of a list, or the fields of theirs that are named, so many times each.
fn pay_for_keys(state: &State, list: &Value, attribute: Option<&str>, times: u64) -> Result<(), Error> {
    let Some(attribute) = attribute else { return pay(state, list, times) };
    short(attribute)?;
    let mut meter = Meter { state, times, units: 0 };
    let Ok(items) = list.try_iter() else { return Ok(()) };
    for item in items {
        meter.add(VALUE)?;
        for name in attribute.split(',') {
            if let Some(key) = field(&item, name.trim()) {
                meter.weigh(&key)?;
            }
        }
    }
    meter.settle()
}

fn weighed(state: &State, value: Value) -> Result<Value, Error> {
    pay(state, &value, 1)?;
    Ok(value)
}

fn compare(state: &State, with: &Value, compare: impl FnOnce() -> bool) -> Result<bool, Error> {
    pay(state, with, 1)?;
    Ok(compare())
}

/// The engine's own `*`, which no filter of it reaches.
static PRODUCT: LazyLock<(&'static Environment<'static>, Expression<'static, 'static>)> = LazyLock::new(|| {
    static ENGINE: LazyLock<Environment<'static>> = LazyLock::new(|| {
        let mut engine = Environment::empty();
        engine.set_undefined_behavior(UndefinedBehavior::Strict);
        engine
    });
    (&*ENGINE, ENGINE.compile_expression("a * b").expect("the source is right"))
});

fn times(state: &State, a: Value, b: Value) -> Result<Value, Error> {
    for (repeated, times) in [(&a, &b), (&b, &a)] {
        if repeated.is_undefined() {
            return Err(ErrorKind::UndefinedError.into());
        }
        if matches!(repeated.kind(), ValueKind::String | ValueKind::Seq | ValueKind::Iterable) && times.is_integer() {
            pay(state, repeated, u64::try_from(i128::try_from(times.clone())?.max(0)).unwrap_or(u64::MAX))?;
        }
    }
    PRODUCT.1.eval(Value::from(BTreeMap::from([("a", a), ("b", b)])))
}

fn sort(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay_for_keys(state, &value, kwargs.get("attribute")?, rounds(value.len().unwrap_or(0)))?;
    filters::sort(state, value, kwargs)
}

fn unique(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay_for_keys(state, &value, kwargs.get("attribute")?, rounds(value.len().unwrap_or(0)))?;
    filters::unique(state, value, kwargs)
}

fn dictsort(state: &State, value: &Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay(state, value, rounds(value.len().unwrap_or(0)))?;
    filters::dictsort(value, kwargs)
}

fn min(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay_for_keys(state, &value, kwargs.get("attribute")?, 1)?;
    filters::min(state, value, kwargs)
}

fn max(state: &State, value: Value, kwargs: Kwargs) -> Result<Value, Error> {
    pay_for_keys(state, &value, kwargs.get("attribute")?, 1)?;
    filters::max(state, value, kwargs)
}

/// Texts and lists are copied each time that one is added; numbers are not.
fn sum(
    state: &State,
    value: Value,
    attribute: Option<Cow<'_, str>>,
    start: Option<Value>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => kwargs.get::<Option<&str>>("attribute")?.map(|name| Cow::Owned(name.to_owned())),
    };
    let start: Option<Value> = match start {
        Some(start) => Some(start),
        None => kwargs.get("start")?,
    };
    let copied = start.as_ref().filter(|start| !start.is_number());
    let copies = if copied.is_some() { size(value.len().unwrap_or(0)) / 32 + 1 } else { 1 };
    if let Some(start) = copied {
        pay(state, start, copies)?;
    }
    pay_for_keys(state, &value, attribute.as_deref(), copies)?;
    filters::sum(state, value, attribute.as_deref(), start, kwargs)
}

fn map(state: &mut State, value: Value, args: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    for argument in args.iter() {
        if let Ok(named) = Kwargs::try_from((**argument).clone())
            && let Ok(Some(attribute)) = named.get::<Option<Value>>("attribute")
        {
            short(attribute.as_str().unwrap_or_default())?;
        }
    }
    let mapped = Value::from(filters::map(state, value, args)?);
    pay(state, &mapped, 1)?;
    Ok(mapped)
}

fn batch(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    let batches = filters::batch(state, value, count, fill_with)?;
    pay(state, &batches, 1)?;
    Ok(batches)
}

fn slice(state: &State, value: Value, count: usize, fill_with: Option<Value>) -> Result<Value, Error> {
    let slices = filters::slice(state, value, count, fill_with)?;
    pay(state, &slices, 1)?;
    Ok(slices)
}

/// Paid before, since the engine pays for the text once it is there.
fn join(
    state: &mut State,
    value: &Value,
    joiner: Option<StringInput<'_>>,
    attribute: Option<Cow<'_, str>>,
    kwargs: Kwargs,
) -> Result<Value, Error> {
    let attribute = match attribute {
        Some(attribute) => Some(attribute),
        None => kwargs.get::<Option<&str>>("attribute")?.map(|name| Cow::Owned(name.to_owned())),
    };
    pay_for_keys(state, value, attribute.as_deref(), 1)?;
    filters::join(state, value, joiner, attribute.as_deref(), kwargs)
}

/// Each character at the ends is looked for among those that are cut off.
fn trim(state: &State, value: StringInput<'_>, cut: Option<Cow<'_, str>>) -> Result<Value, Error> {
    if let Some(cut) = &cut {
        state.consume_fuel(size(value.as_str().len()).saturating_mul(size(cut.len())) / UNITS)?;
    }
    Ok(filters::trim(value, cut))
}

fn selectattr(
    state: &mut State,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    args: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    short(&attribute)?;
    filters::selectattr(state, value, attribute, test, args)
}

fn rejectattr(
    state: &mut State,
    value: Value,
    attribute: Cow<'_, str>,
    test: Option<Cow<'_, str>>,
    args: Rest<ValueOrKwargs>,
) -> Result<Vec<Value>, Error> {
    short(&attribute)?;
    filters::rejectattr(state, value, attribute, test, args)
}
