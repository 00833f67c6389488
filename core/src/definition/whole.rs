//! Whole numbers, however they are written.

use serde_json::Value;

/// The number, where it is whole and 64 bits hold it. `465`, `465.0` and `4.65e2` are one number to JSON Schema, and to
/// many a program that writes JSON or YAML, so they are one here.
pub fn whole_number(value: &Value) -> Option<u64> {
    // 2 to the power of 64. Every whole floating-point number below it is exactly that `u64`.
    const END: f64 = 18_446_744_073_709_551_616.0;
    value.as_u64().or_else(|| {
        let number = value.as_f64().filter(|number| (0.0..END).contains(number) && number.fract() == 0.0)?;
        Some(number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_whole_number_is_the_same_with_and_without_a_fraction_of_zero() {
        for (number, whole) in [
            (json!(465), 465),
            (json!(465.0), 465),
            (json!(4.65e2), 465),
            (json!(-0.0), 0),
            (json!(9_007_199_254_740_993_u64), 9_007_199_254_740_993),
            (json!(u64::MAX), u64::MAX),
            (json!(9_223_372_036_854_775_808.0), 1 << 63),
        ] {
            assert_eq!(whole_number(&number), Some(whole), "{number}");
        }
    }

    #[test]
    fn what_is_not_whole_or_does_not_fit_is_none() {
        for other in [json!(1.5), json!(-1), json!(-1.0), json!(1e20), json!(f64::MAX), json!("5"), json!(null)] {
            assert_eq!(whole_number(&other), None, "{other}");
        }
    }
}
