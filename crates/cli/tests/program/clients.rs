//! Third-party clients: curl, wrk, h2load. If a client is missing, its tests are skipped with a message, unless
//! `TIDEGATE_TOOLS_REQUIRED=1` is in the environment.

use std::path::Path;
use std::process::Command;

use crate::support::peer::{assert_same, letters, pattern};
use crate::support::program::{Directory, Program, skip};

/// Runs a client to its end: its exit code and its output. `None` if the client is not installed.
fn run(client: &str, arguments: &[&str]) -> Option<(i32, Vec<u8>)> {
    // Ignore a proxy in the environment.
    let output = Command::new(client).args(arguments).env("NO_PROXY", "*").output();
    match output {
        Ok(output) => {
            if !output.status.success() {
                eprintln!("{client} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            Some((output.status.code().unwrap_or(-1), output.stdout))
        }
        Err(error) => {
            skip(client, &error);
            None
        }
    }
}

/// The bytes that curl received; `None` if curl is not installed.
fn curl(arguments: &[&str]) -> Option<Vec<u8>> {
    let common = ["--silent", "--show-error", "--http1.1", "--max-time", "60", "--noproxy", "*"];
    let (code, output) = run("curl", &[&common, arguments].concat())?;
    assert_eq!(code, 0, "curl {arguments:?}: {}", String::from_utf8_lossy(&output));
    Some(output)
}

fn text(output: Vec<u8>) -> String {
    String::from_utf8(output).unwrap()
}

/// Each set of filters is a pipeline of its own until a connection turns out to speak HTTP/2.
#[test]
fn curl_speaks_http2_over_any_filters() {
    let proxy_protocol = ["--proxy-protocol", "required", "--proxy-trusted", "127.0.0.0/8"];
    for filters in 0..8 {
        let [has_tls, has_log, has_header] = [1, 2, 4].map(|bit| filters & bit != 0);
        let mut arguments = vec!["--loops", "1"];
        arguments.extend(has_tls.then_some("--tls-self-signed"));
        arguments.extend(has_log.then_some("--log-bytes"));
        arguments.extend(proxy_protocol.iter().filter(|_| has_header));
        let program = Program::serve(&arguments);
        let (scheme, http2) = if has_tls { ("https", "--http2") } else { ("http", "--http2-prior-knowledge") };
        let [plaintext, bytes] =
            ["/plaintext", "/bytes/100000"].map(|path| format!("{scheme}://{}{path}", program.ip()));
        let mut asked = vec![http2, "--insecure", "--write-out", "[%{http_version}]", &plaintext];
        asked.extend(has_header.then_some("--haproxy-protocol"));
        let Some(received) = curl(&asked) else { return };
        assert_eq!(text(received), "Hello, World![2]", "{arguments:?}");
        asked[4] = &bytes;
        let received = curl(&asked).expect("curl is there");
        assert_same(&received, &[&letters(100_000)[..], b"[2]"].concat());
    }
}

#[test]
fn curl_gets_every_route() {
    let program = Program::serve(&["--loops", "2"]);
    let url = |path: &str| format!("http://{}{path}", program.ip());
    let Some(plaintext) = curl(&[&url("/plaintext")]) else { return };
    assert_eq!(plaintext, b"Hello, World!");
    assert_eq!(curl(&[&url("/json")]).unwrap(), br#"{"message":"Hello, World!"}"#);
    assert!(text(curl(&[&url("/")]).unwrap()).contains("<title>Tidegate</title>"));
    for path in ["/bytes/1000000", "/stream/1000000"] {
        assert_same(&curl(&[&url(path)]).unwrap(), &letters(1_000_000));
        assert_same(&curl(&["--http1.0", &url(path)]).unwrap(), &letters(1_000_000));
    }
    let code = ["--output", "/dev/null", "--write-out", "%{http_code}"];
    assert_eq!(curl(&[&code[..], &[&url("/nothing")]].concat()).unwrap(), b"404");
    assert_eq!(curl(&[&code[..], &["--request", "DELETE", &url("/json")]].concat()).unwrap(), b"405");
    // One connection for all requests.
    let three = [&url("/plaintext"), &*url("/json"), &url("/stream/10")];
    let verbose = curl(&[&["--write-out", "[%{num_connects}]"], &three[..]].concat()).unwrap();
    assert_eq!(text(verbose), "Hello, World![1]{\"message\":\"Hello, World!\"}[0]abcdefghij[0]");
}

#[test]
fn curl_head_requests_get_heads() {
    let program = Program::serve(&["--loops", "1"]);
    let (first, second) =
        (format!("http://{}/bytes/5000000", program.ip()), format!("http://{}/plaintext", program.ip()));
    let Some(head) = curl(&["--head", &first, &second]) else { return };
    let head = text(head);
    assert!(head.contains("Content-Length: 5000000\r\n") && head.contains("Content-Length: 13\r\n"), "{head}");
}

#[test]
fn curl_receives_its_echo() {
    let program = Program::serve(&["--loops", "1"]);
    let directory = Directory::new();
    let (url, file) = (format!("http://{}/echo", program.ip()), directory.path("body"));
    let body = pattern(2_000_000);
    std::fs::write(&file, &body).unwrap();
    let upload = format!("@{file}");
    for fields in [
        &[][..],
        &["--header", "Transfer-Encoding: chunked"],
        &["--header", "Expect: 100-continue"],
        &["--header", "Expect:"],
        &["--header", "Expect: 100-continue", "--header", "Transfer-Encoding: chunked"],
    ] {
        let Some(echo) = curl(&[fields, &["--data-binary", &upload, &url]].concat()) else { return };
        assert_same(&echo, &body);
    }
    assert_eq!(curl(&["--data", "a=b", &url]).unwrap(), b"a=b");
    assert_eq!(curl(&["--data", "", &url]).unwrap(), b"");
    assert_eq!(curl(&["--form", "part=whole", &url]).unwrap().windows(5).filter(|five| five == b"whole").count(), 1);
}

/// curl sends `Expect: 100-continue`; the server refuses the body, and curl reads the final response.
#[test]
fn curl_with_expect_continue_reads_a_refusal() {
    let program = Program::serve(&["--loops", "1"]);
    let directory = Directory::new();
    let (url, file) = (format!("http://{}/plaintext", program.ip()), directory.path("body"));
    std::fs::write(&file, pattern(5_000_000)).unwrap();
    let arguments = ["--output", "/dev/null", "--write-out", "%{http_code}", "--upload-file", &file, &url];
    let Some(code) = curl(&arguments) else { return };
    assert_eq!(code, b"405");
}

#[test]
fn a_slow_curl_gets_the_whole_body() {
    let program = Program::serve(&["--loops", "1"]);
    for path in ["/bytes/3000000", "/stream/3000000"] {
        let Some(body) = curl(&["--limit-rate", "2M", &format!("http://{}{path}", program.ip())]) else { return };
        assert_same(&body, &letters(3_000_000));
    }
}

#[test]
fn curl_works_over_a_unix_socket() {
    let directory = Directory::new();
    let path = directory.path("http.sock");
    let _program = Program::at(&format!("unix:{path}"), &["--loops", "1"]);
    let Some(body) = curl(&["--unix-socket", &path, "http://localhost/bytes/100000"]) else { return };
    assert_same(&body, &letters(100_000));
}

#[test]
fn parallel_curl_transfers_are_complete() {
    let program = Program::serve(&["--loops", "2"]);
    let url = format!("http://{}/bytes/[1000-1099]", program.ip());
    let Some(bodies) = curl(&["--parallel", "--parallel-max", "20", &url]) else { return };
    assert_eq!(bodies.len(), (1000..1100).sum::<usize>());
}

#[test]
fn wrk_reports_no_errors() {
    let program = Program::serve(&["--loops", "1"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/load.lua");
    let (url, script) = (format!("http://{}", program.ip()), script.to_str().unwrap());
    for depth in ["1", "16", "256"] {
        // A busy machine may leave one of the programs without a processor for a second.
        let mut result = String::new();
        for duration in ["1s", "10s"] {
            let arguments = ["-t", "1", "-c", "64", "-d", duration, "-s", script, &url, "--", depth];
            let Some((code, output)) = run("wrk", &arguments) else { return };
            let output = text(output);
            assert_eq!(code, 0, "{output}");
            let line = output.lines().find_map(|line| line.strip_prefix("load-result "));
            result = line.expect("the script says").to_owned();
            if !result.contains("\"requests\": 0") {
                break;
            }
        }
        for error in ["connect", "read", "write", "timeout", "status"] {
            assert!(result.contains(&format!("\"{error}\": 0")), "{depth} deep: {result}");
        }
        assert!(!result.contains("\"requests\": 0"), "{depth} deep: {result}");
    }
}

#[test]
fn h2load_reports_every_request_as_answered() {
    let program = Program::serve(&["--loops", "2"]);
    for path in ["/plaintext", "/bytes/100000", "/stream/10000"] {
        let url = format!("http://{}{path}", program.ip());
        let Some((code, output)) = run("h2load", &["--h1", "-n", "2000", "-c", "20", "-m", "4", &url]) else { return };
        let output = text(output);
        assert!(code == 0 && output.contains("2000 succeeded, 0 failed, 0 errored, 0 timeout"), "{path}: {output}");
    }
}
