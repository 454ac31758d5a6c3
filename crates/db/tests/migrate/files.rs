//! Where migrations come from: a folder, or the program itself.

use cenote::migrate::Migrations;

use crate::support::{TestDatabase, has_table};

#[test]
fn a_folder_is_read_with_the_folders_in_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("2026")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("V1__a.sql", "SELECT 1");
    write("2026/V3__c.sql", "SELECT 3");
    write("U2__b.sql", "SELECT 2");
    write("README.md", "not a migration");
    write("mod.rs", "not a migration either");
    let migrations = Migrations::from_dir(folder.path()).unwrap();
    let read: Vec<_> = migrations
        .iter()
        .map(|it| (it.version(), it.name(), it.sql()))
        .collect();
    let expected = [
        (1, "a", "SELECT 1"),
        (2, "b", "SELECT 2"),
        (3, "c", "SELECT 3"),
    ];
    assert_eq!(read, expected);
}

#[test]
fn a_wrong_file_is_named() {
    for (name, says) in [
        ("V1-first.sql", "V1-first.sql is not named like a migration"),
        ("seed.sql", "seed.sql is not named like a migration"),
        ("V1__first.rs", "a migration in Rust"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(name), "SELECT 1").unwrap();
        let error = Migrations::from_dir(folder.path()).unwrap_err();
        assert!(error.message().contains(says), "{error}");
    }
    let error = Migrations::from_dir("/no/such/folder").unwrap_err();
    assert!(error.message().contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn embedded_migrations_are_those_of_the_folder() {
    let embedded = cenote::migrate::embed!("docs/migrations");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/migrations");
    let read = Migrations::from_dir(folder).unwrap();
    assert!(embedded.iter().eq(read.iter()));
    let database = TestDatabase::sqlite();
    let db = database.open().await;
    db.migrate(&embedded).await.unwrap();
    assert!(has_table(&db, "customer").await);
}
