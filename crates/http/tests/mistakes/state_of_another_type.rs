//! A state that is not that of the router.
//@ `State<u32>` is no argument of a function whose router has the state `std::string::String`
//@ `State<T>` needs `Router::with_state`

use tidegate::http::State;

#[tidegate::debug_function(state = String)]
async fn show(State(number): State<u32>) -> String {
    number.to_string()
}
