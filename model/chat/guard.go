package chat

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ardanlabs/jinja"
)

// guard bounds one rendering. Rewriting puts calls of its functions into a template: quire_step into every loop and macro,
// quire_check around every expression, quire_<name> for what can grow without bound.
type guard struct {
	steps    int // left
	output   int // bytes left
	room     int // bytes of one value
	deadline time.Time
}

var errTime = fmt.Errorf("it takes longer than %v", maxTime)

// guarded names the filters and methods that have a bounded twin here.
var guarded = map[string]func(*guard, jinja.Value, []jinja.Value, map[string]jinja.Value) (jinja.Value, error){
	"replace": (*guard).replace, "join": (*guard).join, "indent": (*guard).indent, "format": (*guard).format,
	"append": (*guard).add, "insert": (*guard).insert, "update": (*guard).update,
}

// enter puts the functions into the data of a rendering.
func (g *guard) enter(data map[string]jinja.Value) {
	def := func(name string, f func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error)) {
		data[name] = jinja.NewCallable(name, f)
	}
	def("quire_step", g.step)
	def("quire_check", g.check)
	def("quire_out", g.out)
	def("quire_attr", g.attr)
	def("quire_bound", bound)
	def("range", g.numbers)
	for name, f := range guarded {
		def("quire_"+name, func(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
			if len(args) == 0 {
				return jinja.Undefined(), fmt.Errorf("%s: nothing to work on", name)
			}
			return f(g, args[0], args[1:], kwargs)
		})
	}
}

// step counts a turn of a loop or a call of a macro, whose body writes at most args[0] bytes of plain text.
func (g *guard) step(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	g.steps--
	if g.steps < 0 {
		return jinja.Undefined(), fmt.Errorf("it takes more than %d steps", maxSteps)
	}
	if time.Now().After(g.deadline) {
		return jinja.Undefined(), errTime
	}
	if len(args) > 0 && args[0].IsInt() {
		if err := g.write(int(args[0].AsInt())); err != nil {
			return jinja.Undefined(), err
		}
	}
	return jinja.NewString(""), nil
}

func (g *guard) write(n int) error {
	g.output -= n
	if g.output < 0 {
		return errors.New("it writes too much")
	}
	return nil
}

// check gives its argument back if it is small enough.
func (g *guard) check(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if time.Now().After(g.deadline) {
		return jinja.Undefined(), errTime
	}
	if len(args) != 1 {
		return jinja.Undefined(), fmt.Errorf("an expression of %d values", len(args))
	}
	_, err := g.size(args[0])
	return args[0], err
}

// out is check for what is written.
func (g *guard) out(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	v, err := g.check(args, kwargs)
	if err != nil {
		return v, err
	}
	n, _ := g.size(v)
	return v, g.write(n)
}

// attr is check for a value that becomes part of the dict args[0].
func (g *guard) attr(args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 2 {
		return jinja.Undefined(), fmt.Errorf("an expression of %d values", len(args)-1)
	}
	if err := g.joins(args[0], args[1]); err != nil {
		return jinja.Undefined(), err
	}
	return g.check(args[1:], kwargs)
}

// size counts the bytes of a value as printed, roughly, and refuses one that is too large or too deep.
func (g *guard) size(v jinja.Value) (int, error) {
	nodes, bytes := maxNodes, g.room
	g.walk(v, &nodes, &bytes, 0)
	if nodes < 0 || bytes < 0 {
		return 0, fmt.Errorf("a value grows beyond %d bytes or %d parts", g.room, maxNodes)
	}
	return g.room - bytes, nil
}

const maxNesting = 64 // of lists and dicts in one another

func (g *guard) walk(v jinja.Value, nodes, bytes *int, depth int) {
	if *nodes--; *nodes < 0 || *bytes < 0 {
		return
	}
	if depth > maxNesting {
		*nodes = -1
		return
	}
	switch {
	case v.IsString():
		*bytes -= len(v.AsString())
	case v.IsList():
		for _, x := range v.AsList().Items {
			if g.walk(x, nodes, bytes, depth+1); *nodes < 0 || *bytes < 0 {
				return
			}
		}
	case v.IsDict():
		d := v.AsDict()
		for _, k := range d.Keys {
			*bytes -= len(k)
			if g.walk(d.Data[k], nodes, bytes, depth+1); *nodes < 0 || *bytes < 0 {
				return
			}
		}
	default:
		*bytes -= 8
	}
}

// maxBound is how far the bounds of a slice reach: the library walks from one to the other.
const maxBound = 1 << 22

// bound clamps a bound of a slice; one that is no whole number is 0, as in the library.
func bound(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if len(args) != 1 || !args[0].IsInt() {
		return jinja.NewInt(0), nil
	}
	return jinja.NewInt(min(max(args[0].AsInt(), -maxBound), maxBound)), nil
}

// joins refuses to put part into whole where that would make whole a part of itself.
func (g *guard) joins(whole, part jinja.Value) error {
	if _, err := g.size(part); err != nil {
		return err
	}
	if (whole.IsDict() && holds(part, func(v jinja.Value) bool { return v.IsDict() && v.AsDict() == whole.AsDict() })) ||
		(whole.IsList() && holds(part, func(v jinja.Value) bool { return v.IsList() && v.AsList() == whole.AsList() })) {
		return errors.New("a value becomes a part of itself")
	}
	return nil
}

// holds looks through a value that size has accepted.
func holds(v jinja.Value, is func(jinja.Value) bool) bool {
	if is(v) {
		return true
	}
	if v.IsList() {
		for _, x := range v.AsList().Items {
			if holds(x, is) {
				return true
			}
		}
	}
	if v.IsDict() {
		for _, x := range v.AsDict().Data {
			if holds(x, is) {
				return true
			}
		}
	}
	return false
}

// text prints a value as the library does.
func text(v jinja.Value) string {
	switch {
	case v.IsUndefined(), v.IsNone(), v.IsCallable():
		return ""
	case v.IsString():
		return v.AsString()
	}
	return v.String()
}

func arg(args []jinja.Value, i int, kwargs map[string]jinja.Value, name string) jinja.Value {
	if v, ok := kwargs[name]; ok {
		return v
	}
	if i < len(args) {
		return args[i]
	}
	return jinja.Undefined()
}

func number(v jinja.Value, def int) int {
	if v.IsInt() {
		return int(v.AsInt())
	}
	return def
}

// fits refuses what would become longer than a value may be.
func (g *guard) fits(n int) error {
	if n > g.room || n < 0 {
		return fmt.Errorf("a value grows beyond %d bytes", g.room)
	}
	return nil
}

func (g *guard) replace(v jinja.Value, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if len(args) < 2 {
		return jinja.Undefined(), fmt.Errorf("replace: %d arguments, 2 are needed", len(args))
	}
	s, from, to := text(v), text(args[0]), text(args[1])
	count := number(arg(args, 2, kwargs, "count"), -1)
	times := strings.Count(s, from)
	if count >= 0 {
		times = min(times, count)
	}
	if len(to) > 0 && times > g.room/len(to) {
		return jinja.Undefined(), g.fits(g.room + 1)
	}
	if err := g.fits(len(s) + times*(len(to)-len(from))); err != nil {
		return jinja.Undefined(), err
	}
	return jinja.NewString(strings.Replace(s, from, to, count)), nil
}

func (g *guard) join(v jinja.Value, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	if !v.IsList() {
		return jinja.NewString(text(v)), nil
	}
	if _, err := g.size(v); err != nil {
		return jinja.Undefined(), err
	}
	sep, attribute := text(arg(args, 0, kwargs, "d")), text(arg(nil, 0, kwargs, "attribute"))
	items := v.AsList().Items
	if len(sep) > 0 && len(items) > g.room/len(sep) {
		return jinja.Undefined(), g.fits(g.room + 1)
	}
	parts := make([]string, len(items))
	for i, x := range items {
		if attribute != "" && x.IsDict() {
			x, _ = x.AsDict().Get(attribute)
		}
		parts[i] = text(x)
	}
	return jinja.NewString(strings.Join(parts, sep)), nil
}

func (g *guard) indent(v jinja.Value, args []jinja.Value, kwargs map[string]jinja.Value) (jinja.Value, error) {
	s, width := text(v), number(arg(args, 0, kwargs, "width"), 4)
	first := arg(args, 1, kwargs, "first").IsTruthy()
	lines := strings.Split(s, "\n")
	if width < 0 || width > 1000 {
		return jinja.Undefined(), fmt.Errorf("indent: width %d, 0 to 1000 are possible", width)
	}
	if err := g.fits(len(s) + len(lines)*width); err != nil {
		return jinja.Undefined(), err
	}
	for i, line := range lines {
		if line != "" && (i > 0 || first) {
			lines[i] = strings.Repeat(" ", width) + line
		}
	}
	return jinja.NewString(strings.Join(lines, "\n")), nil
}

// format fills {} and {0}, as str.format does for these.
func (g *guard) format(v jinja.Value, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	s := text(v)
	for i, x := range args {
		place, with := fmt.Sprintf("{%d}", i), text(x)
		if n := strings.Count(s, place) + 1; len(with) > 0 && n > g.room/len(with) {
			return jinja.Undefined(), g.fits(g.room + 1)
		}
		s = strings.Replace(strings.ReplaceAll(s, place, with), "{}", with, 1)
		if err := g.fits(len(s)); err != nil {
			return jinja.Undefined(), err
		}
	}
	return jinja.NewString(s), nil
}

func (g *guard) add(v jinja.Value, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if !v.IsList() || len(args) != 1 {
		return jinja.Undefined(), errors.New("append: a list and one value are needed")
	}
	if err := g.joins(v, args[0]); err != nil {
		return jinja.Undefined(), err
	}
	v.AsList().Append(args[0])
	_, err := g.size(v)
	return jinja.None(), err
}

func (g *guard) insert(v jinja.Value, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if !v.IsList() || len(args) != 2 {
		return jinja.Undefined(), errors.New("insert: a list, a place and one value are needed")
	}
	if err := g.joins(v, args[1]); err != nil {
		return jinja.Undefined(), err
	}
	l := v.AsList()
	at := min(max(number(args[0], 0), 0), l.Len())
	l.Items = append(l.Items[:at:at], append([]jinja.Value{args[1]}, l.Items[at:]...)...)
	_, err := g.size(v)
	return jinja.None(), err
}

func (g *guard) update(v jinja.Value, args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	if !v.IsDict() || len(args) != 1 || !args[0].IsDict() {
		return jinja.Undefined(), errors.New("update: two dicts are needed")
	}
	if err := g.joins(v, args[0]); err != nil {
		return jinja.Undefined(), err
	}
	d, more := v.AsDict(), args[0].AsDict()
	for _, k := range more.Keys {
		d.Set(k, more.Data[k])
	}
	_, err := g.size(v)
	return jinja.None(), err
}

// numbers is range, of at most as many numbers as there are steps.
func (g *guard) numbers(args []jinja.Value, _ map[string]jinja.Value) (jinja.Value, error) {
	from, to, by := 0, 0, 1
	switch len(args) {
	case 1:
		to = number(args[0], 0)
	case 3:
		by = number(args[2], 0)
		fallthrough
	case 2:
		from, to = number(args[0], 0), number(args[1], 0)
	default:
		return jinja.Undefined(), fmt.Errorf("range: %d arguments, 1 to 3 are possible", len(args))
	}
	if by == 0 || by > 1<<30 || by < -1<<30 {
		return jinja.Undefined(), fmt.Errorf("range: step %d", by)
	}
	var items []jinja.Value
	for i := from; (by > 0 && i < to) || (by < 0 && i > to); i += by {
		if len(items) > maxSteps {
			return jinja.Undefined(), fmt.Errorf("range: more than %d numbers", maxSteps)
		}
		items = append(items, jinja.NewInt(int64(i)))
	}
	return jinja.NewList(items), nil
}
