//! Files of connections, in the qlog format.

use std::fs;

use tidegate::quic::{QlogFolder, TransportLimits};

use crate::scenarios::{echo, exchange};
use crate::stage::{NAME, Stage, configs};

#[test]
fn each_connection_of_each_side_has_a_file_until_there_are_enough() {
    for mut stage in [Stage::epoll(), Stage::network(1)] {
        let folder = std::env::temp_dir().join(format!("tidegate-quic-qlog-{}", std::process::id()));
        // A killed run may have left it.
        let _absent = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        let (server, client) = configs(TransportLimits::default(), TransportLimits::default());
        let qlog = QlogFolder::new(&folder).files_max(5);
        let (server, client) = (server.qlog(qlog.clone()), client.qlog(qlog));
        let address = stage.server(&server, |_| echo());
        let client = stage.client(&client);
        stage.task(async move {
            for _ in 0..4 {
                let connection = client.connect(address, NAME).await.unwrap();
                assert_eq!(exchange(&connection, b"ebb".to_vec()).await, b"ebb");
            }
        });
        // The files end with the connections.
        drop(stage);
        let files: Vec<_> =
            fs::read_dir(&folder).unwrap().map(|file| fs::read(file.unwrap().path()).unwrap()).collect();
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(files.len(), 5);
        for file in files {
            let text = String::from_utf8_lossy(&file);
            // A sequence of JSON texts (RFC 7464).
            assert!(text.starts_with("\u{1e}{"), "{text}");
            assert!(text.contains("packet_sent") && text.contains("packet_received"), "{text}");
        }
    }
}
