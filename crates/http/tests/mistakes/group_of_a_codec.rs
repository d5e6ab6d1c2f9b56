//! A group whose codec does not say that its messages can be broadcast.
//@ messages of `Bytewise` cannot be broadcast
//@ `impl Broadcast for Bytewise {}` is right for a codec

use std::convert::Infallible;

use tidegate::codec::{Codec, Input, Output, Step};
use tidegate::{Group, Slow};

struct Bytewise;

impl Codec for Bytewise {
    type In = u8;
    type Out = u8;
    type Error = Infallible;

    fn decode(&mut self, _: &mut Input, _: &mut Output<'_>) -> Result<Step<u8>, Infallible> {
        Ok(Step::NeedMore)
    }

    fn encode(&mut self, byte: u8, out: &mut Output<'_>) -> Result<(), Infallible> {
        out.write(&[byte]);
        Ok(())
    }
}

fn members() -> Group<Bytewise> {
    Group::new(Slow::Skip)
}
