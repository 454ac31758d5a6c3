//! A man in the middle, with TLS to the client and to the server.

use std::sync::Arc;

use cenote::{Db, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::CryptoProvider};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::servers::scripted::{Client, Scripted};
use crate::servers::{port, refused, soon, tls_file};

/// Speaks TLS with a certificate that is as good as the server's own.
fn acceptor(alpn: &[&str]) -> TlsAcceptor {
    let provider: Arc<CryptoProvider> = Arc::new(ring::default_provider());
    let certificate = CertificateDer::from_pem_file(tls_file("second.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("second.key")).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    config.alpn_protocols = alpn.iter().map(|it| it.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

/// Hands on what comes out of TLS to the real server, in the clear.
async fn hand_on(mut encrypted: TlsStream<TcpStream>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port())).await else {
        return;
    };
    let _ = copy_bidirectional(&mut encrypted, &mut server).await;
}

#[tokio::test]
async fn channel_binding_detects_a_man_in_the_middle() {
    // He takes TLS off, and the offer of channel binding with it: the server, which is
    // spoken to in the clear, makes none. What is left is the client's word that it could have.
    let middle = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        client.send(b"S").await;
        if let Ok(encrypted) = acceptor(&[]).accept(client.stream).await {
            hand_on(encrypted).await;
        }
    })
    .await;
    let dsn = middle.dsn().replace("sslmode=disable", "sslmode=require");
    let error = refused(&format!("{dsn};channel_binding=require")).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("SCRAM-SHA-256-PLUS"), "{error}");
    // Without it nobody notices: that is what `require` without a certificate is worth.
    let trusting = Db::open(&format!("{dsn};channel_binding=disable"))
        .await
        .unwrap();
    soon("it connects", trusting.ping()).await.unwrap();
}

#[tokio::test]
async fn channel_binding_to_another_certificate_is_refused() {
    // He speaks TLS with the server as well, and so the server offers channel binding.
    let middle = Scripted::new(|mut client: Client| async move {
        client.read_startup().await;
        client.send(b"S").await;
        let Ok(mut encrypted) = acceptor(&[]).accept(client.stream).await else {
            return;
        };
        let mut server = tls_to_the_server().await;
        let _ = copy_bidirectional(&mut encrypted, &mut server).await;
    })
    .await;
    let dsn = middle.dsn().replace("sslmode=disable", "sslmode=require");
    for binding in ["prefer", "require"] {
        let error = refused(&format!("{dsn};channel_binding={binding}")).await;
        assert_eq!(error.kind(), Kind::Connect, "{error}");
        assert_eq!(error.sql_state(), Some("28000"), "{error}");
        assert!(error.message().contains("channel binding"), "{error}");
    }
    let trusting = Db::open(&format!("{dsn};channel_binding=disable"))
        .await
        .unwrap();
    soon("it connects", trusting.ping()).await.unwrap();
}

/// The middle's own TLS connection to the real server.
async fn tls_to_the_server() -> tokio_rustls::client::TlsStream<TcpStream> {
    use tokio_rustls::rustls::{ClientConfig, RootCertStore};
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(tls_file("ca.crt")).unwrap();
    roots.add(ca).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut tcp = TcpStream::connect(("127.0.0.1", port())).await.unwrap();
    tcp.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
    assert_eq!(tcp.read_u8().await.unwrap(), b'S');
    let name = "localhost".try_into().unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    connector.connect(name, tcp).await.unwrap()
}

#[tokio::test]
async fn tls_can_begin_directly_if_the_server_offers_postgresql() {
    let direct = "sslnegotiation=direct;sslmode=require;channel_binding=disable";
    let younger = Scripted::new(|client: Client| async move {
        if let Ok(encrypted) = acceptor(&["postgresql"]).accept(client.stream).await {
            hand_on(encrypted).await;
        }
    })
    .await;
    let dsn = younger.dsn().replace("sslmode=disable", direct);
    let db = Db::open(&dsn).await.unwrap();
    soon("it connects", db.ping()).await.unwrap();

    let something_else = Scripted::new(|client: Client| async move {
        if let Ok(encrypted) = acceptor(&[]).accept(client.stream).await {
            hand_on(encrypted).await;
        }
    })
    .await;
    let error = refused(&something_else.dsn().replace("sslmode=disable", direct)).await;
    assert_eq!(error.kind(), Kind::Connect);
    assert!(error.message().contains("PostgreSQL 17"), "{error}");
}
