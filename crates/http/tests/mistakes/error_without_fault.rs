//! A codec whose error does not name the side that caused it.
//@ `Blameless` is not the error of a codec or a filter
//@ derive it: `#[derive(Debug, tidegate::codec::Fault)]`

use tidegate::codec::{Codec, Input, Output, Step};

struct Wordwise;

#[derive(Debug)]
struct Blameless;

impl std::fmt::Display for Blameless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("mistake")
    }
}

impl std::error::Error for Blameless {}

impl Codec for Wordwise {
    type In = u8;
    type Out = u8;
    type Error = Blameless;

    fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<u8>, Blameless> {
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, byte: u8, out: &mut Output<'_>) -> Result<(), Blameless> {
        out.write(&[byte]);
        Ok(())
    }
}
