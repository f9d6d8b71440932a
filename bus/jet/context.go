package jet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// natsContext is a file of the nats CLI, <config>/nats/context/<name>.json, as far as Quire reads it.
type natsContext struct {
	URL         string `json:"url"`
	Token       string `json:"token"`
	User        string `json:"user"`
	Password    string `json:"password"`
	Creds       string `json:"creds"`
	NKey        string `json:"nkey"`
	Cert        string `json:"cert"`
	Key         string `json:"key"`
	CA          string `json:"ca"`
	NSC         string `json:"nsc"`
	UserJWT     string `json:"user_jwt"`
	Domain      string `json:"jetstream_domain"`
	APIPrefix   string `json:"jetstream_api_prefix"`
	InboxPrefix string `json:"inbox_prefix"`
	TLSFirst    bool   `json:"tls_first"`
	SocksProxy  string `json:"socks_proxy"`
}

// fromContext fills in what the options leave open from the named NATS context.
func (o *ConnectOptions) fromContext() error {
	if o.Context == "" {
		return nil
	}
	if o.Context != filepath.Base(o.Context) || strings.HasPrefix(o.Context, ".") {
		return fmt.Errorf("bus: NATS context %q: not a name", o.Context)
	}
	dir, err := contextDir()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, o.Context+".json")
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("bus: NATS context %s: %w; nats context ls names those that there are", o.Context, err)
	}
	var c natsContext
	if err := json.Unmarshal(b, &c); err != nil {
		return fmt.Errorf("bus: NATS context %s: %s: %w", o.Context, path, err)
	}
	for field, set := range map[string]bool{
		"nsc": c.NSC != "", "user_jwt": c.UserJWT != "", "jetstream_domain": c.Domain != "",
		"jetstream_api_prefix": c.APIPrefix != "", "socks_proxy": c.SocksProxy != "",
	} {
		if set {
			return fmt.Errorf("bus: NATS context %s: %s: field %s is not supported; give URL and credentials by flags instead", o.Context, path, field)
		}
	}
	o.take(c)
	return nil
}

// take lets what was set already win; credentials count as one field.
func (o *ConnectOptions) take(c natsContext) {
	if len(o.URLs) == 0 && c.URL != "" {
		o.URLs = []string{c.URL}
	}
	if o.Creds == "" && o.NKey == "" && o.User == "" && o.Token == "" {
		o.Creds, o.NKey, o.User, o.Password, o.Token = expand(c.Creds), expand(c.NKey), c.User, c.Password, c.Token
	}
	if o.TLSCA == "" {
		o.TLSCA = expand(c.CA)
	}
	if o.TLSCert == "" && o.TLSKey == "" {
		o.TLSCert, o.TLSKey = expand(c.Cert), expand(c.Key)
	}
	if o.InboxPrefix == "" {
		o.InboxPrefix = c.InboxPrefix
	}
	o.TLSFirst = o.TLSFirst || c.TLSFirst
}

// contextDir is where the nats CLI keeps its contexts, on every system.
func contextDir() (string, error) {
	base := os.Getenv("XDG_CONFIG_HOME")
	if base == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("bus: NATS context: %w", err)
		}
		base = filepath.Join(home, ".config")
	}
	return filepath.Join(base, "nats", "context"), nil
}

func expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		if home, err := os.UserHomeDir(); err == nil {
			return filepath.Join(home, rest)
		}
	}
	return path
}
