//! Base64 (RFC 4648) with padding, for SCRAM and PEM files.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut three = [0; 3];
        three[..group.len()].copy_from_slice(group);
        let [a, b, c] = three;
        let sixes = [
            a >> 2,
            (a & 3) << 4 | b >> 4,
            (b & 15) << 2 | c >> 6,
            c & 63,
        ];
        for (n, six) in sixes.into_iter().enumerate() {
            text.push(match n <= group.len() {
                true => char::from(ALPHABET[usize::from(six)]),
                false => '=',
            });
        }
    }
    text
}

/// Returns the bytes; `None` if the text is not Base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let (groups, rest) = text.as_bytes().as_chunks::<4>();
    if !rest.is_empty() {
        return None;
    }
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (n, group) in groups.iter().enumerate() {
        let padding = group.iter().rev().take_while(|byte| **byte == b'=').count();
        let is_last = n + 1 == groups.len();
        if padding > 2 || padding > 0 && !is_last {
            return None;
        }
        let mut sixes = [0; 4];
        for (six, byte) in sixes.iter_mut().zip(&group[..4 - padding]) {
            let place = ALPHABET.iter().position(|known| known == byte)?;
            *six = u8::try_from(place).ok()?;
        }
        let [a, b, c, d] = sixes;
        let three = [a << 2 | b >> 4, b << 4 | c >> 2, c << 6 | d];
        bytes.extend_from_slice(&three[..3 - padding]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn examples_of_the_standard_are_right() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(bytes.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(bytes.as_bytes()));
        }
        for wrong in [
            "Z", "Zg", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9v\n", "Zm-_", "Zé=",
        ] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn decoding_reverses_encoding(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }
    }
}
