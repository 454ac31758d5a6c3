//! deadpool-lapin's manager on cenote-pool: 100 tasks publish to RabbitMQ over 4 connections.
//!
//! ```text
//! cargo run -p cenote-deadpool --example deadpool_lapin -- amqp://guest:guest@127.0.0.1:5672/%2f
//! ```

use std::collections::BTreeSet;
use std::error::Error;

use cenote_deadpool::FromDeadpool;
use cenote_pool::{DestroyReason, Pool};
use deadpool_lapin::Manager;
use deadpool_lapin::lapin::options::{
    BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
    QueueDeleteOptions,
};
use deadpool_lapin::lapin::types::{FieldTable, ShortString};
use deadpool_lapin::lapin::{BasicProperties, ConnectionProperties};
use tokio::task::JoinSet;

type BoxError = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let url = std::env::args()
        .nth(1)
        .ok_or("the argument is the address of a RabbitMQ")?;

    // Before: deadpool_lapin::Pool::builder(manager).max_size(4).build()?
    let runtime = async_rs::Runtime::tokio_current();
    let manager = Manager::new(url, ConnectionProperties::default, runtime);
    let pool = Pool::builder(FromDeadpool::new(manager))
        .max(4)
        .open()
        .await?;

    let queue = ShortString::from(format!("cenote-deadpool-{}", std::process::id()));
    let connection = pool.acquire().await?; // before: pool.get()
    let channel = connection.create_channel().await?;
    channel
        .queue_declare(
            queue.clone(),
            QueueDeclareOptions::default(),
            FieldTable::default(),
        )
        .await?;
    drop(connection);

    let mut tasks = JoinSet::new();
    for number in 0..100_u32 {
        let (pool, queue) = (pool.clone(), queue.clone());
        tasks.spawn(async move {
            let connection = pool.acquire().await?;
            let channel = connection.create_channel().await?;
            channel
                .confirm_select(ConfirmSelectOptions::default())
                .await?;
            let options = BasicPublishOptions::default();
            let message = number.to_be_bytes();
            let published = channel.basic_publish(
                ShortString::default(),
                queue,
                options,
                &message,
                BasicProperties::default(),
            );
            let confirmation = published.await?.await?;
            assert!(confirmation.is_ack(), "{confirmation:?}");
            channel.close(200, "done".into()).await?;
            Ok::<(), BoxError>(())
        });
    }
    while let Some(task) = tasks.join_next().await {
        task??;
    }

    let mut numbers = BTreeSet::new();
    while let Some(message) = channel
        .basic_get(queue.clone(), BasicGetOptions { no_ack: true })
        .await?
    {
        let bytes = message.delivery.data.as_slice().try_into()?;
        numbers.insert(u32::from_be_bytes(bytes));
    }
    let made = pool.counters().created;
    println!(
        "{} messages of 100 tasks over {made} connections",
        numbers.len()
    );
    assert!(numbers.into_iter().eq(0..100) && made <= 4);
    channel
        .queue_delete(queue, QueueDeleteOptions::default())
        .await?;

    // A connection that is closed is refused by `recycle` and replaced in the same acquire.
    let connection = pool.acquire().await?;
    connection.close(200, "gone".into()).await?;
    drop(connection);
    for _ in 0..=made {
        assert!(pool.acquire().await?.status().connected());
    }
    let refused = pool
        .counters()
        .destroyed_for(DestroyReason::AcquireRejected);
    assert_eq!(refused, 1);
    Ok(())
}
