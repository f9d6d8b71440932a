package kvtransfer

import (
	"fmt"
	"strings"
)

// Class says what the caller does about an error.
type Class uint8

// Classes of error.
const (
	ClassNone    Class = iota
	ClassRefused       // no state taken: try elsewhere, or tell the client
	ClassLost          // state taken and cleaned up: retry as a new attempt
	ClassCorrupt       // at most one new attempt on another prefill; never the same bytes; quarantine, count, report
	ClassFailed        // bus or device: bounded retry, then Lost
	ClassBug           // an invariant broke: the process stops
)

// String gives the class's name as docs/errors.md spells it.
func (c Class) String() string {
	return [...]string{"none", "refused", "lost", "corrupt", "failed", "bug"}[c]
}

// Code names an error; the table below says what it means at each door.
type Code string

// Codes. They are part of every API: never reuse or rename one.
const (
	OK                    Code = ""
	InvalidRequest        Code = "invalid_request"
	UnsupportedField      Code = "unsupported_parameter"
	ContextLengthExceeded Code = "context_length_exceeded"
	PayloadTooLarge       Code = "payload_too_large"
	InvalidAPIKey         Code = "invalid_api_key"
	NotAllowed            Code = "not_allowed"
	ModelNotFound         Code = "model_not_found"
	NotFound              Code = "not_found"
	MethodNotAllowed      Code = "method_not_allowed"
	Overloaded            Code = "rate_limit_exceeded"
	NoPrefill             Code = "no_prefill"
	NoDecode              Code = "no_decode"
	Mismatch              Code = "worker_mismatch"
	BusDown               Code = "bus_unavailable"
	JournalDown           Code = "journal_unavailable"
	Draining              Code = "draining"
	PoolExhausted         Code = "pool_exhausted"
	DeadlineExceeded      Code = "timeout"
	Cancelled             Code = "cancelled"
	ClientGone            Code = "client_gone"
	LeaseExpired          Code = "lease_expired"
	WorkerLost            Code = "worker_lost"
	HandoffCount          Code = "handoff_count"
	HandoffIdentity       Code = "handoff_identity"
	HandoffContent        Code = "handoff_content"
	HandoffTime           Code = "handoff_time"
	HandoffWitness        Code = "handoff_witness"
	HandoffRefused        Code = "handoff_refused"
	PrefillFailed         Code = "prefill_failed"
	DeviceFailed          Code = "device_failed"
	BusFailed             Code = "bus_failed"
	Invariant             Code = "internal_error"
)

// Error is an error that travels. Detail carries the numbers and never a prompt, a token id or KV bytes.
type Error struct {
	Code   Code
	Detail string // "token count: reserved 600, manifest 1"
	Param  string // the request field at fault, if one is
}

// Error gives "kvtransfer: <detail>", or the code where there is no detail.
func (e Error) Error() string {
	if e.Detail == "" {
		return "kvtransfer: " + string(e.Code)
	}
	return "kvtransfer: " + e.Detail
}

// IsZero says that there is no error.
func (e Error) IsZero() bool { return e.Code == OK }

// maxDetail is the most bytes of a Detail that Errorf makes: it wraps texts of other origin, and every error must fit a message.
const maxDetail = 2048

// Errorf makes an Error. A text that is too long ends in "...".
func Errorf(code Code, format string, args ...any) Error {
	d := fmt.Sprintf(format, args...)
	if len(d) > maxDetail {
		d = strings.ToValidUTF8(d[:maxDetail-3], "") + "..."
	}
	return Error{Code: code, Detail: d}
}

// Class looks the error's class up.
func (e Error) Class() Class { return Lookup(e.Code).Class }

// Meaning is one row of the table of errors.
type Meaning struct {
	Code  Code
	Class Class
	HTTP  int    // status at the HTTP door
	NATS  int    // Nats-Service-Error-Code at the NATS door
	Type  string // OpenAI's error type
	Help  string // one line: what to do about it
}

// Table is every error that a client or an operator can see, in the order of docs/errors.md.
var Table = []Meaning{
	{InvalidRequest, ClassRefused, 400, 400, "invalid_request_error", "Mend the field that param names."},
	{UnsupportedField, ClassRefused, 400, 400, "invalid_request_error", "Leave the field out: it would change the answer and Quire does not support it."},
	{ContextLengthExceeded, ClassRefused, 400, 400, "invalid_request_error", "Shorten the prompt or lower max_tokens; the message names the limit and what sets it."},
	{PayloadTooLarge, ClassRefused, 413, 413, "invalid_request_error", "Send less; the message names both sizes."},
	{InvalidAPIKey, ClassRefused, 401, 401, "authentication_error", "Send Authorization: Bearer KEY with a key that the operator gave out."},
	{NotAllowed, ClassRefused, 403, 403, "permission_error", "This key or account may not do that."},
	{ModelNotFound, ClassRefused, 404, 404, "invalid_request_error", "GET /v1/models lists what is served."},
	{NotFound, ClassRefused, 404, 404, "invalid_request_error", "Nothing of that name is here for this tenant."},
	{MethodNotAllowed, ClassRefused, 405, 405, "invalid_request_error", "Use the method that the message names."},
	{Overloaded, ClassRefused, 429, 429, "rate_limit_error", "Wait for Retry-After seconds and try again."},
	{NoPrefill, ClassRefused, 503, 503, "service_unavailable_error", "Start a prefill worker: quire prefill."},
	{NoDecode, ClassRefused, 503, 503, "service_unavailable_error", "Start a decode worker: quire decode."},
	{Mismatch, ClassRefused, 503, 503, "service_unavailable_error", "Prefill and decode differ in model, layout or compute; the message says in which."},
	{BusDown, ClassRefused, 503, 503, "service_unavailable_error", "NATS or JetStream is not reachable; quire doctor says why."},
	{JournalDown, ClassRefused, 503, 503, "service_unavailable_error", "QUIRE_JOURNAL takes no records, so nothing is admitted; quire doctor says why."},
	{Draining, ClassRefused, 503, 503, "service_unavailable_error", "This worker is shutting down; another takes the request."},
	{PoolExhausted, ClassRefused, 503, 503, "service_unavailable_error", "No pages are free just now; the router queues or tries another decode."},
	{DeadlineExceeded, ClassRefused, 504, 504, "timeout_error", "The request's deadline passed; ask for less or raise the deadline."},
	{Cancelled, ClassRefused, 499, 499, "cancelled_error", "The request was cancelled by its tenant."},
	{ClientGone, ClassRefused, 499, 499, "cancelled_error", "The client closed the connection."},
	{LeaseExpired, ClassLost, 503, 503, "service_unavailable_error", "A worker fell silent for a lease; the router made a new attempt until it had none left."},
	{WorkerLost, ClassLost, 503, 503, "service_unavailable_error", "A worker went away with the request; the router made a new attempt until it had none left."},
	{HandoffCount, ClassCorrupt, 500, 500, "server_error", "Tokens, pages or frames of the hand-off do not add up; the journal has the numbers."},
	{HandoffIdentity, ClassCorrupt, 500, 500, "server_error", "The hand-off belongs to another request, attempt, claim, tenant or model."},
	{HandoffContent, ClassCorrupt, 500, 500, "server_error", "A frame or the digest of the hand-off is not what was sent."},
	{HandoffTime, ClassCorrupt, 500, 500, "server_error", "The lease ended, or a page or process changed, before the hand-off was complete."},
	{HandoffWitness, ClassCorrupt, 500, 500, "server_error", "The received pages are not those of this prompt: decode computed other values."},
	{HandoffRefused, ClassCorrupt, 500, 500, "server_error", "Decode refused the pages of this request; the journal says why."},
	{PrefillFailed, ClassLost, 503, 503, "service_unavailable_error", "Prefill could not serve the request; its reason is in the message."},
	{DeviceFailed, ClassFailed, 503, 503, "service_unavailable_error", "A compute step failed; quire doctor checks the device."},
	{BusFailed, ClassFailed, 503, 503, "service_unavailable_error", "A message could not be stored or delivered; quire doctor checks the bus."},
	{Invariant, ClassBug, 500, 500, "server_error", "An invariant broke and the process stopped; report it with the journal of this request."},
}

// Lookup finds a code's meaning; an unknown code means a Bug.
func Lookup(c Code) Meaning {
	for _, m := range Table {
		if m.Code == c {
			return m
		}
	}
	if c == OK {
		return Meaning{}
	}
	return Meaning{Code: c, Class: ClassBug, HTTP: 500, NATS: 500, Type: "server_error", Help: "Unknown code."}
}
