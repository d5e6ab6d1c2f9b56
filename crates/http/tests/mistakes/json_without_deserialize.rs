//! `Json` of a type that does not derive `Deserialize`.
//@ Json<Order>` is no argument of a function whose router has the state `()`
//@ derive `Deserialize`

use tidegate::http::Json;

struct Order;

#[tidegate::debug_function]
async fn place(order: Json<Order>) -> &'static str {
    drop(order);
    "placed"
}
