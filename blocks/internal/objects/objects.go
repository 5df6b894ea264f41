// Package objects stores data that must outlive a machine: named objects of bytes, each written as a whole. The keys, and
// the files of the directory store, are those of the service's TypeScript store, so both read and write the same store.
// Data with several writers is a chain of numbered objects, each put only if it is absent.
package objects

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
)

// MaxBytes limits one object. Every object that this module writes is smaller.
const MaxBytes = 64 << 20

var (
	// ErrNotFound says that there is no such object, or no byte in the range.
	ErrNotFound = errors.New("there is no such object")
	// ErrFull says that the store has no space left.
	ErrFull = errors.New("the object store is full")
	// ErrUnavailable says that the store did not answer, or asked to come back later. The same operation may succeed.
	ErrUnavailable = errors.New("the object store is unavailable")
)

// Info describes a listed object.
type Info struct {
	Key  string
	Size int64
}

// Range selects bytes of an object. The zero value selects all of them.
type Range struct {
	Offset int64
	// Length is 0 for all bytes from Offset.
	Length int64
}

// Store is safe for concurrent use. Each operation ends with its context.
type Store interface {
	// Put writes or replaces an object. Nothing of it is visible until it returns; then it is durable, and the caller may
	// use the memory of the content for something else.
	Put(ctx context.Context, key string, content []byte) error
	// PutIfAbsent returns false if the key exists. Of several concurrent calls one wins. The content is free as after Put.
	PutIfAbsent(ctx context.Context, key string, content []byte) (bool, error)
	// Get reads an object or a range of it. It returns fewer bytes if the object ends before the range.
	Get(ctx context.Context, key string, part Range) ([]byte, error)
	// List yields, sorted by key, the objects whose key begins with prefix and is greater than after.
	List(ctx context.Context, prefix, after string) iter.Seq2[Info, error]
	// Delete removes an object. It does nothing if there is none.
	Delete(ctx context.Context, key string) error
}

const (
	maxKeyLength  = 900
	maxNameLength = 200
)

// CheckKey returns an error for a key that no store accepts. No name begins with a dot, so no key leads to a parent
// directory or to a store's own files.
func CheckKey(key string) error {
	if len(key) > maxKeyLength {
		return fmt.Errorf("an object key has %d characters, more than %d", len(key), maxKeyLength)
	}
	for _, name := range strings.Split(key, "/") {
		if !IsName(name) {
			return fmt.Errorf("object key %.100q: must be names of A–Z, a–z, 0–9, \".\", \"_\", \"-\" joined by \"/\"", key)
		}
	}
	return nil
}

// IsName reports whether a name may be a part of a key.
func IsName(name string) bool {
	if name == "" || len(name) > maxNameLength || name[0] == '.' {
		return false
	}
	for _, c := range []byte(name) {
		isLetter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !isLetter && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
