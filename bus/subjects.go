package bus

import (
	"strconv"

	"quire/kvtransfer"
)

// Names builds subjects and stream names under one prefix. Ids are slugs; a handoff is "<id>-<attempt>".
type Names struct {
	Prefix string // default "quire"
}

// API is the subject of an operation as services listen to it: quire.v1.<tenant>.<op>. Tenant "*" listens to all.
func (n Names) API(tenant, op string) string {
	return n.prefix() + ".v1." + tenant + "." + op
}

// Reserve and Resend are request subjects of one decode epoch.
func (n Names) Reserve(decode string, epoch uint64) string {
	return n.prefix() + ".decode." + decode + "." + decimal(epoch) + ".reserve"
}

// Resend is where a router asks for replies again.
func (n Names) Resend(decode string, epoch uint64) string {
	return n.prefix() + ".decode." + decode + "." + decimal(epoch) + ".resend"
}

// Pages is where one epoch of a prefill or decode worker says who has which of its pages.
func (n Names) Pages(role, id string, epoch uint64) string {
	return n.prefix() + "." + role + "." + id + "." + decimal(epoch) + ".pages"
}

// Router is a request subject of one router epoch; op is cancel or status.
func (n Names) Router(router string, epoch uint64, op string) string {
	return n.prefix() + ".router." + router + "." + decimal(epoch) + "." + op
}

// Job is where a job waits for any prefill worker of a model and pool.
func (n Names) Job(model, pool, handoff string) string {
	return n.JobFor(model, pool, kvtransfer.AnyWorker, handoff)
}

// JobFor is where a job waits for one prefill worker alone: another attempt's pages were refused, and this one is to try.
func (n Names) JobFor(model, pool, worker, handoff string) string {
	return n.prefix() + ".job." + model + "." + pool + "." + worker + "." + handoff
}

// Control is where one epoch of one process gets the control messages of a hand-off.
func (n Names) Control(role, id string, epoch uint64, handoff string) string {
	return n.prefix() + ".ctl." + role + "." + id + "." + decimal(epoch) + "." + handoff
}

// KV is where a decode epoch gets the frames and the manifest of a hand-off.
func (n Names) KV(decode string, epoch uint64, handoff string) string {
	return n.prefix() + ".kv." + decode + "." + decimal(epoch) + "." + handoff
}

// Reply is where a router epoch gets the numbered replies of a hand-off.
func (n Names) Reply(router string, epoch uint64, handoff string) string {
	return n.prefix() + ".reply." + router + "." + decimal(epoch) + "." + handoff
}

// Journal is where a fact is recorded.
func (n Names) Journal(kind, service string) string {
	return n.prefix() + ".journal." + kind + "." + service
}

// Heartbeat is where a process says that it lives.
func (n Names) Heartbeat(role, id string) string {
	return n.prefix() + ".hb." + role + "." + id
}

func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
