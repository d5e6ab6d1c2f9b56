//! HPACK through its public interface.

use proptest::prelude::*;
use tidegate::http2::hpack::{Decoder, Encoder, HpackError, Indexing};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Fields, HpackError> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut Vec::new(), |name, value| fields.push((name.to_vec(), value.to_vec())))?;
    Ok(fields)
}

#[test]
fn an_index_without_a_field_is_an_error() {
    for block in [&[0x80][..], &[0xbe], &[0xff, 0x00], &[0x7e, 0x01, b'x']] {
        assert_eq!(decode(&mut Decoder::new(4096), block), Err(HpackError::Index), "{block:x?}");
    }
}

#[test]
fn a_block_that_ends_within_a_field_is_an_error() {
    let mut block = Vec::new();
    Encoder::new(4096).encode(b"tide", b"a value that is long enough", Indexing::Allowed, &mut block);
    for end in 1..block.len() {
        assert_eq!(decode(&mut Decoder::new(4096), &block[..end]), Err(HpackError::Truncated), "{end}");
    }
}

#[test]
fn sizes_are_announced_in_order() {
    let (mut encoder, mut decoder) = (Encoder::new(4096), Decoder::new(4096));
    encoder.set_table_bytes_max(100);
    encoder.set_table_bytes_max(3000);
    let mut block = Vec::new();
    encoder.begin(&mut block);
    assert_eq!(block, [0x3f, 0x45, 0x3f, 0x99, 0x17], "100, and then 3,000");
    encoder.encode(b"tide", b"rising", Indexing::Allowed, &mut block);
    assert_eq!(decode(&mut decoder, &block), Ok(vec![(b"tide".to_vec(), b"rising".to_vec())]));
}

#[test]
fn a_size_above_the_limit_is_an_error() {
    let mut decoder = Decoder::new(100);
    assert_eq!(decode(&mut decoder, &[0x3f, 0xe1, 0x1f]), Ok(Vec::new()), "4,096, until the peer has the setting");
    decoder.on_acknowledged();
    assert_eq!(decode(&mut decoder, &[0x3f, 0x46]), Err(HpackError::TableSize), "101");
    assert_eq!(decode(&mut decoder, &[0x82]), Err(HpackError::TableSize), "the change has to be announced");
    assert_eq!(decode(&mut decoder, &[0x3f, 0x45, 0x82]).map(|fields| fields.len()), Ok(1));
    assert_eq!(decode(&mut decoder, &[0x82, 0x20]), Err(HpackError::TableSize), "behind a field");
    assert_eq!(decode(&mut decoder, &[0x20, 0x20, 0x20]), Err(HpackError::TableSize), "three times");
}

#[test]
fn secrets_enter_no_table() {
    let mut encoder = Encoder::new(4096);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    encoder.encode(b"authorization", b"secret", Indexing::Never, &mut first);
    encoder.encode(b"authorization", b"secret", Indexing::Never, &mut second);
    assert_eq!((&first, first[0]), (&second, 0x1f), "a literal that is never indexed");
}

proptest! {
    #[test]
    fn encoded_bytes_are_decoded(
        blocks in prop::collection::vec(
            prop::collection::vec(("[a-z-]{1,12}", "[ -~]{0,40}", 0_usize..3), 0..12),
            0..8,
        ),
        sizes in prop::collection::vec(0_u32..5_000, 8),
    ) {
        let (mut encoder, mut decoder) = (Encoder::new(1024), Decoder::new(4096));
        for (fields, size) in blocks.into_iter().zip(sizes) {
            encoder.set_table_bytes_max(size.min(4096));
            let mut block = Vec::new();
            encoder.begin(&mut block);
            for (name, value, way) in &fields {
                let indexing = [Indexing::Allowed, Indexing::Omitted, Indexing::Never][*way];
                encoder.encode(name.as_bytes(), value.as_bytes(), indexing, &mut block);
            }
            let expected: Fields = fields.into_iter().map(|(name, value, _)| (name.into(), value.into())).collect();
            prop_assert_eq!(decode(&mut decoder, &block), Ok(expected));
        }
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(block: Vec<u8>) {
        let _ = decode(&mut Decoder::new(4096), &block);
    }
}

#[test]
fn a_block_that_expands_too_far_is_an_error() {
    let mut block = Vec::new();
    Encoder::new(4096).encode(&[b'a'; 4000], b"", Indexing::Allowed, &mut block);
    for reference in [&[0x0f, 0x2f, 0x00][..], &[0x7e, 0x00], &[0xbe]] {
        let mut decoder = Decoder::new(4096);
        assert!(decode(&mut decoder, &block).is_ok());
        assert!(decode(&mut decoder, &reference.repeat(100)).is_ok());
        assert_eq!(decode(&mut decoder, &reference.repeat(300)), Err(HpackError::Expansion), "{reference:x?}");
    }
}
