//! How the pages look: one style sheet, inside each page.

use sha2::{Digest, Sha256};
use std::sync::LazyLock;

/// The style sheet.
pub const STYLE: &str = include_str!("style.css");

/// The page's icon, as a picture inside the page.
pub const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Cellipse \
                        cx='16' cy='16' rx='14' ry='6.5' fill='none' stroke='%235b6ee1' stroke-width='2.5' \
                        transform='rotate(-28 16 16)'/%3E%3Ccircle cx='16' cy='16' r='5' fill='%235b6ee1'/%3E%3C/svg%3E";

/// What a page may load and do: nothing but its own style sheet (named by its hash), its icon, and its own forms.
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    format!(
        "default-src 'none'; style-src 'sha256-{}'; img-src data:; form-action 'self'; base-uri 'none'; \
         frame-ancestors 'none'",
        base64(&Sha256::digest(STYLE.as_bytes()))
    )
});

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number = three.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..4 {
            // A digit for each byte, and one more.
            text.push(match digit <= three.len() {
                true => char::from(DIGITS[(number >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_the_standard_has_it() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("\u{ff}>", "w78+")];
        for (bytes, text) in cases {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
