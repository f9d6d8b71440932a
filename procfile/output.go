package procfile

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"sync"
)

// colours of the prefixes, in order of the file: readable on dark and light.
var colours = [...]int{36, 33, 32, 35, 34, 31, 96, 93, 92, 95, 94, 91}

// output writes whole lines of many processes to one writer, each behind its name.
type output struct {
	mu     sync.Mutex
	w      io.Writer
	width  int
	colour bool
}

// line writes one line of the process with this index; index < 0 is the supervisor itself.
func (o *output) line(index int, name, text string) {
	prefix := fmt.Sprintf("%-*s | ", o.width, name)
	if o.colour {
		code := 1
		if index >= 0 {
			code = colours[index%len(colours)]
		}
		prefix = fmt.Sprintf("\x1b[%dm%-*s |\x1b[0m ", code, o.width, name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	// A terminal that went away must not stop the processes: their end is the supervisor's business.
	_, _ = io.WriteString(o.w, prefix+text+"\n")
}

// copyLines passes r on line by line until it ends. A line longer than 64 KiB is cut in pieces of that length.
func (o *output) copyLines(index int, name string, r io.Reader) {
	b := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := b.ReadSlice('\n')
		if n := len(line); n > 0 {
			for n > 0 && (line[n-1] == '\n' || line[n-1] == '\r') {
				n--
			}
			o.line(index, name, string(line[:n]))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}
