//! A bank that hundreds of misbehaving tasks use at once.
