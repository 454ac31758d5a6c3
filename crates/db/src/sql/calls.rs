//! Decides which calls of functions in a statement may change the session.

use super::harmless::{is_known, waits};
use super::lexer::{Token, TokenKind, continues_word};
use super::notes::{Behind, SoleCall};
use super::session::SessionEffect;
use super::setting::OpenSetting;
use super::statement::Statement;
use super::words::{Keyword, is_one_of};

impl Statement<'_> {
    /// Takes a parenthesis that opens after a name.
    pub(super) fn call(&mut self, parenthesis: usize) {
        let name = self.notes.name.name(self.sql);
        let known = self
            .dialect
            .session_functions
            .iter()
            .flat_map(|table| table.iter())
            .find(|function| function.is_called_by(name));
        let Some(known) = known else {
            if self.is_unknown_call(name, parenthesis) {
                self.notes.unknown_call = true;
                self.notes.side_door |= self.dialect.only_known_functions;
            } else if waits(name) {
                self.notes.unknown_call = true;
            }
            return;
        };
        self.notes.unknown_call = true;
        self.notes.irreversible |= known.effect.is_irreversible();
        match known.effect {
            SessionEffect::Changes | SessionEffect::Irreversible => {
                self.notes.side_door = true;
                return;
            }
            SessionEffect::Only | SessionEffect::OnlyIrreversible => self.notes.side_door = true,
            // One setting inside another: assume that it changes the session.
            SessionEffect::OnlyUnlessLocal if self.notes.open_setting.is_some() => {
                self.notes.side_door = true;
            }
            SessionEffect::OnlyUnlessLocal => {
                self.notes.open_setting = Some(OpenSetting::new(self.notes.depth));
                self.notes.watching = true;
            }
        }
        let nothing_before = match self.notes.head_len {
            2 => true,
            4 => self.head(2).is_symbol(b'.'),
            _ => false,
        };
        let selects = matches!(self.verb(), Some(Keyword::Select | Keyword::Do));
        if nothing_before && selects && self.notes.depth == 0 {
            self.notes.sole_call = SoleCall::Open;
        }
    }

    /// Returns whether the parenthesis may be a call of the application's own function. The columns after a table's name
    /// are no call.
    fn is_unknown_call(&self, name: &str, parenthesis: usize) -> bool {
        let notes = &self.notes;
        let defines = matches!(
            self.verb(),
            Some(Keyword::Create | Keyword::Alter | Keyword::Drop)
        );
        if defines && !notes.evaluates || notes.name_behind == Behind::TableIsNext {
            return false;
        }
        // The application can have a function of any name in quotes or with a schema. `$abs` and `1abs` are names,
        // too.
        let start = notes.name.start;
        let before = self.sql.as_bytes().get(start.wrapping_sub(1)).copied();
        let is_plain = notes.name.kind == TokenKind::Word
            && notes.name_behind != Behind::Schema
            && !before.is_some_and(continues_word);
        if is_plain && notes.name_behind == Behind::Closed && is_one_of(name, &["against"]) {
            return false;
        }
        let is_apart = start + notes.name.len != parenthesis;
        let dialect = self.dialect;
        !is_plain
            || is_apart && is_one_of(name, dialect.touching_functions)
            || !is_known(dialect.known_functions, name)
    }

    /// Takes a closing parenthesis.
    pub(super) fn close(&mut self) {
        let notes = &mut self.notes;
        notes.depth = notes.depth.saturating_sub(1);
        if notes.sole_call == SoleCall::Open && notes.depth == 0 {
            notes.sole_call = SoleCall::Closed;
            notes.watching = true;
        }
        if let Some(setting) = notes.open_setting
            && setting.is_closed(notes.depth)
        {
            notes.open_setting = None;
            if setting.is_local() {
                notes.sole_call = SoleCall::No;
            } else {
                notes.side_door = true;
            }
        }
    }

    /// Takes a token after a sole call: only an alias may follow.
    pub(super) fn follow_sole_call(&mut self, token: &Token, keyword: Option<Keyword>) {
        let alias = match token.kind {
            TokenKind::Word => keyword.is_none() && !is_one_of(token.text(self.sql), &["from"]),
            kind => kind == TokenKind::Quoted,
        };
        if !alias && !token.is_symbol(b')') {
            self.notes.sole_call = SoleCall::No;
        }
    }

    /// Takes a token of an open call that sets something.
    pub(super) fn follow_setting(&mut self, token: &Token, keyword: Option<Keyword>) {
        if let Some(setting) = &mut self.notes.open_setting {
            setting.take(token, keyword, self.sql, self.notes.depth);
            self.notes.irreversible |= setting.is_irreversible();
        }
    }
}
