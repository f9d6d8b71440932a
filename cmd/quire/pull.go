package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"text/tabwriter"

	"quire/model"
)

type pullCmd struct {
	Name   string `arg:"" optional:"" help:"A listed name; without one the list is printed."`
	Models string `name:"models" placeholder:"DIR" help:"Where pulled models are kept (quire/models in the user's cache directory)."`
	Hub    string `name:"hub" placeholder:"URL" help:"Where models come from (https://huggingface.co)."`
	Token  string `name:"hf-token" placeholder:"TOKEN" help:"Token for models that ask for one; HF_TOKEN counts too."`
}

// Run fetches one model; Ctrl-C keeps what has come, and the next run goes on there.
func (p *pullCmd) Run(s streams) error {
	if p.Name == "" {
		return list(s)
	}
	dir, err := modelsDir(p.Models)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	show := progress(s)
	var file string
	var bar func(done, total int64)
	path, err := model.Pull(ctx, p.Name, dir, model.PullOptions{Base: p.Hub, Token: cmp.Or(p.Token, os.Getenv("HF_TOKEN")),
		Progress: func(name string, done, total int64) {
			if show == nil {
				return
			}
			if name != file {
				file, bar = name, show(name)
			}
			bar(done, total)
		}})
	if ctx.Err() != nil {
		return &coded{exitInterrupted, fmt.Errorf("pull: interrupted; quire pull %s goes on where it ended", p.Name)}
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "%s is in %s\nquire up --model %s\n", p.Name, path, p.Name)
	return nil
}

func list(s streams) error {
	t := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tABOUT\tFROM")
	for _, k := range model.KnownModels() {
		fmt.Fprintf(t, "%s\t%s\t%s\n", k.Name, k.About, k.Repo)
	}
	return t.Flush()
}

// modelsDir is where pulled models are kept.
func modelsDir(dir string) (string, error) {
	if dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for models: %w; --models DIR names one", err)
	}
	return filepath.Join(cache, "quire", "models"), nil
}

// progress gives what shows how far something named is: on a file (a terminal or not); nil elsewhere.
func progress(s streams) func(label string) func(done, total int64) {
	f, ok := s.err.(*os.File)
	if !ok {
		return nil
	}
	return func(label string) func(done, total int64) { return model.Progress(f, label) }
}
