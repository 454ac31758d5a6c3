//! DER (X.690), as far as certificates and encrypted keys need it.

pub(super) const INTEGER: u8 = 0x02;
pub(super) const OCTETS: u8 = 0x04;
pub(super) const OBJECT_ID: u8 = 0x06;
pub(super) const SEQUENCE: u8 = 0x30;

/// Returns the content of an element with this tag, and the bytes after the element.
pub(super) fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, rest) = bytes.split_first()?;
    if *found != tag {
        return None;
    }
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short if *short < 0x80 => (usize::from(*short), rest),
        // The number of length bytes; no file has a length of more than four.
        long => {
            let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7F))?;
            if digits.is_empty() || digits.len() > 4 {
                return None;
            }
            (usize::try_from(number(digits)?).ok()?, rest)
        }
    };
    rest.split_at_checked(length)
}

/// Returns a number of at most four bytes, without a sign.
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    let digits = match digits {
        [0, rest @ ..] => rest,
        digits => digits,
    };
    let fits = digits.len() <= 4;
    fits.then(|| digits.iter().fold(0, |n, digit| n << 8 | u32::from(*digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn element_ends_where_its_length_says() {
        assert_eq!(
            element(&[4, 2, 7, 8, 9], OCTETS),
            Some((&[7, 8][..], &[9][..]))
        );
        assert_eq!(element(&[4, 0x81, 1, 7], OCTETS), Some((&[7][..], &[][..])));
        for wrong in [
            &[][..],
            &[4],
            &[4, 2, 7],
            &[5, 0],
            &[4, 0x80],
            &[4, 0x85, 0, 0, 0, 0, 1, 7],
        ] {
            assert_eq!(element(wrong, OCTETS), None, "{wrong:?}");
        }
    }

    #[test]
    fn number_has_at_most_four_bytes() {
        assert_eq!(number(&[8, 0]), Some(2048));
        assert_eq!(number(&[0, 0xFF, 0xFF, 0xFF, 0xFF]), Some(u32::MAX));
        assert_eq!(number(&[1, 0, 0, 0, 0]), None);
    }
}
