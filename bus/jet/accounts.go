package jet

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"

	"quire/bus"
)

// An accounts directory holds a nats-server configuration (ConfigFile), one seed for each user of Quire's account
// (<user>.nk) and one for each tenant (tenant-<name>.nk), all for their owner's eyes alone.
const (
	ConfigFile   = "nats.conf"
	tenantPrefix = "tenant-"
	seedSuffix   = ".nk"
)

// SeedFile is where the nkey seed of a user of Quire's account lies, TenantSeedFile that of a tenant.
func SeedFile(dir, user string) string { return filepath.Join(dir, user+seedSuffix) }

// TenantSeedFile is where a tenant's seed lies.
func TenantSeedFile(dir, tenant string) string { return SeedFile(dir, tenantPrefix+tenant) }

// WriteAccounts makes what is missing in an accounts directory and writes its configuration anew: an account for Quire, in which
// each role has a user of its own with bus.Names.Permissions, and an account for each tenant, named or there already. Tenants
// are slugs. It gives the configuration's path.
func WriteAccounts(dir string, n bus.Names, tenants []string) (path string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("bus: accounts: %w", err)
	}
	there, err := filepath.Glob(TenantSeedFile(dir, "*"))
	if err != nil {
		return "", fmt.Errorf("bus: accounts: %w", err)
	}
	for _, f := range there {
		tenants = append(tenants, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), tenantPrefix), seedSuffix))
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)

	var b bytes.Buffer
	b.WriteString("# Written by quire bus --accounts, anew at each start. Each user proves itself by the seed in the file of its name.\n")
	fmt.Fprintf(&b, "max_payload: %d\njetstream {}\naccounts {\n  QUIRE {\n    jetstream: enabled\n    users: [\n", bus.DefaultPayload)
	for _, user := range bus.Users() {
		public, err := ensureSeed(SeedFile(dir, user))
		if err != nil {
			return "", err
		}
		p, _ := n.Permissions(user)
		fmt.Fprintf(&b, "      # %s, whose inboxes begin with %s\n      { nkey: %s, permissions: {\n        publish: { allow: [%s], deny: [%s] },\n        subscribe: [%s]%s } }\n",
			user, p.Inbox, public, quoted(p.Publish), quoted(p.PublishDeny), quoted(p.Subscribe), answers(p))
	}
	api := n.API("*", "*")
	fmt.Fprintf(&b, "    ]\n    exports: [ { service: %q, account_token_position: %d, response_type: stream, threshold: \"5m\" } ]\n  }\n",
		api, strings.Count(strings.TrimSuffix(api, ".*.*"), ".")+2)
	for _, t := range tenants {
		public, err := ensureSeed(TenantSeedFile(dir, t))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "  %s {\n    users: [ { nkey: %s } ]\n    imports: [ { service: { account: QUIRE, subject: %q }, to: %q } ]\n  }\n",
			t, public, n.API(t, "*"), strings.TrimSuffix(api, ".*.*")+".*")
	}
	b.WriteString("}\n")
	path = filepath.Join(dir, ConfigFile)
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return "", fmt.Errorf("bus: accounts: %w", err)
	}
	return path, nil
}

// ensureSeed gives the public half of the seed in a file, which it makes if it is not there.
func ensureSeed(file string) (public string, err error) {
	seed, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return "", fmt.Errorf("bus: accounts: %w", err)
		}
		if seed, err = pair.Seed(); err != nil {
			return "", fmt.Errorf("bus: accounts: %w", err)
		}
		if err := os.WriteFile(file, append(seed, '\n'), 0o600); err != nil {
			return "", fmt.Errorf("bus: accounts: %w", err)
		}
	} else if err != nil {
		return "", fmt.Errorf("bus: accounts: %w", err)
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err == nil {
		public, err = pair.PublicKey()
	}
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		return "", fmt.Errorf("bus: accounts: %s: no seed of a user: %v", file, err)
	}
	return public, nil
}

func answers(p bus.Permissions) string {
	if !p.Answers {
		return ""
	}
	return ",\n        allow_responses: { max: 1, expires: \"1m\" }"
}

func quoted(subjects []string) string {
	list := make([]string, len(subjects))
	for i, s := range subjects {
		list[i] = fmt.Sprintf("%q", s)
	}
	return strings.Join(list, ", ")
}
