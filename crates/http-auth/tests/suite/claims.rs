//! `Claims` as arguments of functions.

use serde::Deserialize;
use serde_json::json;
use tidegate::http::Router;
use tidegate::http::auth::{Claims, Jwt, JwtKeys};

use crate::key_sources::JwksFile;
use crate::support::{Issuer, bearer, body, claims, jwks, now, start, status};

#[derive(Deserialize)]
struct User {
    sub: String,
    #[serde(default)]
    roles: Vec<String>,
}

fn me(Claims(user): Claims<User>) -> String {
    format!("{} {}", user.sub, user.roles.join("+"))
}

async fn maybe(user: Option<Claims<User>>) -> String {
    user.map_or_else(|| "nobody".to_owned(), |user| user.sub.clone())
}

#[test]
fn a_function_gets_the_claims_as_its_type() {
    let issuer = Issuer::new("1");
    let file = JwksFile::new(&jwks(&[&issuer]));
    let jwt = Jwt::builder(JwtKeys::file(&file.0).expect("keys")).build().expect("rules");
    let server = start(move || {
        let inside = Router::new().get("/me", me).get("/maybe", maybe).wrap(jwt.require());
        Router::new().nest("/in", inside).get("/me", me).get("/maybe", maybe)
    });
    let token = bearer(&issuer.token(&json!({"sub": "ebb", "roles": ["pilot", "crew"], "exp": now() + 3600})));
    assert_eq!(body(&server.get("/in/me", &token)), "ebb pilot+crew");
    assert_eq!(body(&server.get("/in/maybe", &bearer(&issuer.token(&claims("flow"))))), "flow");
    assert_eq!(status(&server.get("/in/me", &bearer(&issuer.token(&json!({"sub": 7, "exp": now() + 3600}))))), "403");
    assert_eq!(status(&server.get("/me", &token)), "500", "no middleware has verified it");
    assert_eq!(body(&server.get("/maybe", &token)), "nobody");
}
