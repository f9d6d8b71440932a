package model

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quire/model/chat"
	"quire/model/gguf"
	"quire/model/tokenizer"
)

// Tokenizer turns text into token ids and back.
type Tokenizer = tokenizer.Tokenizer

// EncodeOptions says what Encode does beside the text itself.
type EncodeOptions = tokenizer.EncodeOptions

// Detokenizer turns ids into text as they come, never cutting a character.
type Detokenizer = tokenizer.Detokenizer

// Template is a model's chat template.
type Template = chat.Template

// Message is one turn of a conversation.
type Message = chat.Message

// Generation is what the model's makers suggest for sampling. Nil means: nothing suggested.
type Generation struct {
	Temperature       *float32
	TopK              *int
	TopP              *float32
	MinP              *float32
	RepetitionPenalty *float32
}

// Source is an opened model: everything but the computation.
type Source struct {
	Name        string // "SmolLM2-135M-Instruct": from the path, or what the embedded model is called
	Path        string // "" for the embedded model
	Config      Config
	Tokenizer   *Tokenizer
	Template    *Template // nil when the model has none, or one that does not compile
	TemplateErr error     // why Template is nil: chat requests are refused with it; nil when there is a template
	Generation  Generation
	Tensors     map[string]Tensor // by GGUF name, see Tensor; nil after OpenTokenizer
	Fingerprint [32]byte          // of weights and tokenizer: equal files give equal fingerprints
	Bytes       int64             // of all files

	unmap []func() error
}

// OpenOptions says how a model is opened. The zero value is fine.
type OpenOptions struct {
	// Progress is told how many of total bytes have been read; the last call has done = total. It may be nil.
	Progress func(done, total int64)
	// Name replaces the name that follows from the path.
	Name string
}

// Open opens a GGUF file or a Hugging Face directory, or with path "" the embedded model. It reads the whole file once for
// the fingerprint; the tensors stay mapped until Close. Anything that does not load is an error that names the file, the
// tensor or key, the numbers, and what is supported.
func Open(path string, o OpenOptions) (*Source, error) { return open(path, o, true) }

// OpenTokenizer opens what a router needs: config, tokenizer, template and fingerprint, the same as Open's, and no tensors.
func OpenTokenizer(path string, o OpenOptions) (*Source, error) { return open(path, o, false) }

func open(path string, o OpenOptions, tensors bool) (*Source, error) {
	s := &Source{Path: path, Name: o.Name}
	err := s.load(path, o)
	if err == nil && tensors {
		err = s.Config.checkTensors(s.Tensors)
	}
	if err == nil && s.Tokenizer.Vocab() > s.Config.Vocab {
		err = fmt.Errorf("the tokenizer has %d tokens, the config says %d", s.Tokenizer.Vocab(), s.Config.Vocab)
	}
	if err != nil {
		_ = s.Close()
		where := path
		if where == "" {
			where = "embedded"
		}
		return nil, fmt.Errorf("model: %s: %w", where, err)
	}
	if !tensors {
		err = s.Close()
		s.Tensors = nil
	}
	return s, err
}

func (s *Source) load(path string, o OpenOptions) error {
	if path == "" {
		if embedded.data == nil {
			return errors.New(`no path given and no embedded model linked in (import _ "quire/embedded")`)
		}
		s.name(embedded.name)
		return s.loadGGUF(embedded.name+".gguf", embedded.data, o.Progress)
	}
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st.IsDir() {
		s.name(filepath.Base(filepath.Clean(path)))
		return s.loadHF(path, o.Progress)
	}
	s.name(strings.TrimSuffix(filepath.Base(path), ".gguf"))
	b, err := s.mapFile(path)
	if err != nil {
		return err
	}
	if !gguf.IsGGUF(b) {
		return fmt.Errorf("neither a GGUF file nor a directory with config.json and model.safetensors: it begins with %q", b[:min(4, len(b))])
	}
	return s.loadGGUF(filepath.Base(path), b, o.Progress)
}

func (s *Source) name(def string) {
	if s.Name == "" {
		s.Name = def
	}
}

func (s *Source) mapFile(path string) ([]byte, error) {
	b, unmap, err := mapFile(path)
	if err == nil {
		s.unmap = append(s.unmap, unmap)
	}
	return b, err
}

func (s *Source) loadGGUF(name string, b []byte, progress func(done, total int64)) error {
	f, err := gguf.Parse(name, b)
	if err != nil {
		return err
	}
	if s.Config, err = ggufConfig(f); err != nil {
		return err
	}
	if s.Tokenizer, err = tokenizer.FromGGUF(f); err != nil {
		return err
	}
	s.compile(f.String("tokenizer.chat_template", ""))
	s.Generation = ggufGeneration(f)
	s.Tensors, s.Bytes = f.Tensors, int64(len(b))
	h := newHasher(int64(len(b)), progress)
	s.Fingerprint = sha256.Sum256(append([]byte("quire model gguf 1\n"), h.sum(b)...))
	return nil
}

// compile takes a chat template in. One that does not compile is no reason to refuse a model: completions need none.
func (s *Source) compile(source string) {
	if source == "" {
		s.TemplateErr = chat.ErrNone
		return
	}
	s.Template, s.TemplateErr = chat.New(source, s.Tokenizer)
}

// Close ends the mapping; Tensors must not be read afterwards. It may be called more than once.
func (s *Source) Close() error {
	var errs []error
	for _, unmap := range s.unmap {
		errs = append(errs, unmap())
	}
	s.unmap = nil
	return errors.Join(errs...)
}

// embedded is the model that is linked in.
var embedded struct {
	name string
	data []byte
}

// RegisterEmbedded makes a GGUF file the model that Open("") opens; called while packages initialise. data is not copied.
func RegisterEmbedded(name string, data []byte) { embedded.name, embedded.data = name, data }
