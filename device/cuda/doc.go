// Package cuda is the device for NVIDIA GPUs. It is there when built with the tag cuda on Linux; without the tag New says so.
//
// The kernels (kernel/*.cu) are CUDA C, compiled beforehand to the PTX that is embedded here. The driver library is opened when a
// device is asked for (libcuda/), so a tagged binary starts on machines without any NVIDIA file. emulator/ is a driver library for
// tests that runs the same kernels on the CPU.
//
// # Order of summation
//
// A row's bits depend on its inputs alone, as package device demands:
//
//   - Matrix products run in segments of 256 columns, each one chain of fused multiply-adds over the dequantised weight, columns
//     ascending; the segments' sums are added ascending. Few rows (matvec) and many (matmul) share that order.
//   - Attention runs in splits of 256 absolute positions, each in tiles of 64 with an online softmax, and joins the splits
//     ascending. Whether a split has a block of its own (decode) or all splits have one (prefill), the order is the same.
//   - RMSNorm sums in 128 lanes, element i in lane i mod 128, folded in halves.
//
// # Streams
//
// Steps run on one stream, one at a time; frames come in on a second one and leave on a third, from and to pinned buffers. A call
// returns when its work has ended on the device, so whatever a caller orders behind a call (decode's kernels behind the gate's
// verdict, the verdict behind the copies) is ordered on the device.
//
// # Owner tags
//
// Every page has a tag in device memory: hand-off, attempt, generation. It is set before the page is first written, compared by
// every kernel that reads or writes the page, and cleared with it. A page of another owner is a device.Fault.
package cuda
