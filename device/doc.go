// Package device is the compute interface between a model and what computes it.
//
// A Device owns its memory and its workers. A model packs its weights into Matrices once, keeps working values in Buffers, and
// keys and values in the pages of a Pool. It then runs Steps: a Step is a Batch (which rows of which sequences, with their page
// tables) and a recorded list of Ops, each over all rows of the batch, executed in order, each seeing what the ones before it
// wrote. Steps from any goroutine are queued and run one at a time; nothing is called per token or per layer from outside.
//
// Pages are reached through page.View (rows that may be read) and page.Grant (rows that may be written) only. A device refuses
// zero values, those of another pool, and ranges beyond them, before it computes anything.
//
// # Order of summation
//
// A row of a result depends on that row's inputs and on nothing else, bit for bit within one variant: not on how many rows are
// computed together, on how they are tiled or split among workers, on chunks, or on the page size.
//
//   - Matrix products run over K ascending. With F32 activations each output is one chain of multiply-adds over the dequantised
//     weight; with int8 activations each block of 32 is summed exactly in integers, then scaled and added to the chain (in Q6_K,
//     some variants add each half of a block by itself).
//   - Attention runs over tiles of 64 absolute positions, ascending, with an online softmax, the same way for one row as for a
//     long chunk, and reads keys and values as stored, those of its own chunk too.
//   - Sums along a row (RMSNorm, softmax) use 8 lanes, element i in lane i mod 8, folded as (0+4)+(2+6) + (1+5)+(3+7).
//
// That is the CPU's order. A GPU cuts columns and positions into segments of fixed size as well (package cuda says how), so its last
// bits are others, and its compute fingerprint too.
//
// # Pages
//
// The order of bytes in a frame, and of Pool.Read and Pool.Write, is [layers][rows][2: K, V][kvHeads][headDim], a head of Q8_0
// being headDim/32 blocks. How a device lays out its pages is its own affair.
package device
