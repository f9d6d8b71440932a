package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"time"

	"quire/bus"
	"quire/bus/jet"
	"quire/router/openai"
)

const connectTime = 5 * time.Second

// natsDoor speaks the NATS door's operations.
type natsDoor struct {
	conn     *jet.Conn
	names    bus.Names
	accounts bool
}

// newNATSDoor connects as a client: it needs no JetStream.
func newNATSDoor(f busFlags, accounts bool) (*natsDoor, error) {
	o := f.options()
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	names := bus.Names{Prefix: o.Prefix}
	conn, err := jet.Connect(ctx, jet.ConnectOptions{URLs: o.URLs, Name: "quire chat", Creds: o.Creds, NKey: o.NKey, User: o.User,
		Password: o.Password, Token: o.Token, TLSCA: o.CA, TLSCert: o.Cert, TLSKey: o.CertKey, Context: o.Context, InboxPrefix: o.Inbox, Names: names, Plain: true})
	if err != nil {
		return nil, err
	}
	return &natsDoor{conn, names, accounts}, nil
}

func (n *natsDoor) name() string { return n.conn.Limits().URL }
func (n *natsDoor) close()       { _ = n.conn.Close() } // nothing is left to be sent

// subject is that of tenant default; in an account of a tenant's own the server puts the tenant there.
func (n *natsDoor) subject(op string) string {
	if n.accounts {
		return n.names.Prefix + ".v1." + op
	}
	return n.names.API("default", op)
}

func (n *natsDoor) models(ctx context.Context) ([]served, error) {
	m, err := n.conn.Request(ctx, n.subject("models"), nil)
	if err != nil {
		return nil, hint(err)
	}
	if e := bus.AsServiceError(m); e != nil {
		return nil, serviceError(e)
	}
	var list struct {
		Data []served `json:"data"`
	}
	if err := json.Unmarshal(m.Data, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", m.Subject, err)
	}
	return list.Data, nil
}

func (n *natsDoor) chat(ctx context.Context, q question, fn func(string)) (ending, error) {
	q.Stream, q.Options = true, &options{IncludeUsage: true}
	body, err := json.Marshal(q)
	if err != nil {
		return ending{}, err
	}
	f := frameReader{fn: fn, digest: sha256.New()}
	if err := n.conn.Stream(ctx, bus.Ask{Subject: n.subject("chat"), Data: body}, f.take); err != nil {
		return f.end, hint(err)
	}
	if !f.final {
		return f.end, errCut
	}
	return f.end, nil
}

// frameReader reads the frames of one answer: chunks are numbered without a gap, and the final frame counts and digests them.
type frameReader struct {
	fn     func(string)
	end    ending
	next   int
	digest hash.Hash
	final  bool
}

func (f *frameReader) take(m bus.Msg) error {
	switch header(m, openai.HeaderFrame) {
	case openai.FrameChunk:
		if seq := header(m, openai.HeaderSeq); seq != strconv.Itoa(f.next) {
			return fmt.Errorf("%w: frame %s came when %d was next", errCut, seq, f.next)
		}
		f.next++
		f.digest.Write(m.Data)
		var c chunk
		if err := json.Unmarshal(m.Data, &c); err != nil {
			return fmt.Errorf("frame %d: %w", f.next-1, err)
		}
		f.end.take(c, f.fn)
	case openai.FrameFinal:
		return f.last(m.Data)
	}
	return nil // status, keep-alive and kinds that are not known yet
}

func (f *frameReader) last(data []byte) error {
	var end struct {
		Finish string     `json:"finish_reason"`
		Usage  usageCount `json:"usage"`
		Frames int        `json:"frames"`
		Digest string     `json:"digest"`
	}
	if err := json.Unmarshal(data, &end); err != nil {
		return fmt.Errorf("final frame: %w", err)
	}
	if sum := hex.EncodeToString(f.digest.Sum(nil)); end.Frames != f.next || end.Digest != sum {
		return fmt.Errorf("%w: %d frames came, %d were sent", errCut, f.next, end.Frames)
	}
	f.end, f.final = ending{end.Finish, end.Usage}, true
	return nil
}

func header(m bus.Msg, name string) string {
	if v := m.Header[name]; len(v) > 0 {
		return v[0]
	}
	return ""
}

// serviceError turns error headers into what the HTTP door would have said.
func serviceError(e *bus.ServiceError) error {
	var body struct {
		Error *apiError `json:"error"`
	}
	if json.Unmarshal(e.Data, &body) == nil && body.Error != nil {
		body.Error.Status = e.Code
		return body.Error
	}
	return &apiError{Status: e.Code, Message: e.Text}
}

// hint says what to do about errors that a person meets first.
func hint(err error) error {
	var e *bus.ServiceError
	switch {
	case errors.As(err, &e):
		return serviceError(e)
	case errors.Is(err, bus.ErrNoResponders):
		return fmt.Errorf("%w (no router listens there: quire router, or quire up)", err)
	}
	return err
}
