package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"
)

const maxStdin = 16 << 20 // bytes of a message read from standard input

type chatCmd struct {
	clientFlags
	Text        string   `name:"message" short:"m" placeholder:"TEXT" env:"QUIRE_CHAT_MESSAGE" help:"Ask this and exit; - reads standard input."`
	System      string   `name:"system" short:"s" placeholder:"TEXT" env:"QUIRE_CHAT_SYSTEM" help:"System message."`
	MaxTokens   int      `name:"max-tokens" env:"QUIRE_CHAT_MAX_TOKENS" placeholder:"N" help:"Longest answer in tokens; the server's default otherwise."`
	Temperature *float64 `name:"temperature" env:"QUIRE_CHAT_TEMPERATURE" placeholder:"T" help:"0 always takes the likeliest token."`
	TopP        *float64 `name:"top-p" env:"QUIRE_CHAT_TOP_P" placeholder:"P" help:"Sample from the likeliest tokens that make up this share."`
	Seed        *int64   `name:"seed" env:"QUIRE_CHAT_SEED" placeholder:"N" help:"Makes a sampled answer repeatable."`
	Stop        []string `name:"stop" sep:"none" env:"QUIRE_CHAT_STOP" placeholder:"TEXT" help:"End the answer before this text; may be given more than once."`
	Thinking    string   `name:"thinking" enum:"auto,on,off" default:"auto" env:"QUIRE_CHAT_THINKING" help:"on or off sets the switch of a template that has one (Qwen3); auto leaves it."`
	Quiet       bool     `name:"quiet" short:"q" env:"QUIRE_CHAT_QUIET" help:"Print the answer alone, without the line about how it ended."`
}

// Run asks once, or talks in turns on a terminal. Exit codes: 0 a whole answer, 1 an error, 3 a stream that was cut, 130 interrupted.
func (c *chatCmd) Run(s streams, src origins) error {
	d, err := c.open(src)
	if err != nil {
		return err
	}
	defer d.close()
	t := &talk{cmd: c, s: s, door: d}
	if c.System != "" {
		t.turns = append(t.turns, message{"system", c.System})
	}
	text, once, err := c.first(s)
	if err != nil {
		return err
	}
	if once {
		return t.ask(text)
	}
	return t.loop()
}

// first finds the message of a single question: -m, or standard input when that is no terminal.
func (c *chatCmd) first(s streams) (text string, once bool, err error) {
	if c.Text != "" && c.Text != "-" {
		return c.Text, true, nil
	}
	if c.Text == "" && terminal(s.in) {
		return "", false, nil
	}
	b, err := io.ReadAll(io.LimitReader(s.in, maxStdin+1))
	if err != nil {
		return "", true, err
	}
	if len(b) > maxStdin {
		return "", true, usage("chat: standard input holds more than %d bytes", maxStdin)
	}
	if text = strings.TrimSpace(string(b)); text == "" {
		return "", true, usage("chat: no message: give -m TEXT, or a line on standard input")
	}
	return text, true, nil
}

// talk is one conversation.
type talk struct {
	cmd   *chatCmd
	s     streams
	door  door
	turns []message
}

// ask sends one turn and prints the answer as it comes; Ctrl-C ends the answer. A turn that failed is taken back.
func (t *talk) ask(text string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	q := question{Model: t.cmd.Model, Messages: append(t.turns, message{"user", text}), MaxTokens: t.cmd.MaxTokens,
		Temperature: t.cmd.Temperature, TopP: t.cmd.TopP, Seed: t.cmd.Seed, Stop: t.cmd.Stop}
	if on := t.cmd.Thinking; on == "on" || on == "off" {
		q.Template = map[string]bool{"enable_thinking": on == "on"}
	}
	began, first := time.Now(), time.Duration(0)
	var answer strings.Builder
	end, err := t.door.chat(ctx, q, func(piece string) {
		if first == 0 {
			first = time.Since(began)
		}
		answer.WriteString(piece)
		fmt.Fprint(t.s.out, piece)
	})
	if answer.Len() > 0 {
		fmt.Fprintln(t.s.out)
	}
	switch {
	case ctx.Err() != nil:
		return &coded{exitInterrupted, errors.New("chat: interrupted")}
	case errors.Is(err, errCut):
		return &coded{exitCut, fmt.Errorf("chat: %w", err)}
	case err != nil:
		return fmt.Errorf("chat: %w", err)
	}
	t.turns = append(q.Messages, message{"assistant", answer.String()})
	if !t.cmd.Quiet {
		note(t.s.err, "%s · %d tokens in, %d out · first after %.2f s, all after %.2f s", end.Finish, end.Usage.Prompt,
			end.Usage.Completion, first.Seconds(), time.Since(began).Seconds())
	}
	return nil
}

// loop talks in turns until the end of input. /new forgets the conversation, /exit ends it.
func (t *talk) loop() error {
	fmt.Fprintf(t.s.err, "%s · /new starts afresh, /exit or Ctrl-D ends, Ctrl-C stops an answer\n", t.door.name())
	keep := len(t.turns)
	in := bufio.NewScanner(t.s.in)
	in.Buffer(make([]byte, 0, 4096), maxStdin)
	for {
		fmt.Fprint(t.s.err, "> ")
		if !in.Scan() {
			fmt.Fprintln(t.s.err)
			return in.Err()
		}
		switch line := strings.TrimSpace(in.Text()); line {
		case "":
		case "/exit", "/quit":
			return nil
		case "/new":
			t.turns = t.turns[:keep]
		default:
			if err := t.ask(line); err != nil {
				fmt.Fprintf(t.s.err, "%v\n", err)
			}
		}
	}
}

// note prints a line beside the answer, dimmed on a terminal.
func note(w io.Writer, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if colour(w) {
		text = "\x1b[2m" + text + "\x1b[0m"
	}
	fmt.Fprintln(w, text)
}
