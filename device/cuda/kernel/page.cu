// Frames and pages: rows in the order of a frame [layers][rows][2: K, V][kvHeads] heads to and from a sequence's pages.
//
// Shapes: frame [to-from layers][rows] rows of 2*kvHeads heads; the one sequence of the batch has the rows.
// Grid: (rows, layers) blocks of 128 threads. Shared memory: none. A thread owns units 128 apart: words of
// 16 bytes, or of 2 where heads are Q8_0.
// page_out compares the tag of every page that it reads; page_in writes nothing after a fault of tag_pages.
// Oracle: device/cpu, readRow and writeRow.
#include "quire.cuh"

// unit_of is the i-th unit of a row: its bytes in a page.
template <class U> FN U *unit_of(const Pool &p, u32 page, i32 layer, i32 slot, i32 i) {
    i32 perHead = p.headBytes / i32(sizeof(U)), head = i / perHead;
    u8 *at = head_of(p, page, layer, head / p.kvHeads, head % p.kvHeads) + u64(slot) * u64(p.headBytes);
    return reinterpret_cast<U *>(at) + i % perHead;
}

template <class U> FN void copy_row(const Pool &p, u32 page, i32 layer, i32 slot, u8 *frame, bool in) {
    i32 units = 2 * p.kvHeads * p.headBytes / i32(sizeof(U));
    U *row = reinterpret_cast<U *>(frame + (u64(block_y()) * u64(blocks()) + u64(block())) * u64(2 * p.kvHeads * p.headBytes));
    for (i32 i = thread(); i < units; i += threads()) {
        U *u = unit_of<U>(p, page, layer, slot, i);
        if (in)
            *u = row[i];
        else
            row[i] = *u;
    }
}

KERNEL(page_in, 128)(const Batch *b, const Pool *pool, u8 *frame, i32 layerFrom) {
    if (faulted(b->fault)) return;
    const Pool p = *pool;
    const Seq &s = b->seqs[0];
    i32 pos = s.from + block();
    u32 page = b->slots[s.slots + pos / p.pageSize].page;
    if (p.type == KV_Q8_0)
        copy_row<u16>(p, page, layerFrom + block_y(), pos % p.pageSize, frame, true);
    else
        copy_row<u32x4>(p, page, layerFrom + block_y(), pos % p.pageSize, frame, true);
}
REGISTER(page_in)

KERNEL(page_out, 128)(const Batch *b, const Pool *pool, u8 *frame, i32 layerFrom) {
    const Pool p = *pool;
    const Seq &s = b->seqs[0];
    i32 pos = s.from + block();
    const Slot &slot = b->slots[s.slots + pos / p.pageSize];
    Tag wanted = wanted_tag(s, slot), found = p.tags[slot.page];
    if (p.check && !same(found, wanted)) {
        if (thread() == 0) raise(b->fault, FAULT_READ, 0, pos / p.pageSize, slot.page, found, wanted);
        return;
    }
    if (p.type == KV_Q8_0)
        copy_row<u16>(p, slot.page, layerFrom + block_y(), pos % p.pageSize, frame, false);
    else
        copy_row<u32x4>(p, slot.page, layerFrom + block_y(), pos % p.pageSize, frame, false);
}
REGISTER(page_out)
