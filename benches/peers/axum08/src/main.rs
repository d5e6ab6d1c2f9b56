//! The peer on the system's allocator, on which a connection takes less memory.

use std::error;

fn main() -> Result<(), Box<dyn error::Error>> {
    axum08::run()
}
