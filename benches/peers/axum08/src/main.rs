//! The peer on the system's allocator, which holds less for a connection.

use std::error;

fn main() -> Result<(), Box<dyn error::Error>> {
    axum08::run()
}
