//! Panics that are part of the plan, which nobody needs to read about.

/// What a planned panic carries, for the hook to recognise.
#[derive(Debug)]
pub(crate) struct PlannedPanic;

/// Silences planned panics; any other is reported as usual.
pub(crate) fn hush_planned() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.payload().is::<PlannedPanic>() {
            report(info);
        }
    }));
}
