package chat

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ardanlabs/jinja"
	"pgregory.net/rapid"

	"quire/model/tokenizer"
)

var farAway = time.Now().Add(time.Hour)

// testTokenizer is a byte-level vocabulary of 256 bytes and a few marks.
func testTokenizer(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	vocab, next := map[string]int{}, 0
	for b := range 256 {
		r := rune(b)
		if (b < 33 || b > 126) && (b < 161 || b > 172) && b < 174 {
			r = rune(256 + next)
			next++
		}
		vocab[string(r)] = b
	}
	var added []map[string]any
	for i, m := range []string{"<s>", "</s>", "<|user|>", "<|system|>", "<|assistant|>", "<|im_start|>", "<|im_end|>", "[INST]", "<｜end｜>"} {
		added = append(added, map[string]any{"id": 256 + i, "content": m, "special": true})
	}
	b, err := json.Marshal(map[string]any{
		"added_tokens": added, "pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false},
		"model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromJSON(b, tokenizer.Extra{Config: []byte(`{"bos_token": "<s>", "eos_token": {"content": "</s>"}}`)})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

const chatML = `{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] | trim + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}`

// templates in many styles, real families' among them in short.
var templates = map[string]string{
	"chatml":  chatML,
	"roles":   `{{ bos_token }}{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`,
	"llama2":  "{{- bos_token }}\n{%- for message in messages %}\n    {%- if message.role == 'user' %}\n[INST] {{ message.content }} [/INST]\n    {%- else %}\n        {{- ' ' ~ message['content'].strip() ~ ' ' ~ eos_token -}}\n    {%- endif %}\n{%- endfor %}\n",
	"macro":   "{% macro show(m, last=false) %}<|{{ m.role }}|>{{ m.content | replace('x', 'yy') }}{% if last %}.{% endif %}{% endmacro %}{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ show(m, loop.last) }}{% endfor %}{{ ns.n }}",
	"lines":   "{% for m in messages %}\n    {% if m.role == 'user' %}\nU: {{ m.content }}\n    {% else %}\nA: {{ m.content }}\n    {% endif %}\n{% endfor %}\n",
	"filters": "{{ messages | map(attribute='content') | join(', ') }}{% for m in messages if m.role == 'user' %}{{ m.content.replace('a', 'b').upper() | indent(2) }}{{ '-' * 3 }}{{ loop.index }}{% else %}none{% endfor %}{% for i in range(2) %}{{ i }}{% endfor %}{% set list = [] %}{{ list.append('z') or '' }}{{ list | tojson }}",
	"raw":     "{% raw %}{{ not }} {% code %}{% endraw %}{% set text %}{{ messages[0].content }}!{% endset %}{{ text }}",
	"slices":  "{{ messages[0].content[1:] }}{{ messages[::-1][0].content[:-1] }}{% for m in messages[1:] %}{{ m['content'][0:2] }}{{ {'a': [1, 2]}['a'][1] }}{% endfor %}{{ 'é' [ 0 : 1 ] }}",
	"split":   "{% for m in messages %}{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}{% else %}{{ m.content }}{% endif %}{% endfor %}",
}

// TestGuardedTemplatesDoWhatTheyDid renders each template as it is and with the guard's calls in it.
func TestGuardedTemplatesDoWhatTheyDid(t *testing.T) {
	for name, src := range templates {
		guarded, err := rewrite(src)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		run := func(src string, enter bool) string {
			c, err := jinja.Compile(src)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, src)
			}
			message := func(role, content string) jinja.Value {
				d := jinja.NewDict()
				d.AsDict().Set("role", jinja.NewString(role))
				d.AsDict().Set("content", jinja.NewString(content))
				return d
			}
			data := map[string]jinja.Value{
				"messages":  jinja.NewList([]jinja.Value{message("user", " Hi a\nx "), message("assistant", "<think>a</think>\n\nYes"), message("user", "{{ x }}")}),
				"bos_token": jinja.NewString("<s>"), "eos_token": jinja.NewString("</s>"), "add_generation_prompt": jinja.NewBool(true),
			}
			if enter {
				(&guard{steps: 1000, output: 1 << 20, room: 1 << 20, deadline: farAway}).enter(data)
			}
			out, err := c.RenderValues(data)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return out
		}
		if plain, got := run(src, false), run(guarded, true); got != plain {
			t.Errorf("%s: %q, want %q", name, got, plain)
		}
	}
}

// TestTemplatesAreBounded runs templates made to exhaust a process.
func TestTemplatesAreBounded(t *testing.T) {
	tok := testTokenizer(t)
	for name, src := range map[string]string{
		"endless range":     `{% for i in range(1000000000) %}{% endfor %}`,
		"nested loops":      `{% for a in range(900) %}{% for b in range(900) %}{% for c in range(900) %}x{% endfor %}{% endfor %}{% endfor %}`,
		"doubling":          `{% set x = 'ab' %}` + strings.Repeat(`{% set x = x ~ x %}`, 60),
		"doubling a list":   `{% set x = [1] %}` + strings.Repeat(`{% set x = x + x %}`, 60),
		"nesting lists":     `{% set x = [1] %}` + strings.Repeat(`{% set x = [x, x] %}`, 60) + `{{ x | tojson }}`,
		"replace":           `{% set x = 'aaaaaaaaaa' %}{{ ` + `x` + strings.Repeat(`|replace('a', 'aaaaaaaaaa')`, 30) + ` }}`,
		"replace method":    `{% set x = 'aaaaaaaaaa' %}{{ ` + `x` + strings.Repeat(`.replace('a', 'aaaaaaaaaa')`, 30) + ` }}`,
		"spaced replace":    `{% set x = 'aaaaaaaaaa' %}{{ ` + `x` + strings.Repeat(` | replace ('a', x)`, 30) + ` }}`,
		"join":              `{% set s = 'x' * 4000 %}{% set s = s ~ s ~ s ~ s ~ s ~ s ~ s ~ s %}{% set l = range(9000) | join(s) %}`,
		"indent":            `{{ 'a\nb' | indent(2000000000) }}`,
		"repeat":            `{{ 'a' * 2000000000 }}`,
		"repeat of repeat":  `{{ 'a' * 4000 * 4000 * 4000 }}`,
		"recursion":         `{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}`,
		"recursion by call": `{% macro f(n) %}{% call f(n) %}{{ caller() }}{% endcall %}{% endmacro %}{{ f(1) }}`,
		"part of itself":    `{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}`,
		"part of a part":    `{% set ns = namespace() %}{% set l = [] %}{% set ns.a = l %}{% set _ = l.append(ns) %}{% set y = ns | tojson %}`,
		"update":            `{% set d = {} %}{% set _ = d.update({'a': d}) %}{{ d }}`,
		"much text":         `{% for i in range(9000) %}` + strings.Repeat("x", 200000) + `{% endfor %}`,
		"own guard":         `{% macro quire_step(n) %}{% endmacro %}{% for i in range(9) %}{% endfor %}`,
		"own check":         `{% set quire_check = 1 %}`,
		"filter block":      `{% filter upper %}x{% endfilter %}`,
		"include":           `{% include '/etc/passwd' %}`,
		"deep brackets":     `{{ ` + strings.Repeat("(", 9000) + ` }}`,
		"many operators":    `{{ 'a'` + strings.Repeat(` ~ 'a'`, 600) + ` }}`,
		"long slice":        `{{ raise_exception('é'[0:9000000000000000000]) }}`,
		"stepped slice":     `{{ raise_exception(messages[0:2000000000:2]) }}`,
		"slice by a float":  `{{ raise_exception('é'[0:10.0**15]) }}`,
		"no end":            `{% for m in messages %}`,
		"open tag":          `{{ messages`,
		"raises":            `{{ raise_exception('only for robots') }}`,
		"too long":          strings.Repeat("x", maxSource+1),
	} {
		t.Run(name, func(t *testing.T) {
			tmpl, err := New(src, tok)
			if err == nil {
				_, err = tmpl.Render([]Message{{"user", "hi"}}, true)
			}
			if err == nil || !strings.HasPrefix(err.Error(), "chat: ") {
				t.Fatalf("error %v", err)
			}
			if name == "raises" && !strings.Contains(err.Error(), "only for robots") {
				t.Error(err)
			}
		})
	}
}

func TestNoTemplate(t *testing.T) {
	var none *Template
	if _, err := none.Render(nil, true); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	if _, err := none.Text(nil, true); !errors.Is(err, ErrNone) {
		t.Error(err)
	}
	tmpl, err := New(chatML, testTokenizer(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tmpl.Render([]Message{{"<|im_end|>", "x"}}, true); err == nil {
		t.Error("a role that is a mark is rendered")
	}
}

// TestContentsNeverBecomeMarks puts marks, pieces of marks and anything else into contents: the marks of the prompt are always
// those of the same conversation with harmless contents, and no character is lost.
func TestContentsNeverBecomeMarks(t *testing.T) {
	tok := testTokenizer(t)
	compiled := map[string]*Template{}
	for _, name := range []string{"chatml", "roles", "llama2", "lines"} {
		tmpl, err := New(templates[name], tok)
		if err != nil {
			t.Fatal(err)
		}
		compiled[name] = tmpl
	}
	glue, err := New(`<|im_{{ messages[0].content }}{{ messages[1].content }}end|><{{ messages[0].content }}>`, tok)
	if err != nil {
		t.Fatal(err)
	}
	piece := rapid.OneOf(
		rapid.SampledFrom(tok.Marks()),
		rapid.Custom(func(t *rapid.T) string {
			m := []rune(rapid.SampledFrom(tok.Marks()).Draw(t, "mark"))
			from := rapid.IntRange(0, len(m)-1).Draw(t, "from")
			return string(m[from:rapid.IntRange(from, len(m)).Draw(t, "to")])
		}),
		rapid.SampledFrom([]string{" ", "\n", "\U000F0041", "\U0010FD00", "\U0010FE00", "é🎉", "|", "<", ">"}),
	)
	content := rapid.Custom(func(t *rapid.T) string { return strings.Join(rapid.SliceOfN(piece, 0, 5).Draw(t, "pieces"), "") })
	marksOf := func(t *rapid.T, tmpl *Template, a, b string) (marks []int32, text string) {
		parts, err := tmpl.Render([]Message{{"user", a}, {"assistant", b}}, true)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range parts {
			if p.Text == "" {
				marks = append(marks, p.Mark)
			}
			text += p.Text
		}
		return marks, text
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := content.Draw(t, "a"), content.Draw(t, "b")
		for name, tmpl := range compiled {
			want, _ := marksOf(t, tmpl, "0", "0")
			got, text := marksOf(t, tmpl, a, b)
			if len(got) != len(want) {
				t.Fatalf("%s: marks %v, want %v", name, got, want)
			}
			if !strings.Contains(text, strings.TrimSpace(a)) || !strings.Contains(text, strings.TrimSpace(b)) {
				t.Fatalf("%s: %q lacks %q or %q", name, text, a, b)
			}
		}
		if a != "" && b != "" {
			if got, text := marksOf(t, glue, a, b); len(got) != 0 {
				t.Fatalf("glued: marks %v in %q", got, text)
			}
		}
	})
}

func FuzzTemplate(f *testing.F) {
	for _, src := range templates {
		f.Add(src, "hello <|im_end|>")
	}
	tok := testTokenizer(f)
	f.Fuzz(func(t *testing.T, src, content string) {
		tmpl, err := New(src, tok)
		if err != nil {
			return
		}
		_, _ = tmpl.Render([]Message{{"system", "x"}, {"user", content}}, true)
	})
}
