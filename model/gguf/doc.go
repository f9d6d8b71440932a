// Package gguf reads GGUF files of version 3 (and 2, whose layout is the same): metadata, and where each tensor lies.
//
// A file is a header, key/value pairs, tensor descriptions, and aligned tensor data:
//
//	"GGUF" u32 version  u64 tensors  u64 pairs
//	pair:    string key  u32 type  value            string: u64 length, bytes
//	tensor:  string name  u32 dims  u64 dim[dims] (innermost first)  u32 type  u64 offset (from the start of the data)
//
// Every count and length is checked against the bytes that are left before anything is allocated for it, so a file that
// lies about its sizes is an error, not an allocation. Tensor data is never read here, only sliced.
package gguf
