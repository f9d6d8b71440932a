package router

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"quire/bus"
	"quire/kvtransfer"
	"quire/kvtransfer/seal"
	"quire/kvtransfer/wire"
)

// Operations on a request that lives in some router.
const (
	opCancel = "cancel"
	opStatus = "status"
)

// asked is what one router tells another.
type asked struct {
	Found  bool   `json:"found"`
	Status Status `json:"status"`
}

// Cancel implements Backend.
func (s *Service) Cancel(ctx context.Context, tenant, id string) error {
	_, err := s.ofRequest(ctx, opCancel, tenant, id)
	return err
}

// Status implements Backend.
func (s *Service) Status(ctx context.Context, tenant, id string) (Status, error) {
	return s.ofRequest(ctx, opStatus, tenant, id)
}

// ofRequest asks the router that owns a request: the id names it.
func (s *Service) ofRequest(ctx context.Context, op, tenant, text string) (Status, error) {
	none := kvtransfer.Errorf(kvtransfer.NotFound, "router: no such request of this tenant lives")
	none.Param = "id"
	router, epoch, id, ok := parseID(text)
	if !ok {
		e := kvtransfer.Errorf(kvtransfer.InvalidRequest, "router: id: want <router>-<epoch>-<32 hexadecimal digits>, got %d bytes", len(text))
		e.Param = "id"
		return Status{}, e
	}
	var a asked
	var err error
	if router == s.peer.ID && epoch == s.peer.Epoch {
		a, err = s.askSelf(ctx, op, tenant, id)
	} else {
		a, err = s.askRouter(ctx, op, tenant, kvtransfer.Peer{Role: kvtransfer.RoleRouter, ID: router, Epoch: epoch}, id)
	}
	if err != nil {
		return Status{}, err
	}
	if !a.Found {
		return Status{}, none
	}
	a.Status.ID = text
	return a.Status, nil
}

// askSelf asks the loop.
func (s *Service) askSelf(ctx context.Context, op, tenant string, id kvtransfer.HandoffID) (asked, error) {
	answer := make(chan Effect, 1)
	s.mu.Lock()
	s.lastRef++
	ref := s.lastRef
	s.asks[ref] = answer
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.asks, ref)
		s.mu.Unlock()
	}()
	var ev Event = CancelAsked{Ask: ref, Tenant: tenant, ID: id}
	if op == opStatus {
		ev = StatusAsked{Ask: ref, Tenant: tenant, ID: id}
	}
	s.post(ev)
	select {
	case fx := <-answer:
		switch e := fx.(type) {
		case CancelAnswered:
			return asked{Found: e.Found}, nil
		case StatusAnswered:
			return asked{Found: e.Found, Status: e.Status}, nil
		}
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return asked{}, kvtransfer.Errorf(kvtransfer.Draining, "router: stopped")
}

func (s *Service) answer(ref uint64, fx Effect) {
	s.mu.Lock()
	answer := s.asks[ref]
	s.mu.Unlock()
	if answer != nil {
		answer <- fx // holds one, and one is sent
	}
}

// askRouter asks another router. The question is a signed Cancel: its key names the hand-off, Error.Param the tenant; the
// subject says which operation. The answer is one too, with JSON in Error.Detail.
func (s *Service) askRouter(ctx context.Context, op, tenant string, to kvtransfer.Peer, id kvtransfer.HandoffID) (asked, error) {
	b, err := s.sign(kvtransfer.KindCancel, kvtransfer.Cancel{Key: kvtransfer.Key{ID: id}, Error: kvtransfer.Error{Code: kvtransfer.Cancelled, Param: tenant}})
	if err != nil {
		return asked{}, kvtransfer.Errorf(kvtransfer.InvalidRequest, "router: %v", err)
	}
	subject := s.cfg.Names.Router(to.ID, to.Epoch, op)
	if err := bus.CheckSubject(subject); err != nil {
		return asked{}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	msg, err := s.cfg.Bus.Request(ctx, subject, b)
	if errors.Is(err, bus.ErrNoResponders) {
		return asked{}, nil // that router is gone, and its requests with it
	}
	if err != nil {
		return asked{}, kvtransfer.Errorf(kvtransfer.BusFailed, "router: ask %s: %v", to, err)
	}
	env, err := seal.OpenEnvelope(s.cfg.Keys, msg.Data)
	if err != nil || env.From != to || env.Kind != kvtransfer.KindCancel {
		return asked{}, kvtransfer.Errorf(kvtransfer.BusFailed, "router: ask %s: the answer is not its own", to)
	}
	m, err := wire.Decode[kvtransfer.Cancel](env.Body)
	var a asked
	if err == nil {
		err = json.Unmarshal([]byte(m.Error.Detail), &a)
	}
	if err != nil || m.Key.ID != id {
		return asked{}, kvtransfer.Errorf(kvtransfer.BusFailed, "router: ask %s: the answer cannot be read", to)
	}
	return a, nil
}

// onRouterAsk answers another router.
func (s *Service) onRouterAsk(m bus.Msg) {
	env, err := seal.OpenEnvelope(s.cfg.Keys, m.Data)
	if err != nil || env.Kind != kvtransfer.KindCancel || env.From.Role != kvtransfer.RoleRouter || m.Reply == "" {
		s.meter.ignored.Inc()
		return
	}
	q, err := wire.Decode[kvtransfer.Cancel](env.Body)
	if err != nil {
		s.meter.ignored.Inc()
		return
	}
	op := opCancel
	if m.Subject == s.cfg.Names.Router(s.peer.ID, s.peer.Epoch, opStatus) {
		op = opStatus
	}
	s.wg.Go(func() {
		ctx, cancel := context.WithTimeout(s.ctx, time.Second)
		defer cancel()
		a, err := s.askSelf(ctx, op, q.Error.Param, q.Key.ID)
		if err != nil {
			return
		}
		text, _ := json.Marshal(a) // of two plain structs
		b, err := s.sign(kvtransfer.KindCancel, kvtransfer.Cancel{Key: q.Key, Error: kvtransfer.Error{Code: kvtransfer.Cancelled, Detail: string(text)}})
		if err == nil {
			_ = s.cfg.Bus.Publish(m.Reply, nil, b)
		}
	})
}
