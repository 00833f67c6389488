//! The little randomness that the SDK needs: ids of executions, and jitter.

/// A random number.
pub(crate) fn number() -> u64 {
    getrandom::u64().expect("the operating system gives random numbers")
}

/// A UUID (version 4) of two random numbers, as text.
pub(crate) fn uuid(numbers: [u64; 2]) -> String {
    let mut bytes = [0u8; 16];
    bytes[..8].copy_from_slice(&numbers[0].to_be_bytes());
    bytes[8..].copy_from_slice(&numbers[1].to_be_bytes());
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_drawn_id_has_the_form_of_a_version_4_uuid() {
        let drawn = || super::uuid([super::number(), super::number()]);
        let id = drawn();
        assert_eq!(id.len(), 36);
        assert_eq!(id.as_bytes()[14], b'4');
        assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert_ne!(id, drawn());
    }
}
