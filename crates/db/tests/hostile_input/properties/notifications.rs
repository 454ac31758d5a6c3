//! Whatever a server sends to a connection that listens is read or called garbage, in bounded memory. Of well-formed
//! messages, every notification is received as it was sent, and nothing else is.

use cenote::postgres::fuzzing::{Received, read_notifications};

use super::choices::Choices;
use super::memory::most_used_by;

/// An inbox and the first allocations of this and that.
const MEMORY_FOR_NOTHING: usize = 64 * 1024;

/// What a byte may cost at most. A notification has eleven bytes on the wire at least, and is two texts with their
/// counts; tables grow by doubling, the old one beside the new one.
const MEMORY_FOR_A_BYTE: usize = 40;

pub fn check(data: &[u8]) {
    let mut choices = Choices::new(data);
    let piece = 1 + usize::from(choices.byte()) * 16;
    match choices.byte() % 2 {
        0 => {
            hear(choices.rest(), piece);
        }
        _ => {
            let (bytes, expected) = messages(&mut choices);
            let heard = hear(&bytes, piece);
            assert_eq!(heard, expected);
        }
    }
}

fn hear(bytes: &[u8], piece: usize) -> Vec<Received> {
    let (read, memory) = most_used_by(|| read_notifications(bytes, piece));
    let allowed = MEMORY_FOR_NOTHING + MEMORY_FOR_A_BYTE * bytes.len();
    assert!(memory <= allowed, "{memory} bytes for {}", bytes.len());
    assert!(read.messages <= bytes.len() / 5);
    assert!(read.notifications.len() + read.answers <= read.messages);
    read.notifications
}

/// Messages, and the notifications that they say. The last one may be cut off, or garbage.
fn messages(choices: &mut Choices<'_>) -> (Vec<u8>, Vec<Received>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    while !choices.is_empty() {
        let tag = choices.pick(b"AAAAAZCSNET");
        let body = match tag {
            b'A' => {
                let pid = i32::from_be_bytes([choices.byte(), 0, choices.byte(), choices.byte()]);
                let [channel, payload] = [choices.bytes(12), choices.bytes(60)].map(without_nul);
                // Cut off, or with something behind its end.
                let wrong = choices.byte();
                let mut body = [&pid.to_be_bytes()[..], &channel, b"\0", &payload, b"\0"].concat();
                match wrong {
                    250.. => body.truncate(body.len() - 1),
                    240..250 => body.push(0),
                    _ => {
                        if let Ok(channel) = String::from_utf8(channel) {
                            let payload = String::from_utf8(payload).ok();
                            expected.push(Received {
                                channel,
                                payload,
                                pid,
                            });
                        }
                    }
                }
                let is_garbage = wrong >= 240;
                append(&mut bytes, tag, &body);
                if is_garbage {
                    // Nothing is read after it.
                    append(&mut bytes, b'A', b"\0\0\0\0never\0read\0");
                    break;
                }
                continue;
            }
            b'Z' => choices.pick(&["I", "T", "E"]).into(),
            b'C' => b"LISTEN\0".to_vec(),
            b'S' => b"application_name\0x\0".to_vec(),
            _ => format!(
                "SERROR\0C42601\0M{}\0\0",
                choices.text(20).replace('\0', "")
            )
            .into(),
        };
        append(&mut bytes, tag, &body);
    }
    (bytes, expected)
}

fn append(bytes: &mut Vec<u8>, tag: u8, body: &[u8]) {
    let length = u32::try_from(body.len() + 4).expect("they are short");
    bytes.push(tag);
    bytes.extend(length.to_be_bytes());
    bytes.extend(body);
}

fn without_nul(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| *byte != 0).collect()
}
