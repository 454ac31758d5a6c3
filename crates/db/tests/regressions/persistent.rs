//! Connections that outlive the handles they were opened for.

use cenote::{Builder, Db};
use cenote_testkit::poll::yield_now;

use crate::support::{ONE, TWO, World};

/// Every test has its own address: the connections of all are in one register.
fn builder(world: &World, address: &str) -> Builder {
    let builder = Db::builder_with(world.driver(), address);
    let builder = builder.runtime(world.runtime.clone());
    builder.unpooled().persistent(true)
}

/// Two handles that were opened at once were put into the register twice: one of them was never
/// found again, and stayed open for ever.
#[test]
fn two_persistent_handles_at_once_have_a_connection_each_and_both_are_used_again() {
    let world = World::new(1);
    let open = || builder(&world, "fake:at-once").open();
    world.run(async {
        let (first, second) = tokio::join!(open(), open());
        let (first, second) = (first.unwrap(), second.unwrap());
        first.exec(ONE, ()).await.unwrap();
        second.exec(ONE, ()).await.unwrap();
        assert_eq!(world.connections(), [1, 2]);
        drop((first, second));
        yield_now().await;
        let (third, fourth) = (open().await.unwrap(), open().await.unwrap());
        third.exec(ONE, ()).await.unwrap();
        fourth.exec(ONE, ()).await.unwrap();
    });
    assert_eq!(world.connections(), [1, 2]);
    assert_eq!(world.count("connect"), 2);
}

/// The register kept the whole handle, so that the next one had its settings.
#[test]
fn a_default_of_one_persistent_handle_does_not_reach_the_next() {
    let world = World::new(1);
    let open = || builder(&world, "fake:defaults").open();
    world.run(async {
        let first = open().await.unwrap();
        first.set_default("colour", "red");
        first.exec(ONE, ()).await.unwrap();
        assert_eq!(world.count("set 1 colour=red"), 1);
        drop(first);
        yield_now().await;
        let second = open().await.unwrap();
        second.exec(TWO, ()).await.unwrap();
    });
    assert_eq!(world.count("connect"), 1, "it is the same connection");
    assert_eq!(world.count("colour"), 1);
    assert!(world.place_of("reset 1") < world.place_of(&format!("run 1 {TWO}")));
}

/// The second handle was the first one, whatever it had been opened with.
#[test]
fn a_persistent_handle_has_the_settings_that_it_was_opened_with() {
    let world = World::new(1);
    world.run(async {
        let plain = builder(&world, "fake:settings").open().await.unwrap();
        plain.exec(ONE, ()).await.unwrap();
        drop(plain);
        yield_now().await;
        let minute = std::time::Duration::from_secs(60);
        let limited = builder(&world, "fake:settings").statement_timeout(minute);
        let limited = limited.open().await.unwrap();
        limited.exec(ONE, ()).await.unwrap();
        assert_eq!(limited.config().statement_timeout, Some(minute));
    });
    assert_eq!(world.count("connect"), 1);
}
