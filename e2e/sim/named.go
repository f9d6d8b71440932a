package sim

import (
	"slices"
	"sort"
)

// named holds values in order of their names.
type named[T any] struct {
	names  []string
	values []T
}

func (n *named[T]) at(name string) (int, bool) {
	i := sort.SearchStrings(n.names, name)
	return i, i < len(n.names) && n.names[i] == name
}

// get gives the zero value when there is none.
func (n *named[T]) get(name string) (v T) {
	if i, ok := n.at(name); ok {
		v = n.values[i]
	}
	return v
}

// put adds a value whose name is new.
func (n *named[T]) put(name string, v T) {
	i, _ := n.at(name)
	n.names, n.values = slices.Insert(n.names, i, name), slices.Insert(n.values, i, v)
}

func (n *named[T]) remove(name string) {
	if i, ok := n.at(name); ok {
		n.names, n.values = slices.Delete(n.names, i, i+1), slices.Delete(n.values, i, i+1)
	}
}
