package tokenizer

import (
	"fmt"
	"strings"
)

// splitters turns a pre_tokenizer into splits.
func splitters(s *step) ([]splitter, error) {
	if s == nil {
		return nil, nil
	}
	switch s.Type {
	case "Sequence":
		var out []splitter
		for i := range s.Pretokenizers {
			p, err := splitters(&s.Pretokenizers[i])
			if err != nil {
				return nil, err
			}
			out = append(out, p...)
		}
		return out, nil
	case "Digits":
		return []splitter{digits(s.IndividualDigits)}, nil
	case "ByteLevel":
		var out []splitter
		if s.AddPrefixSpace == nil || *s.AddPrefixSpace {
			out = append(out, spaceBefore)
		}
		if s.UseRegex == nil || *s.UseRegex {
			out = append(out, words(scanGPT2))
		}
		return out, nil
	case "Split":
		return split(s)
	case "Metaspace":
		return metaspace(s)
	}
	return nil, fmt.Errorf("tokenizer: pre-tokenizer %s does not load, these do: Sequence, ByteLevel, Digits, Split, Metaspace", s.Type)
}

// scanners are the patterns that have one.
var scanners = map[string]scanner{gpt2Pattern: scanGPT2, llama3Pattern: scanLlama3, qwen2Pattern: scanQwen2}

func split(s *step) ([]splitter, error) {
	if scan, ok := scanners[s.Pattern.Regex]; ok && (s.Behavior == "Isolated" || (s.Behavior == "Removed" && s.Invert)) {
		return []splitter{words(scan)}, nil
	}
	// Removed with invert drops what lies between the matches, of which such patterns leave nothing.
	if s.Behavior != "Isolated" || s.Invert {
		return nil, fmt.Errorf("tokenizer: split behaviour %s (invert %v) of %q does not load, Isolated does", s.Behavior, s.Invert, s.Pattern.Regex)
	}
	if s.Pattern.Regex == "" {
		return []splitter{around1(s.Pattern.String)}, nil
	}
	f, err := matches(s.Pattern.Regex)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: split pattern %q: %w", s.Pattern.Regex, err)
	}
	return []splitter{f}, nil
}

// around1 cuts every occurrence of a string off by itself.
func around1(sep string) splitter {
	return func(text string, yield func(string)) {
		for sep != "" {
			before, after, found := strings.Cut(text, sep)
			if !found {
				break
			}
			if before != "" {
				yield(before)
			}
			yield(sep)
			text = after
		}
		if text != "" {
			yield(text)
		}
	}
}

// metaspace spells spaces as underlines and may cut before each.
func metaspace(s *step) ([]splitter, error) {
	mark := s.Replacement
	if mark == "" {
		mark = underline
	}
	if mark != underline {
		return nil, fmt.Errorf("tokenizer: Metaspace replacement %q does not load, %q does", mark, underline)
	}
	never := s.PrependScheme == "never" || (s.PrependScheme == "" && s.AddPrefixSpace != nil && !*s.AddPrefixSpace)
	out := []splitter{func(text string, yield func(string)) {
		text = strings.ReplaceAll(text, " ", mark)
		if !never && !strings.HasPrefix(text, mark) {
			text = mark + text
		}
		yield(text)
	}}
	if s.Split == nil || *s.Split {
		out = append(out, func(text string, yield func(string)) {
			for text != "" {
				n := strings.Index(text[1:], mark) + 1
				if n == 0 {
					n = len(text)
				}
				yield(text[:n])
				text = text[n:]
			}
		})
	}
	return out, nil
}
