//! Getting in: passwords, TLS, several servers, and what libpq's users expect to be looked at.

mod around;
mod hosts;
mod logins;
mod man_in_the_middle;
mod tls;
