//! An error that does not become a response.
//@ `ParseIntError` does not become an HTTP response

#[tidegate::debug_function]
fn count() -> Result<String, std::num::ParseIntError> {
    Ok("7".parse::<u32>()?.to_string())
}
