//! Connecting: logins, TLS, certificates, several servers, libpq's variables and files.

mod around;
mod certificates;
mod hosts;
mod logins;
mod man_in_the_middle;
mod scram;
mod tls;
