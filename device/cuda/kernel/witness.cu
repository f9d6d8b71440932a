// Witness: the keys and values that this device computed into scratch, compared bit for bit with what its pages received.
//
// Shapes: scratch of each sequence [layers][rows][2][kvHeads] heads; first [seqs] i32, preset to the largest number, becomes the
// smallest (row * layers + layer) * 2 + part of one that differs, for sequences with scratch.
// Grid: (rows, layers) blocks of 128 threads. Shared memory: none. A thread owns pairs of bytes 128 apart.
// The pages' tags are compared too. Oracle: device/cpu, runCompare.
#include "quire.cuh"

KERNEL(witness, 128)(const Batch *b, const Pool *pool, i32 *first) {
    const Pool p = *pool;
    i32 row = block(), layer = block_y(), layers = blocks_y(), seq = b->seqOf[row];
    i32 perHead = p.headBytes / 2, units = 2 * p.kvHeads * perHead;
    const Seq &s = b->seqs[seq];
    if (s.granted) return;
    i32 pos = s.from + row - s.row, index = pos / p.pageSize;
    const Slot &slot = b->slots[s.slots + index];
    Tag wanted = wanted_tag(s, slot), found = p.tags[slot.page];
    if (p.check && !same(found, wanted)) {
        if (thread() == 0) raise(b->fault, FAULT_READ, seq, index, slot.page, found, wanted);
        return;
    }
    u64 at = (u64(layer) * u64(s.rows) + u64(row - s.row)) * u64(2 * units);
    const u16 *mine = reinterpret_cast<const u16 *>(b->scratch + s.scratch + at);
    for (i32 i = thread(); i < units; i += threads()) {
        i32 head = i / perHead, part = head / p.kvHeads;
        const u8 *stored = head_of(p, slot.page, layer, part, head % p.kvHeads) + u64(pos % p.pageSize) * u64(p.headBytes);
        if (mine[i] == reinterpret_cast<const u16 *>(stored)[i % perHead]) continue;
        lower_to(first + seq, ((row - s.row) * layers + layer) * 2 + part);
    }
}
REGISTER(witness)
