//! Shaping, in virtual time: rates hold to the byte, no connection starves, and no deadline counts time in which we
//! held a peer back.

mod deadlines;
mod rates;
mod sharing;
mod support;
