package replay

import (
	"bytes"
	"crypto/ed25519"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"slices"
	"time"

	"quire/kvtransfer"
	"quire/kvtransfer/seal"
)

// Report is what an incident's answer consists of: is the record complete, does it keep every rule, who was exposed to whom.
type Report struct {
	Format   string       `json:"format"` // "quire audit report 1"
	Made     string       `json:"made"`   // RFC 3339, of the machine that made it
	By       string       `json:"by"`     // version of Quire
	Tenant   string       `json:"tenant"` // "" = of all tenants
	Exposure Exposure     `json:"exposure"`
	Verify   Verification `json:"verification"`
}

// ReportFormat names the form of reports.
const ReportFormat = "quire audit report 1"

// Signed is a report with the signature of a role of the cluster over its exact bytes.
type Signed struct {
	Report    json.RawMessage `json:"report"`
	Role      kvtransfer.Role `json:"role,omitempty"`
	Signature string          `json:"signature,omitempty"` // hexadecimal; "" = nobody signed
}

// reportDomain stands before a report when it is signed.
const reportDomain = "\xffquire audit report 1\x00"

// MakeReport asks every question. With a tenant, other tenants are not named.
func (p *Past) MakeReport(since, until time.Time, tenant, by string, now time.Time) Report {
	r := Report{Format: ReportFormat, Made: now.UTC().Format(time.RFC3339), By: by, Tenant: tenant,
		Exposure: p.Exposure(since, until, tenant), Verify: p.Verify()}
	if tenant != "" {
		r.Exposure.hide(tenant)
		r.Verify.Findings = slices.DeleteFunc(r.Verify.Findings, func(f Finding) bool {
			if f.Handoff == "" {
				return false
			}
			k, err := parseKey(f.Handoff)
			a := p.attempts[k]
			return err != nil || a == nil || a.Tenant != tenant
		})
	}
	return r
}

func parseKey(s string) (k kvtransfer.Key, err error) {
	if len(s) < 34 {
		return k, fmt.Errorf("replay: hand-off %q", s)
	}
	if _, err = hex.Decode(k.ID[:], []byte(s[:32])); err == nil {
		_, err = fmt.Sscanf(s[33:], "%d", &k.Attempt)
	}
	return k, err
}

// hidden stands for a tenant whose name the reader is not to see.
const hidden = "another tenant"

// hide leaves one tenant's name and ids, and no other's.
func (e *Exposure) hide(tenant string) {
	for _, list := range []*[]Response{&e.Exposed, &e.Contained, &e.Unowned} {
		out := slices.Clone(*list)
		for i := range out {
			if out[i].Tenant != tenant {
				out[i].Tenant, out[i].Handoff, out[i].Request = hidden, "", ""
			}
			out[i].Victims = slices.Clone(out[i].Victims)
			for j := range out[i].Victims {
				if v := &out[i].Victims[j]; v.Tenant != tenant {
					v.Tenant, v.Handoff = hidden, ""
				}
			}
		}
		*list = out
	}
}

// Sign puts a report into the form in which it is handed on. role may be "": then nobody signs.
func (r Report) Sign(role kvtransfer.Role, s seal.Signer) (Signed, error) {
	b, err := json.Marshal(r)
	if err != nil || s == nil {
		return Signed{Report: b}, err
	}
	return Signed{Report: b, Role: role, Signature: hex.EncodeToString(s.Sign(append([]byte(reportDomain), b...)))}, nil
}

// Check says whether the cluster's key signed a report.
func (s Signed) Check(keys seal.Verifier) error {
	var compacted bytes.Buffer
	if err := json.Compact(&compacted, s.Report); err != nil {
		return fmt.Errorf("replay: report: %w", err)
	}
	sig, err := hex.DecodeString(s.Signature)
	if err != nil || len(sig) != ed25519.SignatureSize {
		return errors.New("replay: report: it has no signature")
	}
	if !keys.Verify(s.Role, append([]byte(reportDomain), compacted.Bytes()...), sig) {
		return fmt.Errorf("replay: report: the signature is not that of the cluster's %s", s.Role)
	}
	return nil
}

//go:embed report.html.tmpl
var reportPage string

var reportTemplate = template.Must(template.New("report").Parse(reportPage))

// HTML is a page that stands by itself: no script, nothing fetched. It carries the signed report as data.
func (s Signed) HTML() ([]byte, error) {
	var r Report
	if err := json.Unmarshal(s.Report, &r); err != nil {
		return nil, fmt.Errorf("replay: report: %w", err)
	}
	raw, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = reportTemplate.Execute(&b, struct {
		Report
		Signed Signed
		Data   string // base64 of the signed report
	}{r, s, base64.StdEncoding.EncodeToString(raw)})
	return b.Bytes(), err
}
