//! The peer on mimalloc, for less work of the processor.

use std::error;

use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> Result<(), Box<dyn error::Error>> {
    axum08::run()
}
