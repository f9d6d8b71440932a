// Package wire turns the messages of a hand-off into bytes and back. Bytes that come in are bounded before anything is
// decoded, every string and count has a limit (limits.go), and there is exactly one form for each message: other versions,
// missing or additional fields, trailing bytes and longer spellings of the same value are refused, with the numbers.
//
//	body     = version | msgpack array of the fields in order
//	envelope = version | kind | u32 length | sender (a body) | u32 length | body | signature, 64 bytes
//	frame    = u32 length | header (a body) | sealed bytes          (reply likewise)
//
// Lengths outside msgpack are little endian. Token ids are byte strings of 4 bytes each, little endian.
package wire

import (
	"fmt"

	"quire/kvtransfer"
	"quire/kvtransfer/page"
)

// Encode gives the body of a message struct of kvtransfer (a value or a pointer): all but Frame and Reply, for which there
// are EncodeFrame and EncodeReply. The error says which limit the message breaks.
func Encode(m any) ([]byte, error) {
	p := pointer(m)
	what, fields := describe(p)
	if fields == nil {
		return nil, fmt.Errorf("wire: encode: %T is no message", m)
	}
	b, err := write(what, func(c *codec) { fields(c) })
	if err != nil {
		return nil, err
	}
	if len(b) > MaxMessage {
		return nil, fmt.Errorf("wire: %s: length %d, limit %d", what, len(b), MaxMessage)
	}
	return b, nil
}

// Decode reads a body that Encode made of a T.
func Decode[T any](b []byte) (T, error) {
	var m, none T
	what, fields := describe(&m)
	if fields == nil {
		return none, fmt.Errorf("wire: decode: %T is no message", m)
	}
	if err := read(what, b, fields); err != nil {
		return none, err
	}
	return m, nil
}

// pointer gives the address of a copy of a message that came as a value.
func pointer(m any) any {
	switch v := m.(type) {
	case kvtransfer.Reserve:
		return &v
	case kvtransfer.Reservation:
		return &v
	case kvtransfer.Refused:
		return &v
	case kvtransfer.Job:
		return &v
	case kvtransfer.Claim:
		return &v
	case kvtransfer.Claimed:
		return &v
	case kvtransfer.Gone:
		return &v
	case kvtransfer.Progress:
		return &v
	case kvtransfer.Abort:
		return &v
	case kvtransfer.Cancel:
		return &v
	case kvtransfer.Manifest:
		return &v
	case kvtransfer.ReplyBody:
		return &v
	case kvtransfer.Resend:
		return &v
	case kvtransfer.Resent:
		return &v
	case kvtransfer.Heartbeat:
		return &v
	case kvtransfer.PagesAsk:
		return &v
	case kvtransfer.Pages:
		return &v
	}
	return m
}

// describe finds the name and the fields of a message.
func describe(m any) (string, func(*codec)) {
	switch p := m.(type) {
	case *kvtransfer.Reserve:
		return "reserve", func(c *codec) { reserve(c, p) }
	case *kvtransfer.Reservation:
		return "reservation", func(c *codec) { reservation(c, p) }
	case *kvtransfer.Refused:
		return "refused", func(c *codec) { c.array("refused", 2); key(c, &p.Key); failure(c, &p.Error) }
	case *kvtransfer.Job:
		return "job", func(c *codec) {
			c.array("job", 2)
			c.bytes("reservation", &p.Reservation, MaxMessage)
			c.tokens("tokens", &p.Tokens, MaxTokens)
		}
	case *kvtransfer.Claim:
		return "claim", func(c *codec) { claim(c, p) }
	case *kvtransfer.Claimed:
		return "claimed", func(c *codec) { claimed(c, p) }
	case *kvtransfer.Gone:
		return "gone", func(c *codec) { c.array("gone", 3); key(c, &p.Key); c.fixed("claim", p.Claim[:]); failure(c, &p.Error) }
	case *kvtransfer.Progress:
		return "progress", func(c *codec) {
			c.array("progress", 3)
			key(c, &p.Key)
			c.fixed("claim", p.Claim[:])
			c.num("rows", &p.Rows, MaxRows)
		}
	case *kvtransfer.Abort:
		return "abort", func(c *codec) {
			c.array("abort", 3)
			key(c, &p.Key)
			c.fixed("claim", p.Claim[:])
			failure(c, &p.Error)
		}
	case *kvtransfer.Cancel:
		return "cancel", func(c *codec) { c.array("cancel", 2); key(c, &p.Key); failure(c, &p.Error) }
	case *kvtransfer.Manifest:
		return "manifest", func(c *codec) { manifest(c, p) }
	case *kvtransfer.ReplyBody:
		return "reply body", func(c *codec) { replyBody(c, p) }
	case *kvtransfer.Resend:
		return "resend", func(c *codec) {
			c.array("resend", 3)
			key(c, &p.Key)
			c.number("from", &p.From)
			c.flag("ack", &p.Ack)
		}
	case *kvtransfer.Resent:
		return "resent", func(c *codec) { resent(c, p) }
	case *kvtransfer.Heartbeat:
		return "heartbeat", func(c *codec) { heartbeat(c, p) }
	case *kvtransfer.PagesAsk:
		return "pages ask", func(c *codec) { c.array("pages ask", 1); peer(c, &p.Worker) }
	case *kvtransfer.Pages:
		return "pages", func(c *codec) { pages(c, p) }
	}
	return "", nil
}

func key(c *codec, p *kvtransfer.Key) {
	c.array("key", 2)
	c.fixed("hand-off", p.ID[:])
	c.number("attempt", &p.Attempt)
}

func peer(c *codec, p *kvtransfer.Peer) {
	c.array("peer", 3)
	role := string(p.Role)
	c.slug("role", &role, MaxSlug)
	p.Role = kvtransfer.Role(role)
	c.slug("id", &p.ID, MaxSlug)
	c.wide("epoch", &p.Epoch)
}

func failure(c *codec, p *kvtransfer.Error) {
	c.array("error", 3)
	code := string(p.Code)
	c.text("code", &code, MaxCode)
	p.Code = kvtransfer.Code(code)
	c.text("detail", &p.Detail, MaxDetail)
	c.text("param", &p.Param, MaxParam)
}

func fingerprints(c *codec, p *kvtransfer.Fingerprints) {
	c.array("fingerprints", 3)
	c.fixed("model fingerprint", p.Model[:])
	c.fixed("layout fingerprint", p.Layout[:])
	c.fixed("compute fingerprint", p.Compute[:])
}

func slot(c *codec, p *page.Slot) {
	c.array("slot", 2)
	c.number("page", (*uint32)(&p.Page))
	c.wide("generation", (*uint64)(&p.Gen))
}

func reserve(c *codec, p *kvtransfer.Reserve) {
	c.array("reserve", 11)
	key(c, &p.Key)
	c.slug("tenant", &p.Tenant, MaxTenant)
	c.tokens("tokens", &p.Tokens, MaxTokens)
	c.num("prompt", &p.Prompt, MaxRows)
	c.num("max tokens", &p.MaxTokens, MaxRows)
	c.fixed("digest", p.Digest[:])
	sampling(c, &p.Sampling)
	peer(c, &p.Router)
	c.fixed("router key", p.RouterKey[:])
	c.ticks("deadline left", &p.DeadlineLeft)
	fingerprints(c, &p.Fingerprints)
}

func sampling(c *codec, p *kvtransfer.Sampling) {
	c.array("sampling", 14)
	c.float("temperature", &p.Temperature)
	c.num("top_k", &p.TopK, MaxRows)
	c.float("top_p", &p.TopP)
	c.float("min_p", &p.MinP)
	c.wide("seed", &p.Seed)
	c.float("presence penalty", &p.PresencePenalty)
	c.float("frequency penalty", &p.FrequencyPenalty)
	c.float("repetition penalty", &p.RepetitionPenalty)
	list(c, "logit bias", &p.LogitBias, MaxBias, bias)
	n := int64(p.Logprobs)
	c.whole("logprobs", &n, -1, MaxTop)
	p.Logprobs = int(n)
	list(c, "stop", &p.Stop, MaxStop, func(c *codec, s *string) { c.text("stop", s, MaxStopText) })
	c.tokens("stop tokens", &p.StopTokens, MaxStopTokens)
	c.flag("ignore eos", &p.IgnoreEOS)
	c.num("min tokens", &p.MinTokens, MaxRows)
}

func bias(c *codec, p *kvtransfer.Bias) {
	c.array("bias", 2)
	c.token("token", &p.Token)
	c.float("value", &p.Value)
}

func reservation(c *codec, p *kvtransfer.Reservation) {
	c.array("reservation", 13)
	key(c, &p.Key)
	peer(c, &p.Decode)
	peer(c, &p.Router)
	c.slug("tenant", &p.Tenant, MaxTenant)
	c.num("n", &p.N, MaxRows)
	c.num("c", &p.C, MaxRows)
	c.num("max tokens", &p.MaxTokens, MaxRows)
	c.fixed("digest", p.Digest[:])
	list(c, "pages", &p.Pages, MaxPages, slot)
	c.num("page size", &p.PageSize, MaxRows)
	fingerprints(c, &p.Fingerprints)
	c.ticks("lease", &p.Lease)
	c.fixed("decode key", p.DecodeKey[:])
}

func claim(c *codec, p *kvtransfer.Claim) {
	c.array("claim", 4)
	key(c, &p.Key)
	c.fixed("claim", p.Claim[:])
	c.fixed("claim key", p.ClaimKey[:])
	c.fixed("reservation", p.Reservation[:])
}

func claimed(c *codec, p *kvtransfer.Claimed) {
	c.array("claimed", 4)
	key(c, &p.Key)
	c.fixed("claim", p.Claim[:])
	c.ticks("lease left", &p.LeaseLeft)
	c.ticks("deadline left", &p.DeadlineLeft)
}

func manifest(c *codec, p *kvtransfer.Manifest) {
	c.array("manifest", 10)
	key(c, &p.Key)
	c.fixed("claim", p.Claim[:])
	c.fixed("reservation", p.Reservation[:])
	c.slug("tenant", &p.Tenant, MaxTenant)
	c.num("n", &p.N, MaxRows)
	c.num("c", &p.C, MaxRows)
	c.num("sent", &p.Sent, MaxRows)
	c.num("pages", &p.Pages, MaxRows)
	c.num("frames", &p.Frames, MaxRows)
	c.fixed("digest", p.Digest[:])
}

func replyBody(c *codec, p *kvtransfer.ReplyBody) {
	c.array("reply body", 3)
	if c.optional("outcome", p.Outcome != nil) {
		if p.Outcome == nil {
			p.Outcome = &kvtransfer.Outcome{}
		}
		c.array("outcome", 3)
		c.flag("ok", &p.Outcome.OK)
		failure(c, &p.Outcome.Error)
		peer(c, &p.Outcome.Prefill)
	}
	list(c, "tokens", &p.Tokens, MaxReplyTokens, token)
	if c.optional("end", p.End != nil) {
		if p.End == nil {
			p.End = &kvtransfer.End{}
		}
		end(c, p.End)
	}
}

func token(c *codec, p *kvtransfer.Token) {
	c.array("token", 4)
	c.token("id", &p.ID)
	c.bytes("text", &p.Text, MaxTokenText)
	c.float("logprob", &p.Logprob)
	list(c, "top", &p.Top, MaxTop, func(c *codec, p *kvtransfer.TopLogprob) {
		c.array("top", 2)
		c.token("id", &p.ID)
		c.float("logprob", &p.Logprob)
	})
}

func end(c *codec, p *kvtransfer.End) {
	c.array("end", 7)
	finish := string(p.Finish)
	c.text("finish", &finish, MaxCode)
	p.Finish = kvtransfer.Finish(finish)
	failure(c, &p.Error)
	c.bytes("text", &p.Text, MaxHeldText)
	c.text("stop", &p.Stop, MaxTokenText)
	c.num("prompt", &p.Prompt, MaxRows)
	c.num("output", &p.Output, MaxRows)
	c.number("replies", &p.Replies)
}

func resent(c *codec, p *kvtransfer.Resent) {
	c.array("resent", 4)
	key(c, &p.Key)
	c.flag("known", &p.Known)
	c.number("next", &p.Next)
	list(c, "replies", &p.Replies, MaxReplies, func(c *codec, p *kvtransfer.Reply) {
		c.array("reply", 2)
		replyHeader(c, &p.Header)
		c.bytes("sealed", &p.Sealed, MaxMessage)
	})
}

func heartbeat(c *codec, p *kvtransfer.Heartbeat) {
	c.array("heartbeat", 15)
	peer(c, &p.Peer)
	c.text("model", &p.Model, MaxName)
	c.text("model slug", &p.ModelSlug, MaxName)
	c.text("pool", &p.Pool, MaxName)
	fingerprints(c, &p.Fingerprints)
	c.num("max model len", &p.MaxModelLen, MaxRows)
	c.num("page size", &p.PageSize, MaxRows)
	counts(c, &p.Pages)
	c.num("slots", &p.Slots, MaxRows)
	c.num("slots free", &p.SlotsFree, MaxRows)
	c.num("running", &p.Running, MaxRows)
	c.flag("draining", &p.Draining)
	c.fixed("key", p.Key[:])
	c.text("frames", &p.Frames, MaxName)
	refusals(c, &p.Refused)
}

func refusals(c *codec, p *kvtransfer.Refusals) {
	c.array("refused", 10)
	for _, n := range []*uint64{&p.Unsigned, &p.Reserve, &p.Resend, &p.Claim, &p.Control, &p.Frame, &p.Unopened, &p.Repeated, &p.Manifest, &p.Job} {
		c.wide("refused", n)
	}
}

func counts(c *codec, p *page.Counts) {
	c.array("pages", 7)
	for _, n := range []*int{&p.Total, &p.Free, &p.Reserved, &p.Filling, &p.Owned, &p.Zeroing, &p.Quarantined} {
		c.num("pages", n, MaxRows)
	}
}

func pages(c *codec, p *kvtransfer.Pages) {
	c.array("pages", 5)
	peer(c, &p.Worker)
	c.num("page size", &p.PageSize, MaxRows)
	counts(c, &p.Counts)
	list(c, "owners", &p.Owners, kvtransfer.MaxPageOwners, pageOwner)
	c.num("omitted", &p.Omitted, MaxRows)
}

func pageOwner(c *codec, p *kvtransfer.PageOwner) {
	c.array("owner", 8)
	key(c, &p.Key)
	c.slug("tenant", &p.Tenant, MaxTenant)
	state := int(p.State)
	c.num("state", &state, int(page.Quarantined)+1)
	p.State = page.State(state)
	c.slug("step", &p.Step, MaxSlug)
	c.num("rows", &p.Rows, MaxRows)
	c.num("prompt", &p.Prompt, MaxRows)
	c.num("output", &p.Output, MaxRows)
	list(c, "runs", &p.Runs, kvtransfer.MaxPageRuns, func(c *codec, p *page.Run) {
		c.array("run", 2)
		c.number("from", (*uint32)(&p.From))
		c.number("to", (*uint32)(&p.To))
	})
}
