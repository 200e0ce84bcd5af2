//! Read buffers: an idle socket owns none.

use bytes::BytesMut;
use slab::Slab;

/// Bytes that one read of an application's connection may bring.
pub(crate) const SESSION_READ: usize = 64 * 1024;
/// Bytes that one read of a provider's connection may bring: it carries everybody's answers.
pub(crate) const HOST_READ: usize = 256 * 1024;
/// Buffers of a kind that are kept for the next read.
const KEPT: usize = 16;

/// The read buffers of a shard, in use and pooled.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    used: Slab<BytesMut>,
    session: Vec<BytesMut>,
    host: Vec<BytesMut>,
}

/// Names a buffer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BufferId(u32);

impl Buffers {
    /// An empty buffer of [`SESSION_READ`] bytes.
    pub(crate) fn for_session(&mut self) -> BufferId {
        let buffer = self
            .session
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(SESSION_READ));
        self.insert(buffer)
    }

    /// An empty buffer of [`HOST_READ`] bytes.
    pub(crate) fn for_host(&mut self) -> BufferId {
        let buffer = self
            .host
            .pop()
            .unwrap_or_else(|| BytesMut::with_capacity(HOST_READ));
        self.insert(buffer)
    }

    /// An empty buffer that grows with a long body.
    pub(crate) fn for_body(&mut self) -> BufferId {
        self.insert(BytesMut::new())
    }

    /// Gives a buffer back, whatever it holds. The pools keep a few.
    pub(crate) fn release(&mut self, id: BufferId) {
        let Some(mut buffer) = self.used.try_remove(id.0 as usize) else {
            return;
        };
        buffer.clear();
        let pool = match buffer.capacity() {
            SESSION_READ => &mut self.session,
            HOST_READ => &mut self.host,
            _ => return,
        };
        if pool.len() < KEPT {
            pool.push(buffer);
        }
    }

    /// The bytes read.
    #[inline]
    pub(crate) fn get(&self, id: BufferId) -> &BytesMut {
        &self.used[id.0 as usize]
    }

    /// The bytes read.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: BufferId) -> &mut BytesMut {
        &mut self.used[id.0 as usize]
    }

    /// Bytes of all buffers, in use and pooled.
    pub(crate) fn bytes(&self) -> usize {
        let used: usize = self.used.iter().map(|(_, b)| b.capacity()).sum();
        used + self.session.len() * SESSION_READ + self.host.len() * HOST_READ
    }

    fn insert(&mut self, buffer: BytesMut) -> BufferId {
        let key = self.used.insert(buffer);
        BufferId(u32::try_from(key).expect("sockets are bounded far below this"))
    }
}
