//! A request is a coroutine, from its call to the end of its body.

use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use cenote_testkit::poll::{Hand, drop_after};
use cenote_tower::CoroutineLayer;
use http::Response;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full};
use tower::{Layer, Service, service_fn};

use crate::support::*;

type Answer<B> = Result<Response<B>, Infallible>;

#[tokio::test]
async fn call_future_and_body_run_and_drop_in_one_coroutine() {
    let log = Log::default();
    let mut service = CoroutineLayer::new().layer(service_fn(|_| {
        log.note("called");
        let dropped = NotedDrop(log.clone(), "future dropped");
        let log = log.clone();
        async move {
            let _dropped = dropped;
            log.note("future polled");
            Steps::new(&log, [Step::Data("a"), Step::Data("b")]).respond()
        }
    }));
    let response = service.call(request()).await.unwrap();
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "ab");
    assert_eq!(
        log.what(),
        [
            "called",
            "future polled",
            "future dropped",
            "body polled",
            "body polled",
            "body polled",
            "body dropped"
        ]
    );
    let coroutines = log.coroutines();
    assert!(matches!(coroutines[..], [Some(_)]), "{coroutines:?}");
    assert_eq!(cenote::current(), None);
}

#[tokio::test]
async fn two_requests_are_two_coroutines_though_they_run_in_one_task() {
    let log = Log::default();
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> Answer<_> {
        log.note("called");
        Ok(Response::new(Empty::<Bytes>::new()))
    }));
    let (one, two) = tokio::join!(ask(service.clone()), ask(service));
    one.unwrap();
    two.unwrap();
    let coroutines = log.coroutines();
    assert!(
        matches!(coroutines[..], [Some(one), Some(two)] if one != two),
        "{coroutines:?}"
    );
}

#[tokio::test]
async fn begin_works_in_a_handler() {
    let store = Store::new().await;
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> cenote::Result<_> {
        let transaction = store.db.begin().await?;
        insert(&store.db, 1).await?;
        transaction.commit().await?;
        Ok(Response::new(Empty::<Bytes>::new()))
    }));
    ask(service).await.unwrap();
    assert_eq!(store.rows().await, 1);
    store.is_whole().await;
}

#[tokio::test]
async fn a_response_without_a_body_ends_the_coroutine_with_its_head() {
    let store = Store::new().await;
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> Answer<_> {
        leave_transaction(&store.db).await;
        Ok(Response::new(Empty::<Bytes>::new()))
    }));
    let response = ask(service).await.unwrap();
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
    assert!(response.body().is_end_stream());
    assert_eq!(response.body().size_hint().exact(), Some(0));
}

#[tokio::test]
async fn what_is_pinned_stays_so_while_the_body_is_sent_and_no_longer() {
    let endings = [
        ("its last frame", Step::Data("b")),
        ("trailers", Step::Trailers),
        ("an error", Step::Fail),
    ];
    for (ending, step) in endings {
        let store = Store::new().await;
        let log = Log::default();
        let body = std::cell::Cell::new(Some(Steps::new(&log, [Step::Data("a"), step])));
        let service = CoroutineLayer::new().layer(service_fn(async |_| {
            leave_transaction(&store.db).await;
            body.take().unwrap().respond()
        }));
        let mut body = ask(service).await.unwrap().into_body();
        assert_eq!(store.in_use(), 1, "{ending}");
        next_frame(&mut body).await.unwrap().unwrap();
        assert_eq!(store.in_use(), 1, "{ending}");
        let second = next_frame(&mut body).await.unwrap();
        if ending == "its last frame" {
            // Which nobody knew it was.
            assert_eq!(store.in_use(), 1, "{ending}");
            assert!(next_frame(&mut body).await.is_none());
        }
        assert_eq!(second.is_err(), ending == "an error");
        store.is_whole().await;
        assert_eq!(store.rows().await, 0, "{ending}");
        assert_eq!(log.what().last(), Some(&"body dropped"), "{ending}");
        assert!(next_frame(&mut body).await.is_none(), "{ending}");
        assert!(body.is_end_stream());
    }
}

#[tokio::test]
async fn body_that_announces_its_last_frame_ends_the_coroutine_there() {
    let store = Store::new().await;
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> Answer<_> {
        leave_transaction(&store.db).await;
        Ok(Response::new(Full::new(Bytes::from_static(b"all of it"))))
    }));
    let mut body = ask(service).await.unwrap().into_body();
    assert_eq!(body.size_hint().exact(), Some(9));
    assert_eq!(store.in_use(), 1);
    let frame = next_frame(&mut body).await.unwrap().unwrap();
    assert_eq!(frame.into_data().unwrap(), "all of it");
    store.is_whole().await;
}

#[tokio::test]
async fn a_body_that_is_dropped_half_way_ends_the_coroutine() {
    let store = Store::new().await;
    let log = Log::default();
    let service = CoroutineLayer::new().layer(service_fn(async |_| {
        leave_transaction(&store.db).await;
        Steps::new(&log, [Step::Data("a"), Step::Wait]).respond()
    }));
    let mut body = ask(service).await.unwrap().into_body();
    next_frame(&mut body).await.unwrap().unwrap();
    Hand::new(next_frame(&mut body)).waits();
    assert_eq!(store.in_use(), 1);
    drop(body);
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
    assert!(matches!(log.coroutines()[..], [Some(_)]));
}

#[tokio::test]
async fn a_body_says_of_its_size_and_end_what_the_inner_one_says() {
    let log = Log::default();
    let service = CoroutineLayer::new().layer(service_fn(async |_| {
        Steps::new(&log, [Step::Data("a"), Step::Wait]).respond()
    }));
    let mut body = ask(service).await.unwrap().into_body();
    assert_eq!(
        (body.size_hint().lower(), body.size_hint().upper()),
        (2, None)
    );
    assert!(!body.is_end_stream());
    next_frame(&mut body).await.unwrap().unwrap();
    assert_eq!(body.size_hint().lower(), 1);
    assert!(!body.is_end_stream());
}

#[tokio::test]
async fn a_default_body_is_empty_for_layers_that_answer_themselves() {
    let mut body = cenote_tower::CoroutineBody::<Steps>::default();
    assert!(body.is_end_stream());
    assert_eq!(body.size_hint().exact(), Some(0));
    assert!(next_frame(&mut body).await.is_none());
}

#[tokio::test]
async fn rows_can_be_streamed_into_a_body_and_the_rest_left_unread() {
    let store = Store::new().await;
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> cenote::Result<_> {
        let endless =
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
        let rows = axum::body::Body::from_stream(Lines(store.db.stream(endless, ()).await?));
        Ok(Response::new(rows))
    }));
    let mut body = ask(service).await.unwrap().into_body();
    for n in 1..=1000 {
        let frame = next_frame(&mut body).await.unwrap().unwrap();
        assert_eq!(frame.into_data().unwrap(), format!("{n}\n"));
    }
    assert_eq!(store.in_use(), 1);
    drop(body);
    store.is_whole().await;
}

/// The first column of each row, on a line of its own.
struct Lines(cenote::RowStream);

impl futures_core::Stream for Lines {
    type Item = cenote::Result<String>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let row = std::pin::Pin::new(&mut self.0).poll_next(cx);
        row.map(|row| row.map(|row| Ok(format!("{}\n", row?.get::<i64>(0)?))))
    }
}

#[tokio::test]
async fn a_request_that_is_dropped_at_any_point_leaves_nothing_behind() {
    let store = Store::new().await;
    let mut polls = 0;
    loop {
        let service = CoroutineLayer::new().layer(service_fn(async |_| -> cenote::Result<_> {
            leave_transaction(&store.db).await;
            insert(&store.db, 2).await?;
            Ok(Response::new(Empty::<Bytes>::new()))
        }));
        let done = drop_after(polls, ask(service)).await;
        store.is_whole().await;
        assert_eq!(store.rows().await, 0, "after {polls} polls");
        if done.is_some() {
            break;
        }
        polls += 1;
    }
}

#[tokio::test]
async fn service_error_ends_the_coroutine_and_is_passed_on_unchanged() {
    let store = Store::new().await;
    let service = CoroutineLayer::new().layer(service_fn(async |_| {
        leave_transaction(&store.db).await;
        Err::<Response<Empty<Bytes>>, _>(Broken)
    }));
    assert_eq!(ask(service).await.unwrap_err(), Broken);
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
}

#[tokio::test]
async fn a_panic_ends_the_coroutine_even_if_it_is_caught() {
    let store = Store::new().await;
    let db = store.db.clone();
    let mut service = CoroutineLayer::new().layer(service_fn(|_| {
        let db = db.clone();
        async move {
            leave_transaction(&db).await;
            panic!("a handler that panics");
            #[expect(unreachable_code, reason = "says what it would have been")]
            Answer::Ok(Response::new(Empty::<Bytes>::new()))
        }
    }));
    let mut future = Box::pin(service.call(request()));
    let panicked = std::future::poll_fn(|cx| {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(|_| false),
            Err(_) => std::task::Poll::Ready(true),
        }
    });
    assert!(panicked.await);
    // The future is still there.
    store.is_whole().await;
    assert_eq!(store.rows().await, 0);
    drop(future);
    assert_eq!(cenote::current(), None);
}

#[tokio::test]
async fn a_body_that_panics_ends_the_coroutine_at_once() {
    let store = Store::new().await;
    let log = Log::default();
    let service = CoroutineLayer::new().layer(service_fn(async |_| {
        leave_transaction(&store.db).await;
        Steps::new(&log, [Step::Panic, Step::Data("never sent")]).respond()
    }));
    let mut body = ask(service).await.unwrap().into_body();
    let mut frame = Hand::new(next_frame(&mut body));
    catch_unwind(AssertUnwindSafe(|| frame.poll())).unwrap_err();
    drop(frame);
    store.is_whole().await;
    assert!(next_frame(&mut body).await.is_none());
}

#[tokio::test]
async fn a_service_that_is_not_ready_makes_the_layer_wait() {
    struct Never;
    impl Service<http::Request<()>> for Never {
        type Response = Response<Empty<Bytes>>;
        type Error = Infallible;
        type Future = std::future::Ready<Answer<Empty<Bytes>>>;

        fn poll_ready(
            &mut self,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Result<(), Infallible>> {
            std::task::Poll::Pending
        }

        fn call(&mut self, _: http::Request<()>) -> Self::Future {
            panic!("called before it was ready")
        }
    }
    Hand::new(ask(CoroutineLayer::new().layer(Never))).waits();
}

#[tokio::test]
async fn a_task_that_a_handler_spawns_is_no_part_of_the_request() {
    let store = Store::new().await;
    let db = store.db.clone();
    let service = CoroutineLayer::new().layer(service_fn(async |_| -> cenote::Result<_> {
        leave_transaction(&db).await;
        let other = db.clone();
        let spawned = cenote::spawn(async move { (other.in_transaction(), cenote::current()) });
        let (in_transaction, coroutine) = spawned.await.unwrap();
        assert!(!in_transaction);
        assert_ne!(coroutine, cenote::current());
        Ok(Response::new(Empty::<Bytes>::new()))
    }));
    ask(service).await.unwrap();
    store.is_whole().await;
}
