// Package embedded carries the model made for this project, so that a fresh checkout without network can run the whole path from
// prompt to words. README.md says what it can do; train/ holds all it was made from.
//
// Linking it in (import _ "quire/embedded") makes it the model that model.Open("") opens.
package embedded

import (
	_ "embed" // for the directive below

	"quire/model"
)

// Name is the embedded model's name, as /v1/models shows it.
const Name = "quire-tiny"

//go:embed quire-tiny-q8_0.gguf
var weights []byte

func init() { model.RegisterEmbedded(Name, weights) }

// Open gives the embedded GGUF file. The bytes are shared: do not write to them.
func Open() []byte { return weights }
