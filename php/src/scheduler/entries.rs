//! What the scheduler owns: coroutines and tasks, each with a number that is not used again.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use crate::coroutine::Coroutine;
use crate::wake::{Id, WakeState};

pub(super) enum Entry {
    Coroutine(Rc<Coroutine>),
    Task(Arc<WakeState>, Option<Task>),
}

pub(crate) type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
pub(super) struct Entries {
    pub(super) slots: Vec<(u32, Option<Entry>)>,
    free: Vec<u32>,
    pub(super) coroutines: usize,
}

impl Entries {
    pub(super) fn insert(&mut self, make: impl FnOnce(Id) -> Entry) -> Id {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            u32::try_from(self.slots.len() - 1).expect("there are fewer than 2^32 coroutines")
        });
        let slot = &mut self.slots[index as usize];
        let id = Id {
            index,
            generation: slot.0,
        };
        let entry = make(id);
        self.coroutines += usize::from(matches!(entry, Entry::Coroutine(_)));
        slot.1 = Some(entry);
        id
    }

    pub(super) fn get(&mut self, id: Id) -> Option<&mut Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.1.as_mut().filter(|_| slot.0 == id.generation)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Entry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.0 != id.generation {
            return None;
        }
        let entry = slot.1.take()?;
        slot.0 = slot.0.wrapping_add(1);
        self.free.push(id.index);
        self.coroutines -= usize::from(matches!(entry, Entry::Coroutine(_)));
        Some(entry)
    }
}
