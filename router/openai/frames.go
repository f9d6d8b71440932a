package openai

import "quire/kvtransfer"

// The frames of a streamed answer over NATS. Every frame has HeaderFrame; chunks have HeaderSeq too, from 0 without a gap. The
// body of a chunk is the JSON that the HTTP door sends as one event. A stream is complete only when its final frame has come
// and counts as many chunks as arrived; then an empty message without headers follows.
const (
	HeaderFrame   = "Quire-Frame"
	HeaderSeq     = "Quire-Seq"
	HeaderTimeout = "Quire-Timeout" // of a request: seconds that it may take
	HeaderRequest = "Quire-Request-Id"
	HeaderTrace   = "Quire-Trace-Id" // of an answer: the trace to look for, 32 hexadecimal digits

	FrameStatus    = "status"     // the request was received and queued; no part of the answer
	FrameChunk     = "chunk"      // a part of the answer
	FrameKeepAlive = "keep-alive" // nothing new yet
	FrameFinal     = "final"      // the end, with what must have arrived
)

// StatusFrame is the body of a status frame.
type StatusFrame struct {
	Type string `json:"type"` // FrameStatus
	Data string `json:"data"` // "received"
	ID   string `json:"id"`   // for cancel and status
}

// KeepAliveFrame is the body of a keep-alive.
type KeepAliveFrame struct {
	Type string `json:"type"` // FrameKeepAlive
}

// FinalFrame is the body of a final frame.
type FinalFrame struct {
	Type         string `json:"type"` // FrameFinal
	ID           string `json:"id"`
	FinishReason string `json:"finish_reason"`
	Usage        Usage  `json:"usage"`
	Frames       int    `json:"frames"` // chunks before this
	Digest       string `json:"digest"` // SHA-256 over the chunks' bodies in order, hexadecimal
}

// IDRequest is the body of cancel and status.
type IDRequest struct {
	ID string `json:"id"`
}

// Cancelled answers a cancel.
type Cancelled struct {
	ID        string `json:"id"`
	Cancelled bool   `json:"cancelled"`
}

// ParseID validates the body of cancel and status. Ids of answers, with their prefix, are taken too.
func ParseID(body []byte) (string, error) {
	members, err := object("body", body)
	if err != nil {
		return "", *err
	}
	id := ""
	for _, m := range members {
		if m.name != "id" {
			return "", *fault(clip(m.name), "unknown field")
		}
		if id, err = asString("id", m.raw); err != nil {
			return "", *err
		}
	}
	return BareID(id)
}

// BareID takes the prefix off the id of an answer. Nothing but one whole id names a request.
func BareID(id string) (string, error) {
	for _, prefix := range []string{"chatcmpl-", "cmpl-"} {
		if len(id) > len(prefix) && id[:len(prefix)] == prefix {
			id = id[len(prefix):]
			break
		}
	}
	if id == "" || len(id) > MaxNameBytes {
		return "", *fault("id", "%d bytes, want 1 to %d", len(id), MaxNameBytes)
	}
	return id, nil
}

// AnswerID is the id of an answer: the request's own behind a prefix that names the operation.
func AnswerID(op Op, request string) string {
	if op == OpChat {
		return "chatcmpl-" + request
	}
	return "cmpl-" + request
}

// Parse validates the body of a chat or a completion.
func Parse(op Op, body []byte, rules Rules) (Request, error) {
	if op == OpChat {
		return ParseChat(body, rules)
	}
	return ParseCompletion(body, rules)
}

// Final makes the body of a final frame.
func Final(id string, end kvtransfer.End, frames int, digest string) []byte {
	return encode(FinalFrame{Type: FrameFinal, ID: id, FinishReason: string(end.Finish), Usage: UsageOf(end), Frames: frames, Digest: digest})
}
