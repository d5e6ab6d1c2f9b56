//! A load of Redis commands: `mix.rs` has the commands by weight and their placeholders, `plan.rs` all that connections
//! share, `startup.rs` the commands that open a connection, `codec.rs` sends and judges, `counts.rs` counts.

mod codec;
mod counts;
mod mix;
mod plan;
mod startup;

pub(crate) use self::codec::CommandCodec;
pub(crate) use self::counts::{CommandCounts, RedisCounts};
pub(crate) use self::mix::{CommandMix, CommandTemplate, parse as parse_commands};
pub(crate) use self::plan::{CommandPlan, PublishPlan};
