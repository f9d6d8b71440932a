package bus

import (
	"fmt"

	"quire/kvtransfer"
)

// Names builds subjects and stream names under one prefix. Ids are slugs; a handoff is "<id>-<attempt>".
type Names struct {
	Prefix string // default "quire"
}

// API is the subject of an operation as services listen to it: quire.v1.<tenant>.<op>. Tenant "*" listens to all.
func (n Names) API(tenant, op string) string {
	return fmt.Sprintf("%s.v1.%s.%s", n.prefix(), tenant, op)
}

// Reserve and Resend are request subjects of one decode epoch.
func (n Names) Reserve(decode string, epoch uint64) string {
	return fmt.Sprintf("%s.decode.%s.%d.reserve", n.prefix(), decode, epoch)
}

// Resend is where a router asks for replies again.
func (n Names) Resend(decode string, epoch uint64) string {
	return fmt.Sprintf("%s.decode.%s.%d.resend", n.prefix(), decode, epoch)
}

// Pages is where one epoch of a prefill or decode worker says who has which of its pages.
func (n Names) Pages(role, id string, epoch uint64) string {
	return fmt.Sprintf("%s.%s.%s.%d.pages", n.prefix(), role, id, epoch)
}

// Router is a request subject of one router epoch; op is cancel or status.
func (n Names) Router(router string, epoch uint64, op string) string {
	return fmt.Sprintf("%s.router.%s.%d.%s", n.prefix(), router, epoch, op)
}

// Job is where a job waits for any prefill worker of a model and pool.
func (n Names) Job(model, pool, handoff string) string {
	return n.JobFor(model, pool, kvtransfer.AnyWorker, handoff)
}

// JobFor is where a job waits for one prefill worker alone: another attempt's pages were refused, and this one is to try.
func (n Names) JobFor(model, pool, worker, handoff string) string {
	return fmt.Sprintf("%s.job.%s.%s.%s.%s", n.prefix(), model, pool, worker, handoff)
}

// Control is where one epoch of one process gets the control messages of a hand-off.
func (n Names) Control(role, id string, epoch uint64, handoff string) string {
	return fmt.Sprintf("%s.ctl.%s.%s.%d.%s", n.prefix(), role, id, epoch, handoff)
}

// KV is where a decode epoch gets the frames and the manifest of a hand-off.
func (n Names) KV(decode string, epoch uint64, handoff string) string {
	return fmt.Sprintf("%s.kv.%s.%d.%s", n.prefix(), decode, epoch, handoff)
}

// Reply is where a router epoch gets the numbered replies of a hand-off.
func (n Names) Reply(router string, epoch uint64, handoff string) string {
	return fmt.Sprintf("%s.reply.%s.%d.%s", n.prefix(), router, epoch, handoff)
}

// Journal is where a fact is recorded.
func (n Names) Journal(kind, service string) string {
	return fmt.Sprintf("%s.journal.%s.%s", n.prefix(), kind, service)
}

// Heartbeat is where a process says that it lives.
func (n Names) Heartbeat(role, id string) string {
	return fmt.Sprintf("%s.hb.%s.%s", n.prefix(), role, id)
}
