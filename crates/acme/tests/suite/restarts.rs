//! Processes that end in the middle, and begin again with the same folder.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::authority::{Authority, Fault};
use crate::support::{Folder, builder, limits, presented, serve, wait_for, wait_for_failure};

#[test]
fn a_restart_uses_the_certificate_of_the_folder_and_orders_nothing() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    let chain = presented(&server, "a.test", &["http/1.1"]);
    drop((running, server, acme));
    for path in folder.files("") {
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600, "{path:?}");
    }

    let requests = authority.requests("POST");
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    assert_eq!(presented(&server, "a.test", &["http/1.1"]), chain);
    assert!(acme.status().not_after.is_some());
    drop(acme.start().expect("a thread"));
    assert_eq!(authority.requests("POST"), requests);
}

#[test]
fn an_order_is_continued_from_each_state() {
    for endpoint in ["authz", "challenge", "order-poll", "finalize", "cert"] {
        let (authority, folder) = (Authority::start(), Folder::new());
        let mut long = limits();
        // No attempt follows in this process.
        [long.retry_min, long.retry_max] = [std::time::Duration::from_secs(3600); 2];
        let acme = builder(&authority, &folder).limits(long).build().expect("settings");
        let server = serve(&acme, &authority);
        match endpoint {
            // The first request to `order` makes it.
            "order-poll" => authority.lock().stuck = Some("processing"),
            endpoint => authority.fault(endpoint, Fault::Raw(500, Vec::new(), b"crash".to_vec())),
        }
        let running = acme.start().expect("a thread");
        if endpoint == "order-poll" {
            while authority.requests("POST /order/0") < 3 {
                std::thread::yield_now();
            }
        } else {
            wait_for_failure(&acme);
            folder.forget_failures();
        }
        drop((running, server, acme));
        assert_eq!(folder.files("order").len(), 1, "{endpoint}");

        authority.lock().stuck = None;
        let acme = builder(&authority, &folder).build().expect("settings");
        let server = serve(&acme, &authority);
        let _running = acme.start().expect("a thread");
        let status = wait_for(&acme, |status| status.issued == 1);
        assert_eq!(status.failures, 0, "{endpoint}: {status:?}");
        assert_eq!(authority.lock().accounts, 1, "{endpoint}");
        let orders = authority.lock().log.iter().filter(|line| *line == "POST /order").count();
        assert_eq!(orders, 1, "{endpoint}: another order was made");
        assert!(presented(&server, "a.test", &["http/1.1"]).is_ok(), "{endpoint}");
    }
}

#[test]
fn a_wait_is_not_cut_short_by_a_restart() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.fault("order", Fault::Problem(429, "rateLimited", Some("100000")));
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    let reason = wait_for_failure(&acme);
    assert!(reason.contains("rate limit"), "{reason}");
    folder.until_failures();
    drop((running, server, acme));

    let requests = authority.lock().log.len();
    let acme = builder(&authority, &folder).build().expect("settings");
    let running = acme.start().expect("a thread");
    let next = acme.status().next_attempt.expect("a time");
    let wait = next.duration_since(std::time::SystemTime::now()).expect("it is ahead").as_secs();
    assert!((90_000..=100_000).contains(&wait), "{wait}");
    drop(running);
    assert_eq!(authority.lock().log.len(), requests);
}

#[test]
fn an_authority_that_has_lost_its_accounts_and_orders_gets_new_ones() {
    let (authority, folder) = (Authority::start(), Folder::new());
    authority.fault("cert", Fault::Raw(500, Vec::new(), Vec::new()));
    let mut long = limits();
    [long.retry_min, long.retry_max] = [std::time::Duration::from_secs(3600); 2];
    let acme = builder(&authority, &folder).limits(long).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for_failure(&acme);
    folder.forget_failures();
    drop((running, server, acme));

    authority.lock().accounts = 0;
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    let status = wait_for(&acme, |status| status.issued == 1);
    assert_eq!(status.failures, 0);
    assert_eq!(authority.lock().accounts, 1);
}

#[test]
fn an_order_whose_certificate_is_in_use_is_forgotten() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    drop((running, server, acme));
    // As if the process had ended before it removed the order.
    let text = fs::read_to_string(&folder.files("certificate")[0]).expect("a certificate");
    let end = "-----END PRIVATE KEY-----\n";
    let key = &text[..text.find(end).expect("a key") + end.len()];
    let name = folder.files("certificate")[0].file_name().expect("a name").to_string_lossy().into_owned();
    let name = name.replace("certificate", "order").replace(".pem", ".json");
    let url = authority.directory().replace("/dir", "/order/0");
    let order = serde_json::json!({"url": url, "key": key});
    fs::write(folder.path().join(name), order.to_string()).expect("a file");

    authority.lock().window = Some(("2001-01-01T00:00:00Z".into(), "2001-01-02T00:00:00Z".into()));
    authority.lock().lifetime.1 *= 2;
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued >= 1);
    assert_eq!(authority.requests("POST /cert/0"), 1, "the old order was downloaded again");
    assert!(authority.requests("POST /cert/1") >= 1);
}

#[test]
fn broken_files_in_the_folder_are_reported_or_replaced() {
    let (authority, folder) = (Authority::start(), Folder::new());
    let acme = builder(&authority, &folder).build().expect("settings");
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    drop((running, server, acme));

    // A certificate that is cut off is ordered again.
    let path = &folder.files("certificate")[0];
    let text = fs::read(path).expect("a certificate");
    fs::write(path, &text[..text.len() / 3]).expect("a file");
    let acme = builder(&authority, &folder).build().expect("settings");
    assert!(acme.status().not_after.is_none());
    let server = serve(&acme, &authority);
    let running = acme.start().expect("a thread");
    wait_for(&acme, |status| status.issued == 1);
    drop((running, server, acme));

    // An account has no second copy, so an operator decides.
    fs::write(&folder.files("account")[0], "{").expect("a file");
    fs::remove_file(path).expect("a file");
    let acme = builder(&authority, &folder).build().expect("settings");
    let _server = serve(&acme, &authority);
    let _running = acme.start().expect("a thread");
    let reason = wait_for_failure(&acme);
    assert!(reason.contains("`account` in the store is malformed"), "{reason}");
}
