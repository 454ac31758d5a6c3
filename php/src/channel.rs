//! `Async\Channel`: values from coroutine to coroutine, in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::NonNull;
use std::rc::Rc;
use std::task::Waker;

use crate::api::{answer, borrow, guarded, status};
use crate::awaiting::wait_for;
use crate::engine::{Exception, ExceptionClass, Gc, Status, Value, ZendObject, Zval};
use crate::scheduler::{Interrupt, scheduler};

/// A coroutine that waits to send or to receive. The other side empties or fills it.
struct Waiting {
    value: RefCell<Option<Value>>,
    done: Cell<bool>,
    waker: Waker,
}

pub(crate) struct Channel {
    capacity: usize,
    /// The values, with the sender that does not know yet that its value is in the buffer.
    buffer: RefCell<VecDeque<(Value, Option<Rc<Waiting>>)>>,
    senders: RefCell<VecDeque<Rc<Waiting>>>,
    receivers: RefCell<VecDeque<Rc<Waiting>>>,
    closed: Cell<bool>,
}

fn closed_error() -> Interrupt {
    Interrupt::Throw(Exception::new(
        ExceptionClass::Channel,
        "Channel is closed",
        None,
    ))
}

impl Channel {
    /// Hands a value over, or buffers it. Returns it back if there is neither a receiver nor room.
    fn offer(&self, value: Value) -> Result<(), Value> {
        let receiver = self.receivers.borrow_mut().pop_front();
        if let Some(receiver) = receiver {
            *receiver.value.borrow_mut() = Some(value);
            receiver.done.set(true);
            receiver.waker.wake_by_ref();
            return Ok(());
        }
        if self.buffer.borrow().len() >= self.capacity {
            return Err(value);
        }
        self.buffer.borrow_mut().push_back((value, None));
        Ok(())
    }

    /// Takes the oldest value; a sender that waits moves up.
    fn take(&self) -> Option<Value> {
        let buffered = self.buffer.borrow_mut().pop_front();
        match buffered {
            Some((value, _)) => {
                self.move_up();
                Some(value)
            }
            None => {
                let sender = self.senders.borrow_mut().pop_front()?;
                sender.done.set(true);
                sender.waker.wake_by_ref();
                sender.value.borrow_mut().take()
            }
        }
    }

    /// Puts the value of the oldest sender that waits into the buffer.
    fn move_up(&self) {
        let sender = self.senders.borrow_mut().pop_front();
        if let Some(sender) = sender {
            let value = sender.value.borrow_mut().take();
            sender.done.set(true);
            sender.waker.wake_by_ref();
            if let Some(value) = value {
                self.buffer.borrow_mut().push_back((value, Some(sender)));
            }
        }
    }

    /// Takes back what a sender has put into the buffer. Returns whether it was still there.
    fn take_back(&self, sender: &Rc<Waiting>) -> bool {
        let found = {
            let mut buffer = self.buffer.borrow_mut();
            let is_its = |entry: &(Value, Option<Rc<Waiting>>)| {
                entry
                    .1
                    .as_ref()
                    .is_some_and(|other| Rc::ptr_eq(other, sender))
            };
            let index = buffer.iter().position(is_its);
            index.and_then(|index| buffer.remove(index))
        };
        let was_there = found.is_some();
        if was_there {
            self.move_up();
        }
        was_there
    }

    fn wait(
        &self,
        queue: &RefCell<VecDeque<Rc<Waiting>>>,
        value: Option<Value>,
        token: Option<NonNull<ZendObject>>,
    ) -> Result<Option<Value>, Interrupt> {
        let me = scheduler().current();
        let waiting = me.keep(Rc::new(Waiting {
            value: RefCell::new(value),
            done: Cell::new(false),
            waker: me.wake.waker(),
        }));
        queue.borrow_mut().push_back(Rc::clone(&waiting));
        let waited = wait_for(token, || {
            (waiting.done.get() || self.closed.get()).then_some(())
        });
        queue
            .borrow_mut()
            .retain(|other| !Rc::ptr_eq(other, &waiting));
        let value = waiting.value.borrow_mut().take();
        match waited {
            Ok(()) if waiting.done.get() => Ok(value),
            Ok(()) => Err(closed_error()),
            Err(interrupt) if !waiting.done.get() || self.take_back(&waiting) => Err(interrupt),
            Err(interrupt) => match (value, interrupt) {
                // A value that arrived for a receiver that leaves goes to the next one.
                (Some(value), interrupt) => {
                    self.put_back(value);
                    Err(interrupt)
                }
                // What was sent was received: the sender ends where it waits next.
                (None, Interrupt::Throw(cancellation)) => {
                    let older = me.cancellation.replace(Some(cancellation));
                    drop(older);
                    Ok(None)
                }
                (None, interrupt) => Err(interrupt),
            },
        }
    }

    fn put_back(&self, value: Value) {
        let receiver = self.receivers.borrow_mut().pop_front();
        match receiver {
            Some(receiver) => {
                *receiver.value.borrow_mut() = Some(value);
                receiver.done.set(true);
                receiver.waker.wake_by_ref();
            }
            None => self.buffer.borrow_mut().push_front((value, None)),
        }
    }

    fn send(&self, value: Value, token: Option<NonNull<ZendObject>>) -> Result<(), Interrupt> {
        if self.closed.get() {
            return Err(closed_error());
        }
        match self.offer(value) {
            Ok(()) => Ok(()),
            Err(value) => self.wait(&self.senders, Some(value), token).map(drop),
        }
    }

    fn receive(&self, token: Option<NonNull<ZendObject>>) -> Result<Value, Interrupt> {
        if let Some(value) = self.take() {
            return Ok(value);
        }
        if self.closed.get() {
            return Err(closed_error());
        }
        let value = self.wait(&self.receivers, None, token)?;
        Ok(value.unwrap_or_else(Value::null))
    }

    fn close(&self) {
        self.closed.set(true);
        for queue in [&self.senders, &self.receivers] {
            for waiting in queue.take() {
                waiting.waker.wake_by_ref();
            }
        }
    }

    pub(crate) fn report_to_gc(&self, gc: &Gc) {
        for (value, _) in &*self.buffer.borrow() {
            gc.value(value);
        }
    }
}

/// The iterator of a channel: it ends when the channel is closed and empty.
pub(crate) struct Iterator {
    channel: Rc<Channel>,
    current: RefCell<Option<Value>>,
    position: Cell<i64>,
}

#[unsafe(no_mangle)]
extern "C" fn cenote_channel_new(capacity: i64) -> *mut c_void {
    let channel = Channel {
        capacity: usize::try_from(capacity).unwrap_or(0),
        buffer: RefCell::default(),
        senders: RefCell::default(),
        receivers: RefCell::default(),
        closed: Cell::new(false),
    };
    Rc::into_raw(Rc::new(channel)).cast_mut().cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_send(
    data: *mut c_void,
    value: &Zval,
    token: *mut ZendObject,
) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a channel's object.
        let channel = unsafe { borrow::<Channel>(data) };
        status(channel.send(Value::copy_of(value), NonNull::new(token)))
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_try_send(data: *mut c_void, value: &Zval) -> bool {
    answer(false, || {
        // SAFETY: C passes the value of a channel's object.
        let channel = unsafe { borrow::<Channel>(data) };
        !channel.closed.get() && channel.offer(Value::copy_of(value)).is_ok()
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_receive(
    data: *mut c_void,
    token: *mut ZendObject,
    to: &mut Zval,
) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a channel's object.
        let channel = unsafe { borrow::<Channel>(data) };
        match channel.receive(NonNull::new(token)) {
            Ok(value) => {
                value.write_to(to);
                Status::Ok
            }
            Err(interrupt) => interrupt.raise(),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_close(data: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of a channel's object.
        unsafe { borrow::<Channel>(data) }.close();
        Status::Ok
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_is_closed(data: *mut c_void) -> bool {
    // SAFETY: C passes the value of a channel's object.
    unsafe { borrow::<Channel>(data) }.closed.get()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_capacity(data: *mut c_void) -> i64 {
    // SAFETY: C passes the value of a channel's object.
    let channel = unsafe { borrow::<Channel>(data) };
    i64::try_from(channel.capacity).unwrap_or(i64::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_count(data: *mut c_void) -> i64 {
    // SAFETY: C passes the value of a channel's object.
    let channel = unsafe { borrow::<Channel>(data) };
    let count = channel.buffer.borrow().len();
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_iterator_new(channel: *mut c_void) -> *mut c_void {
    let channel = channel.cast::<Channel>().cast_const();
    // SAFETY: C passes the value of a channel's object, which holds a reference.
    unsafe { Rc::increment_strong_count(channel) };
    // SAFETY: the count was raised for this one.
    let channel = unsafe { Rc::from_raw(channel) };
    let iterator = Box::new(Iterator {
        channel,
        current: RefCell::new(None),
        position: Cell::new(-1),
    });
    Box::into_raw(iterator).cast()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_iterator_move(data: *mut c_void) -> Status {
    guarded(|| {
        // SAFETY: C passes the value of an iterator's object.
        let iterator = unsafe { borrow::<Iterator>(data) };
        let before = iterator.current.take();
        drop(before);
        let channel = &iterator.channel;
        if channel.closed.get() && channel.buffer.borrow().is_empty() {
            return Status::Ok;
        }
        match channel.receive(None) {
            Ok(value) => {
                *iterator.current.borrow_mut() = Some(value);
                iterator.position.set(iterator.position.get() + 1);
                Status::Ok
            }
            // The channel was closed while this waited.
            Err(Interrupt::Throw(_)) if channel.closed.get() => Status::Ok,
            Err(interrupt) => interrupt.raise(),
        }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cenote_channel_iterator_current(
    data: *mut c_void,
    to: Option<&mut Zval>,
    key: &mut i64,
) -> bool {
    answer(false, || {
        // SAFETY: C passes the value of an iterator's object.
        let iterator = unsafe { borrow::<Iterator>(data) };
        let current = iterator.current.borrow();
        let Some(value) = &*current else { return false };
        if let Some(to) = to {
            Value::copy_of(value.raw()).write_to(to);
        }
        *key = iterator.position.get();
        true
    })
}
