//! Which tokens pass.

use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::json;
use tidegate::http::auth::{InvalidKeys, InvalidRule, Jwt, JwtKeys, RequiredClaim, TokenSource};
use tidegate::http::{Request, Router};

use crate::key_sources::JwksFile;
use crate::support::{Issuer, Running, base64, bearer, body, claims, field, jwks, now, signed, start, status};

fn guarded(jwt: Jwt) -> Running {
    start(move || {
        let show = |request: Request| {
            let user = request.headers().filter(|(name, _)| name.to_ascii_lowercase().starts_with("x-user"));
            user.map(|(name, value)| format!("{name}={};", String::from_utf8_lossy(value))).collect::<String>()
        };
        Router::new().get("/", show).wrap(jwt.require())
    })
}

fn keys(issuers: &[&Issuer]) -> (JwtKeys, JwksFile) {
    let file = JwksFile::new(&jwks(issuers));
    (JwtKeys::file(&file.0).expect("keys"), file)
}

/// The error of a refusal.
fn error(response: &str) -> &str {
    let challenge = field(response, "WWW-Authenticate").unwrap_or_default();
    challenge.split("error_description=").nth(1).unwrap_or(challenge)
}

#[test]
fn a_token_of_each_kind_of_key_passes() {
    let issuers = [
        Issuer::of(&rcgen::PKCS_ECDSA_P256_SHA256, Algorithm::ES256, "p256"),
        Issuer::of(&rcgen::PKCS_ECDSA_P384_SHA384, Algorithm::ES384, "p384"),
        Issuer::of(&rcgen::PKCS_ED25519, Algorithm::EdDSA, "ed"),
        Issuer::of(&rcgen::PKCS_RSA_SHA256, Algorithm::RS256, "rsa"),
        Issuer::of(&rcgen::PKCS_RSA_SHA256, Algorithm::PS512, "pss"),
    ];
    let all: Vec<_> = issuers.iter().collect();
    let (keys, _file) = keys(&all);
    let server = guarded(Jwt::builder(keys).claim_field("X-User", "sub").build().expect("rules"));
    for issuer in &issuers {
        let token = issuer.token(&claims("ebb"));
        // The second time it is known.
        for _ in 0..2 {
            let response = server.get("/", &format!("X-User: forged\r\nX_User: forged\r\n{}", bearer(&token)));
            assert_eq!(body(&response), "X-User=ebb;", "{response}");
        }
    }
}

#[test]
fn a_request_without_a_token_is_asked_for_one() {
    let (keys, _file) = keys(&[&Issuer::new("1")]);
    let server = guarded(Jwt::builder(keys).realm("the \"sea\"").build().expect("rules"));
    for lines in ["", "Authorization: Basic ZWJiOmZsb3c=\r\n", "Authorization: Bearerx\r\n"] {
        let response = server.get("/", lines);
        assert_eq!(
            (status(&response), field(&response, "WWW-Authenticate")),
            ("401", Some("Bearer realm=\"the sea\""))
        );
    }
    let response = server.get("/", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n");
    assert_eq!(status(&response), "400");
    assert!(error(&response).ends_with("error=\"invalid_request\""), "{response}");
}

#[test]
fn tokens_that_others_have_made_or_changed_do_not_pass() {
    let (issuer, other) = (Issuer::new("1"), Issuer::new("1"));
    let rsa = Issuer::of(&rcgen::PKCS_RSA_SHA256, Algorithm::RS256, "rsa");
    let (keys, _file) = keys(&[&issuer, &rsa]);
    let server = guarded(Jwt::builder(keys).build().expect("rules"));
    let good = issuer.token(&claims("ebb"));
    let (signed_part, signature) = good.rsplit_once('.').expect("three parts");
    let header = signed_part.split_once('.').expect("two parts").0;
    let text = claims("ebb").to_string();
    let none = format!("{}.{}.", base64(r#"{"alg":"none"}"#), base64(&text));
    // The public key as the secret of an HMAC, which a reader that goes by the header alone would take.
    let confused = |public: &[u8], kid: &str| {
        signed(
            &json!({"alg": "HS256", "kid": kid}).to_string(),
            &text,
            &EncodingKey::from_secret(public),
            Algorithm::HS256,
        )
    };
    let twice = format!(r#"{{"sub":"ebb","sub":"admin","exp":{}}}"#, now() + 3600);
    let deep = format!(r#"{{"exp":{},"a":{}{}}}"#, now() + 3600, "[".repeat(1000), "]".repeat(1000));
    let head = r#"{"alg":"ES256","kid":"1"}"#;
    for (token, expected) in [
        (other.token(&claims("ebb")), "\"the signature is wrong\""),
        (
            format!("{header}.{}.{signature}", base64(r#"{"sub":"admin","exp":9999999999}"#)),
            "\"the signature is wrong\"",
        ),
        (format!("{signed_part}."), "\"the signature is wrong\""),
        (format!("{signed_part}.{}", base64([0; 64])), "\"the signature is wrong\""),
        (none, "\"the algorithm of the token is not accepted\""),
        (confused(rsa.public_bytes(), "rsa"), "\"the algorithm of the token is not accepted\""),
        (issuer.sign(r#"{"alg":"ES256","kid":"2"}"#, &text), "\"no key is known for the token\""),
        (issuer.sign(r#"{"alg":"RS256","kid":"1"}"#, &text), "\"no key is known for the token\""),
        (issuer.sign(r#"{"alg":"ES256","kid":"1","crit":["x"]}"#, &text), "\"the token is malformed\""),
        (issuer.sign(r#"{"alg":"ES256","alg":"none","kid":"1"}"#, &text), "\"the token is malformed\""),
        (issuer.sign(head, &twice), "\"the token is malformed\""),
        (issuer.sign(head, &deep), "\"the token is malformed\""),
        (issuer.sign(head, "[]"), "\"the token is malformed\""),
        (issuer.token(&json!({"exp": now() - 61})), "\"the token has expired\""),
        (issuer.token(&json!({"exp": now() + 3600, "nbf": now() + 600})), "\"the token is not valid yet\""),
        (issuer.token(&json!({"sub": "ebb"})), "\"the token has no expiry\""),
        (issuer.token(&json!({"exp": now() + 3600, "aud": "others"})), "\"the token is for another audience\""),
        ("x".into(), "\"the token is malformed\""),
    ] {
        let response = server.get("/", &bearer(&token));
        assert_eq!((status(&response), error(&response)), ("401", expected), "{token}");
    }
    assert_eq!(status(&server.get("/", &bearer(&good))), "200");
}

#[test]
fn a_public_key_is_never_a_secret_even_if_both_kinds_are_accepted() {
    let rsa = Issuer::of(&rcgen::PKCS_RSA_SHA256, Algorithm::RS256, "rsa");
    let (keys, _file) = keys(&[&rsa]);
    let server = guarded(Jwt::builder(keys).algorithms(["RS256", "HS256"]).build().expect("rules"));
    let key = EncodingKey::from_secret(rsa.public_bytes());
    for header in [r#"{"alg":"HS256","kid":"rsa"}"#, r#"{"alg":"HS256"}"#] {
        let response = server.get("/", &bearer(&signed(header, &claims("ebb").to_string(), &key, Algorithm::HS256)));
        assert_eq!(error(&response), "\"no key is known for the token\"");
    }
    assert_eq!(status(&server.get("/", &bearer(&rsa.token(&claims("ebb"))))), "200");
}

#[test]
fn a_token_of_a_megabyte_is_refused_before_anything_is_read_of_it() {
    let issuer = Issuer::new("1");
    let (keys, _file) = keys(&[&issuer]);
    let long = issuer.token(&json!({"exp": now() + 3600, "sub": "x".repeat(13_000)}));
    assert!(long.len() > Jwt::TOKEN_BYTES_MAX);
    let mut limits = tidegate::http::Limits::default();
    limits.head_bytes_max = 60_000;
    let jwt = Jwt::builder(keys).build().expect("rules");
    let server = tidegate::http::Server::bind("127.0.0.1:0").expect("a port").limits(limits).half_close(true).loops(1);
    let server = Running(server.start(move || Router::new().get("/", || "in").wrap(jwt.require())).expect("a server"));
    let response = server.get("/", &bearer(&long));
    assert_eq!((status(&response), error(&response)), ("401", "\"the token is too long\""));
    assert_eq!(status(&server.get("/", &bearer(&"x".repeat(1_000_000)))), "431", "the codec refuses such a head");
}

#[test]
fn a_shared_secret_verifies_if_its_algorithm_is_accepted() {
    let secret = b"a secret of at least thirty-two bytes";
    let token =
        signed(r#"{"alg":"HS256"}"#, &claims("ebb").to_string(), &EncodingKey::from_secret(secret), Algorithm::HS256);
    let keys = || JwtKeys::secret(secret).expect("a secret");
    let server = guarded(Jwt::builder(keys()).algorithms(["HS256"]).build().expect("rules"));
    assert_eq!(status(&server.get("/", &bearer(&token))), "200");
    let server = guarded(Jwt::builder(keys()).build().expect("rules"));
    assert_eq!(status(&server.get("/", &bearer(&token))), "401", "only algorithms with public keys, unless set");
    assert!(matches!(JwtKeys::secret("short"), Err(InvalidKeys::ShortSecret)));
}

#[test]
fn a_token_may_be_in_a_cookie_or_in_the_query() {
    let issuer = Issuer::new("1");
    let token = issuer.token(&claims("ebb"));
    let of = |source: TokenSource| {
        let (keys, file) = keys(&[&issuer]);
        (guarded(Jwt::builder(keys).token(source).build().expect("rules")), file)
    };
    let (server, _file) = of(TokenSource::Cookie("session".into()));
    assert_eq!(status(&server.get("/", &format!("Cookie: a=b; session={token}\r\n"))), "200");
    let two = format!("Cookie: session={token}; a=b; session=x\r\n");
    assert_eq!(status(&server.get("/", &two)), "400");
    let two = format!("Cookie: session=x\r\nCookie: session={token}\r\n");
    assert_eq!(status(&server.get("/", &two)), "400");
    assert_eq!(status(&server.get("/", &bearer(&token))), "401");
    let (server, _file) = of(TokenSource::Query("token".into()));
    assert_eq!(status(&server.get(&format!("/?a=b&token={token}"), "")), "200");
    assert_eq!(status(&server.get(&format!("/?token={token}&token=x"), "")), "400");
    assert_eq!(status(&server.get("/?token=", "")), "401");
}

#[test]
fn a_token_without_a_required_value_is_forbidden() {
    let issuer = Issuer::new("1");
    let (keys, _file) = keys(&[&issuer]);
    let jwt = Jwt::builder(keys).required(RequiredClaim::Value("scope".into(), "write".into())).build().expect("rules");
    let server = guarded(jwt);
    let ask = |scope: &str| server.get("/", &bearer(&issuer.token(&json!({"exp": now() + 3600, "scope": scope}))));
    assert_eq!(status(&ask("read write")), "200");
    let response = ask("read");
    assert_eq!(status(&response), "403");
    assert!(field(&response, "WWW-Authenticate").is_some_and(|value| value.contains("error=\"insufficient_scope\"")));
    assert_eq!(status(&server.get("/", &bearer(&issuer.token(&claims("ebb"))))), "401");
}

#[test]
fn a_claim_cannot_split_a_request() {
    let issuer = Issuer::new("1");
    let (keys, _file) = keys(&[&issuer]);
    let server = guarded(Jwt::builder(keys).claim_field("X-User", "sub").build().expect("rules"));
    let response = server.get("/", &bearer(&issuer.token(&claims("ebb\r\nX-User-Admin: yes"))));
    assert_eq!((status(&response), error(&response)), ("401", "\"a claim of the token cannot be passed on\""));
    let wire = format!(
        "GET / HTTP/1.1\r\nHost: sea\r\nConnection: close, x-user\r\n{}\r\n",
        bearer(&issuer.token(&claims("ebb")))
    );
    assert_eq!(status(&server.exchange(&wire)), "400");
}

#[test]
fn rules_that_no_token_can_keep_are_mistakes() {
    let builder = || Jwt::builder(JwtKeys::url("http://sea/").expect("a URL"));
    for name in ["none", "HS1", "rs256", ""] {
        assert_eq!(builder().algorithms([name]).build().err(), Some(InvalidRule::Algorithm(name.into())));
    }
    assert_eq!(builder().algorithms([""; 0]).build().err(), Some(InvalidRule::NoAlgorithm));
    assert!(matches!(builder().claim_field("Host", "sub").build(), Err(InvalidRule::Field(..))));
    assert!(matches!(builder().claim_field("a b", "sub").build(), Err(InvalidRule::Field(..))));
}
