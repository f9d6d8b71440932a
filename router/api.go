package router

import (
	"context"
	"time"

	"quire/kvtransfer"
	"quire/router/openai"
	"quire/trace"
)

// Backend is what a door stands on. A Service is one; tests put a fake there. Every error is a kvtransfer.Error, or a Rejected around one.
type Backend interface {
	// Submit admits a request and queues it. An error is the request's end: nothing was taken. The end of ctx means that the
	// client is gone, and cancels.
	Submit(ctx context.Context, r Request) (Stream, error)
	// Cancel ends a request by its exact id. NotFound unless it lives and belongs to this tenant; other routers are asked.
	Cancel(ctx context.Context, tenant, id string) error
	// Status tells how far a request is, by the same rules as Cancel.
	Status(ctx context.Context, tenant, id string) (Status, error)
	// Tokenize and Detokenize use the tokenizer of the model that is served.
	Tokenize(r openai.TokenizeRequest) (openai.Tokenized, error)
	Detokenize(ids []int32) (string, error)
	// Model describes what is served, with the limits of this moment.
	Model() openai.Model
	// Rules is what validation needs.
	Rules() openai.Rules
	// Piece gives a token's own bytes.
	Piece(id int32) []byte
	// Health says what works and what is missing.
	Health() Health
}

// Request is a validated request of one tenant.
type Request struct {
	Tenant   string        // slug
	Label    string        // the client's own id; never used to find anything
	Deadline time.Duration // from now; 0 = the service's default
	Body     openai.Request
	Trace    trace.Context // below which its spans are; the zero value begins a trace
}

// Stream is the answer of one request as it comes. Next and Close may be called from different goroutines.
type Stream interface {
	// ID names the request and the router that owns it: <router>-<epoch>-<32 hex digits>.
	ID() string
	// Next waits for what comes next. The first Part has Started: the gate and the witness let the request run, and a status may
	// be sent. An error (as of Backend) is the end; so is a Part with End. After the end Next gives io.EOF. When ctx
	// ends first, its own error comes back, nothing is lost, and Next may be called again.
	Next(ctx context.Context) (Part, error)
	// Close gives up: a request that has not ended is cancelled. It may be called more than once.
	Close()
}

// Part is one step of an answer.
type Part struct {
	Started bool
	Tokens  []kvtransfer.Token
	End     *kvtransfer.End // set in the last one
}

// Status is how far a request is.
type Status struct {
	ID       string `json:"id"`
	State    string `json:"state"` // queued, reserving, storing, prefill, running
	Prompt   int    `json:"prompt_tokens"`
	Output   int    `json:"completion_tokens"`
	Attempts int    `json:"attempts"`
}

// Health says whether a router works and what it lacks.
type Health struct {
	Stuck   string   // not "": no progress though there is work; /health fails and says this
	Missing []string // "bus", "prefill", "decode", ...: /ready fails and names them
	Off     string   // "journal" where nothing is recorded: /health and /ready say so
}
