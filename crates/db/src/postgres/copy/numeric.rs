//! Decimal numbers in PostgreSQL's binary form of `numeric`.
//!
//! Four big-endian 16-bit words come first: the number of digits, the weight of the first digit, the sign, and how many
//! decimal places are shown. Then come the digits, in base 10,000, aligned at the decimal point.

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const MINUS_INFINITY: u16 = 0xF000;

/// Decimal digits in one digit of the binary form.
const GROUP: i64 = 4;

/// What the form can hold: decimal digits before the point, and behind it.
const MOST_BEFORE: i64 = 131_072;
const MOST_BEHIND: i64 = 16_383;

/// Writes a number that is given in digits: `-12.50`, `1.5e3`, `NaN`, `Infinity`. Returns `None` if the text is no number,
/// or one that is too long; then nothing has been written.
pub(super) fn write(out: &mut Vec<u8>, text: &str) -> Option<()> {
    let (is_negative, number) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let special = |name: &str| number.eq_ignore_ascii_case(name);
    if special("nan") && number.len() == text.len() {
        words(out, [0, 0, NAN, 0]);
        return Some(());
    }
    if special("infinity") || special("inf") {
        let sign = if is_negative {
            MINUS_INFINITY
        } else {
            INFINITY
        };
        words(out, [0, 0, sign, 0]);
        return Some(());
    }
    let (mantissa, exponent) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
        None => (number, 0),
    };
    let (before, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = || before.bytes().chain(behind.bytes());
    let count = i64::try_from(before.len() + behind.len()).ok()?;
    if count == 0 || !digits().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    // The decimal point is so many digits behind the first one. It may lie outside of the digits.
    let point = i64::try_from(before.len()).ok()?.checked_add(exponent)?;
    let places = count.checked_sub(point)?.max(0);
    let zeros = i64::try_from(digits().take_while(|digit| *digit == b'0').count()).ok()?;
    if places > MOST_BEHIND || point - zeros > MOST_BEFORE {
        return None;
    }
    let places = u16::try_from(places).ok()?;
    if zeros == count {
        words(out, [0, 0, 0, places]);
        return Some(());
    }
    let significant = digits().skip(usize::try_from(zeros).ok()?);
    let weight = (point - zeros + GROUP - 1).div_euclid(GROUP) - 1;
    // The first group begins with so many zeros.
    let lead = (weight + 1) * GROUP - (point - zeros);
    let sign = if is_negative { NEGATIVE } else { 0 };
    let start = out.len();
    // The two's complement of the weight, which may be negative.
    let [.., high, low] = weight.to_be_bytes();
    words(out, [0, u16::from_be_bytes([high, low]), sign, places]);
    let (mut group, mut filled, mut groups) = (0_u16, lead, 0_u16);
    // Zeros at the end are not sent, so groups of zeros wait for a digit behind them.
    let mut held_back = 0_u16;
    let mut push = |group: u16| {
        if group == 0 {
            held_back += 1;
            return;
        }
        for _ in 0..held_back {
            out.extend_from_slice(&[0, 0]);
        }
        out.extend_from_slice(&group.to_be_bytes());
        groups += held_back + 1;
        held_back = 0;
    };
    for digit in significant {
        group = group * 10 + u16::from(digit - b'0');
        filled += 1;
        if filled == GROUP {
            push(group);
            (group, filled) = (0, 0);
        }
    }
    while filled > 0 && filled < GROUP {
        group *= 10;
        filled += 1;
    }
    push(group);
    out[start..start + 2].copy_from_slice(&groups.to_be_bytes());
    Some(())
}

fn words(out: &mut Vec<u8>, words: [u16; 4]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Number of digits, weight, sign, decimal places, digits.
    fn words_of(text: &str) -> Option<Vec<i32>> {
        let mut out = Vec::new();
        write(&mut out, text)?;
        let words = out
            .chunks(2)
            .map(|word| u16::from_be_bytes([word[0], word[1]]));
        Some(words.map(i32::from).collect())
    }

    #[test]
    fn numbers_have_the_form_of_the_server() {
        let minus = i32::from(NEGATIVE);
        for (text, expected) in [
            ("0", vec![0, 0, 0, 0]),
            ("-0.00", vec![0, 0, 0, 2]),
            ("1", vec![1, 0, 0, 0, 1]),
            ("-12.50", vec![2, 0, minus, 2, 12, 5000]),
            ("12345.678", vec![3, 1, 0, 3, 1, 2345, 6780]),
            ("10000", vec![1, 1, 0, 0, 1]),
            ("00010000.0", vec![1, 1, 0, 1, 1]),
            ("100000001", vec![3, 2, 0, 0, 1, 0, 1]),
            ("0.0001", vec![1, 0xffff, 0, 4, 1]),
            ("0.00001", vec![1, 0xfffe, 0, 5, 1000]),
            (".5", vec![1, 0xffff, 0, 1, 5000]),
            ("5.", vec![1, 0, 0, 0, 5]),
            ("1e3", vec![1, 0, 0, 0, 1000]),
            ("1.5e-3", vec![1, 0xffff, 0, 4, 15]),
            ("+2E+4", vec![1, 1, 0, 0, 2]),
            ("NaN", vec![0, 0, 0xC000, 0]),
            ("-Infinity", vec![0, 0, 0xF000, 0]),
        ] {
            assert_eq!(words_of(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in [
            "",
            "-",
            ".",
            "e5",
            "1e",
            "1e1e1",
            "1.2.3",
            " 1",
            "1 ",
            "0x1",
            "--1",
            "-NaN",
            "1_000",
            "1e200000",
            "1e-20000",
            "1e9999999999999999999",
            "1e-9223372036854775808",
            "١",
        ] {
            assert_eq!(words_of(text), None, "{text}");
        }
    }

    /// Reads the form back, without zeros around.
    fn read_back(words: &[i32]) -> (Vec<u8>, i64) {
        let digits: String = words[4..].iter().map(|word| format!("{word:04}")).collect();
        let lead = digits.len() - digits.trim_start_matches('0').len();
        // The words are unsigned; this one is the sixteen bits of a signed number.
        let weight = i64::from(u16::try_from(words[1]).unwrap().cast_signed());
        let point = (weight + 1) * GROUP - i64::try_from(lead).unwrap();
        let digits = digits.trim_start_matches('0').trim_end_matches('0');
        (digits.bytes().collect(), point)
    }

    proptest! {
        #[test]
        fn digits_and_point_survive(
            before in "[0-9]{0,30}", behind in "[0-9]{0,30}", exponent in -200_i64..200,
        ) {
            prop_assume!(!before.is_empty() || !behind.is_empty());
            let text = format!("{before}.{behind}e{exponent}");
            let words = words_of(&text).unwrap();
            prop_assert_eq!(usize::try_from(words[0]).unwrap(), words.len() - 4);
            let all = format!("{before}{behind}");
            let zeros = all.len() - all.trim_start_matches('0').len();
            let digits = all.trim_start_matches('0').trim_end_matches('0');
            if digits.is_empty() {
                prop_assert_eq!(words.len(), 4);
            } else {
                let point = i64::try_from(before.len()).unwrap() + exponent - i64::try_from(zeros).unwrap();
                prop_assert_eq!(read_back(&words), (digits.bytes().collect(), point));
                prop_assert!(words[4] != 0 && words.last() != Some(&0));
            }
            prop_assert!(words[4..].iter().all(|word| (0..10_000).contains(word)));
        }

        #[test]
        fn any_text_is_written_or_leaves_nothing(text in "[-+0-9.eE naif]{0,24}") {
            let mut out = b"before".to_vec();
            match write(&mut out, &text) {
                Some(()) => prop_assert!(out.len() >= 14 && out.len().is_multiple_of(2)),
                None => prop_assert_eq!(out, b"before"),
            }
        }
    }
}
