//! Dynamic QPACK tables: any bytes for a decoder and an encoder, and both against each other.
//!
//! Instructions may come in any pieces. The decoder reads the same fields that the encoder has written, in any order
//! of sections, instructions and answers. A rewritten section has a bound.

use std::collections::{BTreeMap, VecDeque};

use tidegate_http3::qpack::{self, SectionState, TableDecoder, TableEncoder};

use crate::choices::Choices;

/// The first byte chooses between any bytes and both roles.
pub fn qpack_tables(data: &[u8]) {
    let mut choices = Choices::new(data);
    match choices.below(3) {
        0 => instructions(choices),
        1 => answers(choices),
        _ => both(choices),
    }
}

/// Instructions and sections for a decoder.
fn instructions(mut choices: Choices<'_>) {
    let capacity = 32 * choices.below(20) as u32;
    let (mut whole, mut pieces) = (TableDecoder::new(capacity, 2), TableDecoder::new(capacity, 2));
    while !choices.is_over() {
        let stream = u64::from(choices.byte());
        let length = choices.length(300);
        let bytes = choices.take(length);
        if stream % 2 == 0 {
            let read = whole.handle_instructions(bytes).map(|_| ());
            assert_eq!(read, bytes.chunks(1).try_for_each(|byte| pieces.handle_instructions(byte).map(|_| ())));
            if read.is_err() {
                return;
            }
        } else {
            let state = whole.check(stream, bytes);
            assert_eq!(state, pieces.check(stream, bytes));
            let mut out = Vec::new();
            match state {
                Err(_) => return,
                Ok(SectionState::Static | SectionState::Ready) => {
                    if whole.rewrite(stream, bytes, EXPANSION_MAX, &mut out).is_err() {
                        return;
                    }
                    assert!(out.len() <= bytes.len() + EXPANSION_MAX as usize + 2);
                    let mut same = Vec::new();
                    assert!(pieces.rewrite(stream, bytes, EXPANSION_MAX, &mut same).is_ok() && same == out);
                }
                Ok(_) => {}
            }
        }
        assert_eq!(whole.take_unblocked(), pieces.take_unblocked());
    }
}

/// Answers of any kind for an encoder.
fn answers(mut choices: Choices<'_>) {
    let mut encoder = TableEncoder::new(256, choices.below(4) as u64, 256);
    while !choices.is_over() {
        let stream = choices.below(8) as u64;
        encoder.encode(stream, &head(&mut choices), true, &mut Vec::new());
        encoder.poll_instructions();
        let length = choices.below(4);
        if encoder.handle_instructions(choices.take(length)).is_err() {
            return;
        }
    }
}

fn both(mut choices: Choices<'_>) {
    let (capacity, blocked) = (32 * choices.below(20) as u32, choices.below(4) as u32);
    let mut encoder = TableEncoder::new(capacity.into(), blocked.into(), capacity);
    let mut decoder = TableDecoder::new(capacity, blocked);
    let (mut wire, mut next): (VecDeque<u8>, u64) = (VecDeque::new(), 0);
    // Sections that have not come, with those that they were.
    let mut sections = BTreeMap::new();
    loop {
        let is_over = choices.is_over();
        match if is_over { 1 } else { choices.below(4) } {
            0 => {
                let (plain, mut section) = (head(&mut choices), Vec::new());
                encoder.encode(next, &plain, choices.below(4) > 0, &mut section);
                wire.extend(encoder.poll_instructions().into_iter().flatten());
                sections.insert(next, (plain, section));
                next += 1;
            }
            1 => {
                let count = if is_over { wire.len() } else { choices.below(40).min(wire.len()) };
                let piece: Vec<u8> = wire.drain(..count).collect();
                decoder.handle_instructions(&piece).expect("instructions of ours");
                decoder.take_unblocked();
                read(&mut decoder, &mut sections, if is_over { u64::MAX } else { choices.byte().into() });
            }
            2 => {
                if let Some((stream, _)) = sections.pop_first() {
                    decoder.cancel(stream);
                }
            }
            _ => {
                let answers = decoder.poll_instructions().unwrap_or_default();
                encoder.handle_instructions(&answers).expect("answers of ours");
            }
        }
        if is_over {
            return assert!(sections.is_empty(), "all entries have come");
        }
    }
}

/// Sections come, of streams up to a number.
fn read(decoder: &mut TableDecoder, sections: &mut BTreeMap<u64, (Vec<u8>, Vec<u8>)>, end: u64) {
    sections.retain(|stream, (plain, section)| {
        if *stream > end || decoder.check(*stream, section).expect("as many may wait") == SectionState::Blocked {
            return true;
        }
        let mut rewritten = Vec::new();
        assert_eq!(decoder.rewrite(*stream, section, u32::MAX, &mut rewritten), Ok(true));
        assert_eq!(fields(&rewritten), fields(plain));
        false
    });
}

fn head(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut plain = Vec::new();
    qpack::encode_prefix(&mut plain);
    for _ in 0..choices.below(5) {
        let name = *choices.pick(&["x-tide", "accept", ":path", "x-sea", "cookie"]);
        let value = "ebb and flow ".repeat(choices.below(4)) + *choices.pick(&["", "a", "b", "c"]);
        qpack::encode(name.as_bytes(), value.as_bytes(), choices.below(8) == 0, &mut plain);
    }
    plain
}

fn fields(section: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut fields = Vec::new();
    let decoded = qpack::decode(section, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())));
    assert_eq!(decoded, Ok(()));
    fields
}

const EXPANSION_MAX: u32 = 1_000;
