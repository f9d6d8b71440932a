package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"quire/kvtransfer"
)

// roles are those that a chat may hold, and how templates know them.
var roles = map[string]string{"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}

func setMessages(p *parser, m member) *kvtransfer.Error {
	list, err := asList(m.name, m.raw, MaxMessages)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return fault(m.name, "empty")
	}
	p.hasMessages = true
	p.req.Messages = make([]Message, 0, len(list))
	for i, raw := range list {
		msg, err := message(fmt.Sprintf("%s[%d]", m.name, i), raw)
		if err != nil {
			return err
		}
		p.req.Messages = append(p.req.Messages, msg)
	}
	return nil
}

func message(where string, raw json.RawMessage) (Message, *kvtransfer.Error) {
	var out Message
	if kindOf(raw) != "an object" {
		return out, fault(where, "want an object, got %s", kindOf(raw))
	}
	members, err := object(where, raw)
	if err != nil {
		return out, err
	}
	hasContent := false
	for _, m := range members {
		param := where + "." + clip(m.name)
		switch m.name {
		case "role":
			out.Role, err = role(param, m.raw)
		case "content":
			hasContent = true
			out.Content, err = content(param, m.raw)
		case "name":
			if !m.isNull() {
				_, err = asString(param, m.raw)
			}
		case "tool_calls", "tool_call_id", "function_call", "audio", "refusal", "reasoning_content", "annotations":
			if !m.isNull() && !neutral(m.raw, []string{"[]", `""`}) {
				err = unsupported(param, "not supported, and it would change the answer")
			}
		default:
			err = fault(param, "unknown field")
		}
		if err != nil {
			return out, err
		}
	}
	if out.Role == "" {
		return out, fault(where+".role", "missing")
	}
	if !hasContent {
		return out, fault(where+".content", "missing")
	}
	return out, nil
}

func role(param string, raw json.RawMessage) (string, *kvtransfer.Error) {
	s, err := asString(param, raw)
	if err != nil {
		return "", err
	}
	if s == "tool" || s == "function" {
		return "", unsupported(param, "tools are not supported")
	}
	r, ok := roles[s]
	if !ok {
		return "", fault(param, "%q is not one of system, developer, user, assistant", clip(s))
	}
	return r, nil
}

// content takes a string or parts of type text, which are joined with a newline.
func content(param string, raw json.RawMessage) (string, *kvtransfer.Error) {
	if kindOf(raw) != "an array" {
		return asString(param, raw)
	}
	list, err := asList(param, raw, MaxParts)
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fault(param, "empty")
	}
	texts := make([]string, 0, len(list))
	for i, part := range list {
		text, err := textPart(fmt.Sprintf("%s[%d]", param, i), part)
		if err != nil {
			return "", err
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, "\n"), nil
}

func textPart(where string, raw json.RawMessage) (string, *kvtransfer.Error) {
	if kindOf(raw) != "an object" {
		return "", fault(where, "want an object, got %s", kindOf(raw))
	}
	members, err := object(where, raw)
	if err != nil {
		return "", err
	}
	var kind string
	for _, m := range members { // the type first: it says what the other fields mean
		if m.name == "type" {
			if kind, err = asString(where+".type", m.raw); err != nil {
				return "", err
			}
		}
	}
	if kind == "" {
		return "", fault(where+".type", "missing")
	}
	if kind != "text" {
		return "", unsupported(where+".type", "only content parts of type text are supported")
	}
	var text string
	found := false
	for _, m := range members {
		switch m.name {
		case "type", "cache_control", "prompt_cache_breakpoint":
		case "text":
			found = true
			if text, err = asString(where+".text", m.raw); err != nil {
				return "", err
			}
		default:
			return "", fault(where+"."+clip(m.name), "unknown field")
		}
	}
	if !found {
		return "", fault(where+".text", "missing")
	}
	return text, nil
}
