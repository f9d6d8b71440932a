package bus

import "quire/kvtransfer"

// Permissions are what one user of the server may do inside Quire's account: subjects, with wildcards.
type Permissions struct {
	Publish     []string
	PublishDeny []string // of Publish
	Subscribe   []string
	Answers     bool   // may answer each request that it gets, once
	Inbox       string // prefix of this user's inboxes: nobody else may subscribe below it
}

// Users of Quire's account beside the roles of kvtransfer.
const (
	UserBus     = "bus"     // the bus role: makes the shared streams; everything
	UserAuditor = "auditor" // reads the journal: quire replay, quire audit
)

// Users lists the users of Quire's account.
func Users() []string {
	return []string{UserBus, string(kvtransfer.RoleRouter), string(kvtransfer.RolePrefill), string(kvtransfer.RoleDecode), UserAuditor}
}

// Permissions says what a user may do; false for a name that is none of Users.
//
// Frames are read through consumers of decode's KV streams, so no one but decode may make or pull from consumers of any
// stream but those named here. A stream's name holds an id and an epoch and wildcards stand for whole tokens, so one decode
// could pull another's frames: those are sealed for the other. The journal is read by the auditor alone.
func (n Names) Permissions(user string) (Permissions, bool) {
	p := Permissions{Inbox: "_INBOX_" + user, Subscribe: []string{"_INBOX_" + user + ".>"}}
	q := n.prefix()
	switch user {
	case UserBus:
		p.Publish, p.Subscribe = []string{">"}, []string{">"}
		return p, true
	case string(kvtransfer.RoleRouter):
		n.joins(&p, user)
		p.publish(q+".job.>", q+".ctl.decode.>", q+".decode.*.*.*", q+".prefill.*.*.pages", q+".router.*.*.*", "_R_.>",
			"$JS.API.STREAM.NAMES", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.MSG.DELETE."+n.JobsStream())
		p.PublishDeny = n.kept("$JS.API.STREAM.DELETE.")
		p.subscribe(q+".v1.*.*", q+".reply.*.*.*", q+".router.*.*.*", "$SRV.>")
	case string(kvtransfer.RolePrefill):
		n.joins(&p, user)
		p.publish(q+".kv.*.*.*", q+".ctl.decode.>")
		p.reads(n.JobsStream(), q+".job.>")
		p.reads(n.ControlStream(), q+".ctl.prefill.>")
		p.subscribe(q + ".prefill.*.*.pages")
	case string(kvtransfer.RoleDecode):
		n.joins(&p, user)
		p.publish(q+".reply.*.*.*", q+".ctl.prefill.>", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.CREATE.*", "$JS.API.STREAM.DELETE.*", "$JS.API.STREAM.PURGE.*", "$JS.API.STREAM.INFO.*")
		p.publish("$JS.API.CONSUMER.CREATE.*.*."+q+".kv.>", "$JS.API.CONSUMER.INFO.*.*", "$JS.API.CONSUMER.MSG.NEXT.*.*", "$JS.API.CONSUMER.DELETE.*.*", "$JS.ACK.>")
		p.reads(n.ControlStream(), q+".ctl.decode.>")
		for _, api := range []string{"$JS.API.STREAM.DELETE.", "$JS.API.STREAM.PURGE."} {
			p.PublishDeny = append(p.PublishDeny, n.kept(api)...)
		}
		for _, s := range []string{n.JobsStream(), n.JournalStream(), n.TapeStream()} {
			p.PublishDeny = append(p.PublishDeny, "$JS.API.CONSUMER.MSG.NEXT."+s+".*", "$JS.ACK."+s+".>")
		}
		p.subscribe(q + ".decode.*.*.*")
	case UserAuditor:
		p.reads(n.JournalStream(), q+".journal.>")
		p.publish("$JS.API.INFO", "$JS.API.CONSUMER.CREATE."+n.JournalStream()+".>")
	default:
		return Permissions{}, false
	}
	return p, true
}

// joins lets a role take part: make the shared streams and its consumers, take an epoch and watch it, live, and write facts.
func (n Names) joins(p *Permissions, role string) {
	q, bucket := n.prefix(), "KV_"+n.EpochBucket()
	p.publish("$JS.API.INFO", "$JS.API.STREAM.LIST", q+".hb."+role+".*", q+".journal.*.>", "$KV."+n.EpochBucket()+"."+role+".*")
	for _, s := range []string{n.JobsStream(), n.ControlStream(), n.JournalStream(), bucket} {
		p.publish("$JS.API.STREAM.CREATE."+s, "$JS.API.STREAM.INFO."+s)
	}
	p.publish("$JS.API.CONSUMER.CREATE."+bucket+".*.$KV."+n.EpochBucket()+"."+role+".*", "$JS.API.CONSUMER.INFO."+bucket+".*",
		"$JS.API.CONSUMER.DELETE."+bucket+".*", "$JS.FC."+bucket+".>")
	p.subscribe(q + ".hb.*.*")
	p.Answers = true
}

// reads lets a user make consumers of what matches a filter in a stream, pull from that stream and acknowledge.
func (p *Permissions) reads(stream, filter string) {
	p.publish("$JS.API.STREAM.INFO."+stream, "$JS.API.CONSUMER.CREATE."+stream+".*."+filter, "$JS.API.CONSUMER.INFO."+stream+".*",
		"$JS.API.CONSUMER.MSG.NEXT."+stream+".*", "$JS.API.CONSUMER.DELETE."+stream+".*", "$JS.ACK."+stream+".>")
}

// kept are the calls of an API that would end what all share.
func (n Names) kept(api string) []string {
	var calls []string
	for _, s := range []string{n.JobsStream(), n.ControlStream(), n.JournalStream(), n.TapeStream(), n.TapeKeysStream(), "KV_" + n.EpochBucket()} {
		calls = append(calls, api+s)
	}
	return calls
}

func (p *Permissions) publish(subjects ...string)   { p.Publish = append(p.Publish, subjects...) }
func (p *Permissions) subscribe(subjects ...string) { p.Subscribe = append(p.Subscribe, subjects...) }
