// Package openai holds the types and the validation of the OpenAI-compatible API, for the HTTP and the NATS door alike.
//
// It is pure: bytes in, a Request or a kvtransfer.Error out; tokens in, JSON out. Every field of a body is in one of three
// lists: served, ignored (harmless: the answer is the same without it) and refused (it would change the answer and is not
// supported; its neutral values are let pass). Anything else is a 400 that names the field. docs/api.md prints the lists, and a
// test keeps the two equal.
package openai
