//! What a session was after connecting, it is again after a reset.

use cenote::driver::Reset;

use crate::servers::client::Client;
use crate::servers::dsn;

#[tokio::test]
async fn a_role_that_came_with_the_connection_comes_back_with_a_reset() {
    const WHO: &str = "SELECT current_user::text";
    let mut client = Client::open(&format!("{};options=-crole=trusted", dsn())).await;
    assert_eq!(client.get::<String>(WHO).await, "trusted");
    for touch in [
        "SET ROLE plain",
        "RESET ALL",
        "PREPARE own AS SELECT 1",
        "SET SESSION AUTHORIZATION plain",
    ] {
        client.must(touch).await;
        assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
        assert_eq!(client.get::<String>(WHO).await, "trusted", "after {touch}");
    }
}

#[tokio::test]
async fn a_role_of_the_application_goes_with_a_reset() {
    const WHO: &str = "SELECT current_user::text";
    let mut client = Client::new().await;
    for touch in [
        "SET ROLE plain",
        "SET SESSION AUTHORIZATION plain",
        "SET ROLE plain; PREPARE own AS SELECT 1",
    ] {
        client.script(touch).await.unwrap();
        assert_eq!(client.get::<String>(WHO).await, "plain");
        assert_eq!(client.connection.reset().await.unwrap(), Reset::Done);
        assert_eq!(client.get::<String>(WHO).await, "cenote", "after {touch}");
    }
}
